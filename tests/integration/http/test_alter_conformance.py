"""The numbered alter cases that are refused; the raw protocol tells what a broker does."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.http.service_calls import C, I, M, P, R, change
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Entry, Names, RawQuotas, RequestLog, setting
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

U: Names = {"user": "u"}
IP: Names = {"ip": "10.0.0.1"}
CLIENT_IP: Names = {"client-id": "c", "ip": None}
USER_IP: Names = {"user": "user", "ip": "1.2.3.4"}
OK, INVALID_REQUEST, POLICY_VIOLATION = 0, 42, 44
POSITIVE = "Quota {} must be greater than 0"
WHOLE = "{} cannot be a fractional value."
TOO_LARGE = "Proposed value for {} is too large for a"
NO_KEY = "Invalid configuration key {}"
NO_TYPE = "Unhandled client quota entity type: {}"
NOT_TOGETHER = "Invalid quota entity combination"
NO_ADDRESS = "not a valid IP"

REFUSED: list[tuple[str, Names, dict[str, str], str, str | None]] = [
    ("C010 C011 a rate of -1", U, {P: "-1"}, "not-positive", POSITIVE.format(P)),
    ("C011 a rate of 0", U, {P: "0"}, "not-positive", POSITIVE.format(P)),
    ("C011 a rate of -0.0", U, {P: "-0.0"}, "not-positive", POSITIVE.format(P)),
    ("C013 a percentage of 0", U, {R: "0"}, "not-positive", POSITIVE.format(R)),
    ("C014 a connection rate of 0", IP, {I: "0"}, "not-positive", POSITIVE.format(I)),
    ("C016 a fraction", U, {C: "2.245"}, "fraction", WHOLE.format(C)),
    ("C017 nearly an integer", U, {C: "1235.0000001"}, "fraction", None),
    ("C019 half a byte", U, {P: "0.5"}, "fraction below-minimum", WHOLE.format(P)),
    ("C020 next to nothing", U, {P: "1e-9"}, "fraction below-minimum", None),
    ("C020 hardly a connection", IP, {I: "1e-9"}, "fraction below-minimum", None),
    ("C023", U, {C: "36893488147419103232.4"}, "fraction above-maximum", TOO_LARGE.format(C)),
    ("C023 above 2^63", U, {P: "9223372036854777856"}, "above-maximum", TOO_LARGE.format(P)),
    ("C025 an infinite rate", U, {P: "1e999"}, "not-finite", TOO_LARGE.format(P)),
    ("C026 an infinite percentage", U, {R: "1e999"}, "not-finite", None),
    ("C031", IP, {I: "2147483647.5"}, "fraction above-maximum", TOO_LARGE.format(I)),
    ("between two float64", U, {P: "9007199254740993"}, "not-exact", None),
    ("a percentage of next to nothing", U, {R: "0.009"}, "below-minimum", None),
    ("a percentage of too much", U, {M: "1000000001"}, "above-maximum", None),
    ("C032 an unknown key", U, {"bad": "1"}, "unknown-key", NO_KEY.format("bad")),
    ("C034", U, {R: "99.9", "not.a": "0"}, "unknown-key not-positive", NO_KEY.format("not.a")),
    ("C035", U, {"SCRAM-SHA-256": "5"}, "unknown-key", NO_KEY.format("SCRAM-SHA-256")),
    ("C037 a user's key", {"ip": "1.2.3.4"}, {P: "5"}, "key-not-allowed", NO_KEY.format(P)),
    ("C038", {"user": ""}, {R: "12.34"}, "empty-name", "Empty user not supported"),
    ("C040", {"ip": ""}, {I: "5"}, "empty-name", "Empty ip not supported"),
    ("C041", {}, {P: "1.5"}, "empty-entity fraction", "Invalid empty client quota entity"),
    ("C043", {"foo": "bar"}, {}, "unknown-entity-type no-ops", NO_TYPE.format("foo")),
    ("C044", {"USER": "u"}, {P: "5"}, "unknown-entity-type", NO_TYPE.format("USER")),
    ("C046", USER_IP, {R: "12.34"}, "invalid-entity-combination", NOT_TOGETHER),
    ("C047", CLIENT_IP, {I: "5"}, "invalid-entity-combination", NOT_TOGETHER),
    ("C049 nobody's", {"ip": "RFC2606.invalid"}, {I: "50"}, "not-an-ip-address", NO_ADDRESS),
    ("C049 a host name", {"ip": "localhost"}, {I: "50"}, "not-an-ip-address", None),
    ("C050 a range", {"ip": "10.0.0.0/8"}, {I: "5"}, "not-an-ip-address", NO_ADDRESS),
    ("a short address", {"ip": "10.1"}, {I: "5"}, "not-an-ip-address", None),
    ("C058 no operations", U, {}, "no-ops", None),
    ("a name of 513 bytes", {"user": "u" * 513}, {P: "5"}, "name-too-long", None),
    ("U+0000 in a name", {"user": "a\0b"}, {P: "5"}, "nul-in-name", None),
]
"""Names and values (as JSON) that this service refuses unsent with these codes, and what is in the
message of a broker, which refuses the same as INVALID_REQUEST; null where it would take them.

Whether a broker can look a host name up only the broker knows, so the service always names Kafka's
error there."""


def alteration_text(names: Names, ops: list[tuple[str, str]]) -> str:
    listed = ", ".join(f'{{"key": {json.dumps(key)}, "value": {text}}}' for key, text in ops)
    return f'{{"entity": {json.dumps(names)}, "ops": [{listed}]}}'


def post(service: RunningService, *alterations: str, **options: Any) -> httpx.Response:
    members = "".join(f', "{name}": {json.dumps(value)}' for name, value in options.items())
    return service.api().post(
        "/quotas/alterations",
        content=f'{{"alterations": [{", ".join(alterations)}]{members}}}',
        headers={"Content-Type": "application/json"},
    )


def test_a_broken_rule_is_reported_and_nothing_reaches_the_broker(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog, subtests: pytest.Subtests
) -> None:
    for name, stated, values, codes, broker in REFUSED:
        with subtests.test(name):
            names = {kind: unique("u") if text == "u" else text for kind, text in stated.items()}
            alteration = alteration_text(names, list(values.items()))
            with broker_log.nothing_arrives():
                answers = [post(service, alteration, validate_only=flag) for flag in (True, False)]
                answers.append(post(service, alteration, all_or_nothing=False))
            is_checked_by_kafka = broker is not None or "not-an-ip-address" in codes
            kafka_error = "INVALID_REQUEST" if is_checked_by_kafka else None
            for answer in answers:
                problem = answer.json()
                assert (answer.status_code, problem["sent_to_cluster"]) == (422, "no")
                assert {error["code"] for error in problem["errors"]} == set(codes.split())
                assert problem["kafka_error"] == kafka_error
            (verdict,) = raw.alter(
                setting(names, {key: float(text) for key, text in values.items()}),
                validate_only=True,
            )
            assert verdict.code == (OK if broker is None else INVALID_REQUEST)
            assert (broker or "") in (verdict.message or "")
            assert raw.everything().get(frozenset(names.items())) is None


def test_c053_a_key_twice_refuses_the_entity(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    names = {"user": unique()}
    with broker_log.nothing_arrives():
        answer = post(service, alteration_text(names, [(P, "1000"), (P, "2000")]))
    assert answer.status_code == 422
    assert {error["code"] for error in answer.json()["errors"]} == {"duplicate-key"}
    (verdict,) = raw.alter(Entry(list(names.items()), [(P, 1000.0), (P, 2000.0)]))
    assert verdict.code == INVALID_REQUEST
    assert (verdict.message or "").startswith("Ignoring duplicate entity")
    assert raw.stored(names) == {}


@pytest.mark.parametrize(
    ("first", "stored_by_kafka"), [(1000, {P: 1000.0}), (-1, {})], ids=["C055", "C056"]
)
@pytest.mark.parametrize("all_or_nothing", [True, False])
def test_c055_c056_an_entity_twice_refuses_the_request_and_stores_nothing(
    service: RunningService,
    raw: RawQuotas,
    broker_log: RequestLog,
    first: float,
    stored_by_kafka: dict[str, float],
    *,
    all_or_nothing: bool,
) -> None:
    names, bystander = {"user": unique()}, {"user": unique()}
    with broker_log.nothing_arrives():
        answer = service.alter(
            change(names, {P: first}),
            change(names, {C: 2000}),
            change(bystander, {C: 1}),
            all_or_nothing=all_or_nothing,
        )
    assert answer.status_code == 422
    errors = {error["pointer"]: error["code"] for error in answer.json()["errors"]}
    assert errors["/alterations/1/entity"] == "duplicate-entity"
    assert raw.stored(names) == raw.stored(bystander) == {}
    (verdict,) = raw.alter(setting(names, {P: first}), setting(names, {C: 2000}))
    assert verdict.code == INVALID_REQUEST
    wait_until(lambda: raw.stored(names) == stored_by_kafka)


def test_c067_a_type_twice_in_an_entity_cannot_be_read_where_kafka_takes_the_last(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    first, last = unique("a"), unique("b")
    entity = f'{{"user": "{first}", "user": "{last}"}}'
    with broker_log.nothing_arrives():
        answer = post(service, f'{{"entity": {entity}, "ops": [{{"key": "{P}", "value": 5}}]}}')
    assert answer.status_code == 400
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [
        ("/alterations/0/entity/user", "duplicate-json-key")
    ]
    (verdict,) = raw.alter(Entry([("user", first), ("user", last)], [(P, 5.0)]))
    assert (verdict.entity, verdict.code) == (frozenset({("user", last)}), OK)


@pytest.fixture
def user(raw: RawQuotas) -> Iterator[str]:
    """A user that leaves nothing behind."""
    name = unique()
    yield name
    stored = raw.describe(("user", 0, name)).quotas
    raw.alter(*(setting(dict(key), dict.fromkeys(values)) for key, values in stored.items()))


def test_c061_c062_ten_thousand_changed_keys_go_at_once_and_one_more_is_refused(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog, user: str
) -> None:
    changes = [change({"user": user, "client-id": str(n)}, {P: 5}) for n in range(10_001)]
    with broker_log.nothing_arrives():
        refused = service.alter(*changes)
    assert (refused.status_code, refused.json()["code"]) == (422, "too-many-changes")
    assert refused.json()["kafka_error"] == "POLICY_VIOLATION"
    verdicts = raw.alter(
        *(setting(item["entity"], {P: 5.0}) for item in changes), validate_only=True
    )
    assert {verdict.code for verdict in verdicts} == {POLICY_VIOLATION}

    accepted = changes[: size(1_000, 10_000)]
    answer = service.alter(*accepted)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["entity"] for result in results] == [item["entity"] for item in accepted]
    assert {result["outcome"] for result in results} == {"applied"}
    assert len(raw.describe(("user", 0, user)).quotas) == len(accepted)


def test_two_mebibytes_of_records_are_refused_unsent(
    service: RunningService, broker_log: RequestLog
) -> None:
    long = unique() + "x" * 490
    changes = [change({"user": long, "client-id": f"{n:04}{long}"}, {P: 5}) for n in range(2000)]
    with broker_log.nothing_arrives():
        answer = service.alter(*changes)
    assert (answer.status_code, answer.json()["code"]) == (422, "too-large")
