"""Alterations that this service refuses unsent, and what a broker says of the same."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from tests.integration.http.service_calls import C, I, M, P, R
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import Names

OK, INVALID_REQUEST, POLICY_VIOLATION = 0, 42, 44
TOO_BIG = "Proposed value for {} is too large for a"
POSITIVE = "Quota {} must be greater than 0"


class Refused(NamedTuple):
    """What this service refuses unsent, and what a broker says of it.

    ``values`` are JSON texts. ``broker`` is its code and a text in its message. Whether a broker
    can look a host name up only the broker knows, so the service always names Kafka's error there.
    """

    names: Names
    values: Mapping[str, str]
    codes: set[str]
    broker: tuple[int, str] = (OK, "")


U: Names = {"user": "u"}
ADDRESS: Names = {"ip": "10.0.0.1"}

REFUSED = {
    "C010 C011 a rate of -1": Refused(
        U, {P: "-1"}, {"not-positive"}, (INVALID_REQUEST, POSITIVE.format(P))
    ),
    "C011 a rate of 0": Refused(
        U, {P: "0"}, {"not-positive"}, (INVALID_REQUEST, POSITIVE.format(P))
    ),
    "C011 a rate of -0.0": Refused(
        U, {P: "-0.0"}, {"not-positive"}, (INVALID_REQUEST, POSITIVE.format(P))
    ),
    "C013 a percentage of 0": Refused(
        U, {R: "0"}, {"not-positive"}, (INVALID_REQUEST, POSITIVE.format(R))
    ),
    "C014 a connection rate of 0": Refused(
        ADDRESS, {I: "0"}, {"not-positive"}, (INVALID_REQUEST, POSITIVE.format(I))
    ),
    "C016 a fraction": Refused(
        U, {C: "2.245"}, {"fraction"}, (INVALID_REQUEST, f"{C} cannot be a fractional value.")
    ),
    "C017 nearly an integer": Refused(U, {C: "1235.0000001"}, {"fraction"}),
    "C019 half a byte": Refused(
        U,
        {P: "0.5"},
        {"fraction", "below-minimum"},
        (INVALID_REQUEST, f"{P} cannot be a fractional value."),
    ),
    "C020 next to nothing": Refused(U, {P: "1e-9"}, {"fraction", "below-minimum"}),
    "C020 a connection rate of next to nothing": Refused(
        ADDRESS, {I: "1e-9"}, {"fraction", "below-minimum"}
    ),
    "C023 too large": Refused(
        U,
        {C: "36893488147419103232.4"},
        {"fraction", "above-maximum"},
        (INVALID_REQUEST, TOO_BIG.format(C)),
    ),
    "C023 the next float64 above 2^63": Refused(
        U, {P: "9223372036854777856"}, {"above-maximum"}, (INVALID_REQUEST, TOO_BIG.format(P))
    ),
    "C025 an infinite rate": Refused(
        U, {P: "1e999"}, {"not-finite"}, (INVALID_REQUEST, TOO_BIG.format(P))
    ),
    "C026 an infinite percentage": Refused(U, {R: "1e999"}, {"not-finite"}),
    "C031 a large fraction of connections": Refused(
        ADDRESS,
        {I: "2147483647.5"},
        {"fraction", "above-maximum"},
        (INVALID_REQUEST, TOO_BIG.format(I)),
    ),
    "an integer between two float64": Refused(U, {P: "9007199254740993"}, {"not-exact"}),
    "a percentage of next to nothing": Refused(U, {R: "0.009"}, {"below-minimum"}),
    "a percentage of too much": Refused(U, {M: "1000000001"}, {"above-maximum"}),
    "C032 an unknown key": Refused(
        U, {"bad": "1"}, {"unknown-key"}, (INVALID_REQUEST, "Invalid configuration key bad")
    ),
    "C034 an unknown key beside a good one": Refused(
        U,
        {R: "99.9", "not.a.quota.key": "0"},
        {"unknown-key", "not-positive"},
        (INVALID_REQUEST, "Invalid configuration key not.a.quota.key"),
    ),
    "C035 a mechanism's name": Refused(
        U,
        {"SCRAM-SHA-256": "5"},
        {"unknown-key"},
        (INVALID_REQUEST, "Invalid configuration key SCRAM-SHA-256"),
    ),
    "C037 a user's key for an address": Refused(
        {"ip": "1.2.3.4"},
        {P: "5"},
        {"key-not-allowed"},
        (INVALID_REQUEST, f"Invalid configuration key {P}"),
    ),
    "C038 an empty user": Refused(
        {"user": ""}, {R: "12.34"}, {"empty-name"}, (INVALID_REQUEST, "Empty user not supported")
    ),
    "C040 an empty address": Refused(
        {"ip": ""}, {I: "5"}, {"empty-name"}, (INVALID_REQUEST, "Empty ip not supported")
    ),
    "C041 nobody": Refused(
        {},
        {P: "10000.5"},
        {"empty-entity", "fraction"},
        (INVALID_REQUEST, "Invalid empty client quota entity"),
    ),
    "C043 an unknown type without operations": Refused(
        {"foo": "bar"},
        {},
        {"unknown-entity-type", "no-ops"},
        (INVALID_REQUEST, "Unhandled client quota entity type: foo"),
    ),
    "C044 a type in capitals": Refused(
        {"USER": "u"},
        {P: "5"},
        {"unknown-entity-type"},
        (INVALID_REQUEST, "Unhandled client quota entity type: USER"),
    ),
    "C046 an address and a user": Refused(
        {"user": "user", "ip": "1.2.3.4"},
        {R: "12.34"},
        {"invalid-entity-combination"},
        (INVALID_REQUEST, "Invalid quota entity combination"),
    ),
    "C047 the default address and a client-id": Refused(
        {"client-id": "c", "ip": None},
        {I: "5"},
        {"invalid-entity-combination"},
        (INVALID_REQUEST, "Invalid quota entity combination"),
    ),
    "C049 a host name that nobody knows": Refused(
        {"ip": "RFC2606.invalid"},
        {I: "50"},
        {"not-an-ip-address"},
        (INVALID_REQUEST, "not a valid IP"),
    ),
    "C049 a host name": Refused({"ip": "localhost"}, {I: "50"}, {"not-an-ip-address"}),
    "C050 a range of addresses": Refused(
        {"ip": "10.0.0.0/8"}, {I: "5"}, {"not-an-ip-address"}, (INVALID_REQUEST, "not a valid IP")
    ),
    "a short address": Refused({"ip": "10.1"}, {I: "5"}, {"not-an-ip-address"}),
    "C058 no operations": Refused(U, {}, {"no-ops"}),
    "a name of 513 bytes": Refused({"user": "u" * 513}, {P: "5"}, {"name-too-long"}),
    "U+0000 in a name": Refused({"user": "a\0b"}, {P: "5"}, {"nul-in-name"}),
}


def made_unique(names: Names) -> dict[str, str | None]:
    return {kind: unique("u") if name == "u" else name for kind, name in names.items()}


def alteration_text(names: Names, ops: list[tuple[str, str]]) -> str:
    listed = ", ".join(f'{{"key": {json.dumps(key)}, "value": {text}}}' for key, text in ops)
    return f'{{"entity": {json.dumps(names)}, "ops": [{listed}]}}'
