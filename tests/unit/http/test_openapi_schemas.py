"""The schemas of requests say what the readers and the rules accept, no more and no less."""

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.domain.addresses import canonical_ip
from app.domain.alteration_rules import judge
from app.domain.errors import UnreadableRequestError
from app.domain.filters import filter_violations
from app.http.filter_query import parse_filter
from app.http.openapi.document import complete
from app.http.schemas import read_alter_request, read_resolve_request
from app.http.strict_json import parse_object

COMPONENTS = complete({"info": {}, "paths": {}})["components"]


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": COMPONENTS})


ALTERATION = validator("AlterationRequest")
RESOLVE = validator("ResolveRequest")
FILTER = validator("QuotaFilter")
ADDRESS = validator("IpAddress")


def alteration_is_accepted(body: Any) -> bool:
    try:
        read = read_alter_request(parse_object(json.dumps(body).encode()))
    except UnreadableRequestError:
        return False
    return not read.violations and not judge(read.alterations, {}).violations


def resolve_is_accepted(body: Any) -> bool:
    try:
        read = read_resolve_request(parse_object(json.dumps(body).encode()))
    except UnreadableRequestError:
        return False
    broken = judge(read.alterations, {}).violations if read.alterations else ()
    return not read.violations and not broken


def filter_is_accepted(components: list[str]) -> bool:
    try:
        return not filter_violations(parse_filter(components))
    except UnreadableRequestError:
        return False


def one(entity: Mapping[str, Any], *ops: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"alterations": [{"entity": entity, "ops": list(ops), **more}]}


ALICE = {"user": "alice"}
REMOVE = {"key": "producer_byte_rate", "remove": True}
GOOD = one(ALICE, REMOVE)

ALTERATIONS = [
    GOOD,
    one({"user": None, "client-id": "etl"}, REMOVE),
    one({"ip": None}, {"key": "connection_creation_rate", "value": 2147483647}),
    one({"ip": "::ffff:1.2.3.4"}, {"key": "connection_creation_rate", "value": 1.0}),
    one(ALICE, {"key": "producer_byte_rate", "value": 1, "remove": False}),
    one(ALICE, REMOVE, expected={"producer_byte_rate": None, "other": "NaN"}),
    {**GOOD, "reason": None, "wait": "none", "wait_ms": 0, "all_or_nothing": False},
    {**GOOD, "reason": "x" * 1000, "wait_ms": 60000, "validate_only": True},
    {},
    {"alterations": []},
    {**GOOD, "wait": "forever"},
    {**GOOD, "wait_ms": 60001},
    {**GOOD, "wait_ms": 0.5},
    {**GOOD, "wait_ms": None},
    {**GOOD, "reason": "x" * 1001},
    {**GOOD, "reason": "a\0b"},
    {**GOOD, "dry_run": True},
    {**GOOD, "validate_only": 1},
    {"alterations": [{"entity": ALICE}]},
    {"alterations": [{"ops": [REMOVE]}]},
    one(ALICE),
    one({}, REMOVE),
    one({"group": "a"}, REMOVE),
    one({"user": ""}, REMOVE),
    one({"user": "x" * 513}, REMOVE),
    one({"user": "a\0"}, REMOVE),
    one({"user": 1}, REMOVE),
    one({"user": "alice", "ip": "10.0.0.1"}, REMOVE),
    one({"ip": "localhost"}, {"key": "connection_creation_rate", "value": 1}),
    one({"ip": "10.0.0.1"}, REMOVE),
    one(ALICE, {"key": "connection_creation_rate", "value": 1}),
    one(ALICE, {"key": "no_such_rate", "remove": True}),
    one(ALICE, REMOVE, REMOVE),
    one(ALICE, REMOVE, {"key": "producer_byte_rate", "value": 1}),
    one(ALICE, {"key": "producer_byte_rate"}),
    one(ALICE, {"key": "producer_byte_rate", "remove": False}),
    one(ALICE, {"key": "producer_byte_rate", "value": 1, "remove": True}),
    one(ALICE, {"key": "producer_byte_rate", "value": None}),
    one(ALICE, {"key": "producer_byte_rate", "value": "1"}),
    one(ALICE, {"value": 1}),
    one(ALICE, {**REMOVE, "unit": "bytes/s"}),
    one(ALICE, REMOVE, expected=None),
    one(ALICE, REMOVE, expected={"producer_byte_rate": "many"}),
    one(ALICE, REMOVE, comment="x"),
]

RESOLVES = [
    {"identities": []},
    {"identities": [{"user": ""}, {"user": "a", "client-id": ""}, {"ip": "::1"}]},
    {"identities": [{"user": "a"}], "alterations": [], "max_age_ms": 2147483647},
    {"identities": [{"user": "a"}], **GOOD},
    {"identities": [{"user": "a"}] * 10_000},
    {},
    {"identities": [{"user": "a"}] * 10_001},
    {"identities": [{}]},
    {"identities": [{"client-id": "a"}]},
    {"identities": [{"user": None}]},
    {"identities": [{"ip": "10.0.0.1", "client-id": "a"}]},
    {"identities": [{"ip": "10.0.0.256"}]},
    {"identities": [{"user": "a", "group": "b"}]},
    {"identities": [], "max_age_ms": -1},
    {"identities": [], "max_age_ms": 2147483648},
    {"identities": [], "explain": True},
    {"identities": [], **one(ALICE, REMOVE, expected={})},
    {"identities": [], "alterations": None},
]


@pytest.mark.parametrize("body", ALTERATIONS, ids=lambda body: json.dumps(body)[:80])
def test_the_schema_of_alterations_agrees_with_the_rules(body: Any) -> None:
    assert ALTERATION.is_valid(body) == alteration_is_accepted(body)


@pytest.mark.parametrize("body", RESOLVES, ids=lambda body: json.dumps(body)[:80])
def test_the_schema_of_resolve_agrees_with_the_rules(body: Any) -> None:
    assert RESOLVE.is_valid(body) == resolve_is_accepted(body)


def test_the_tables_hold_good_and_bad_bodies() -> None:
    assert {alteration_is_accepted(body) for body in ALTERATIONS} == {True, False}
    assert {resolve_is_accepted(body) for body in RESOLVES} == {True, False}


NEAR_POWERS = st.builds(
    lambda bits, factor, offset: factor * 2**bits + offset,
    st.integers(0, 64),
    st.integers(1, 7),
    st.integers(-3, 3),
)


@given(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
    NEAR_POWERS | st.integers(-5, 2**65) | st.floats(0, 100),
)
@example("producer_byte_rate", 2**63 - 1)
@example("producer_byte_rate", 2**63)
@example("producer_byte_rate", 2**63 - 1024)
@example("producer_byte_rate", 2**63 - 512)
@example("consumer_byte_rate", 2**53 + 1)
def test_the_schema_of_a_byte_rate_agrees_with_the_rules(key: str, value: float) -> None:
    body = one(ALICE, {"key": key, "value": value})
    assert ALTERATION.is_valid(body) == alteration_is_accepted(body)


@given(
    st.sampled_from(["request_percentage", "controller_mutation_rate"]),
    st.integers(-5, 2 * 10**9) | st.floats(-1, 2e9) | st.floats(0, 0.02),
)
@example("request_percentage", 0.01)
@example("request_percentage", 0.00999)
@example("controller_mutation_rate", 10**9)
@example("controller_mutation_rate", 1000000000.1)
def test_the_schema_of_a_fractional_rate_agrees_with_the_rules(key: str, value: float) -> None:
    body = one(ALICE, {"key": key, "value": value})
    assert ALTERATION.is_valid(body) == alteration_is_accepted(body)


ADDRESSES = st.ip_addresses().map(str) | st.ip_addresses(v=6).map(lambda it: it.exploded)
PIECES = st.lists(
    st.sampled_from(["::", ":", "0", "1", "ab", "FFFF", "12345", ".", "256", "1.2.3.4", "g", "%1"]),
    max_size=17,
).map("".join)
MAPPED = st.ip_addresses(v=4).map(lambda it: f"::ffff:{it}")


@given(ADDRESSES | PIECES | MAPPED)
@example("1::")
@example("1:2:3:4:5:6:7::")
@example("::2:3:4:5:6:7:8")
@example("1:2:3:4:5:6:1.2.3.4")
@example("01.2.3.4")
@example(str(ipaddress.IPv6Address(1)))
def test_the_schema_of_an_address_agrees_with_the_rules(text: str) -> None:
    assert ADDRESS.is_valid(text) == (canonical_ip(text) is not None)


COMPONENT_TEXTS = st.builds(
    lambda kind, rest: kind + rest,
    st.sampled_from(["user", "client-id", "ip", "group", ""]),
    st.sampled_from(["", "=a", "=", "^=a", "^=", "^a", ":default", ":any", ":absent", ":all", ":"]),
)


@given(st.lists(COMPONENT_TEXTS, max_size=4))
@example(["ip=10.0.0.1", "user:absent"])
@example(["ip:absent", "user=a", "client-id"])
@example(["ip", "user"])
@example(["user:absent", "user=a"])
def test_the_schema_of_a_filter_agrees_with_the_rules(components: list[str]) -> None:
    assert FILTER.is_valid(components) == filter_is_accepted(components)
