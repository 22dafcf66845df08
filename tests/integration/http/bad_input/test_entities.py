"""Entities and keys that cannot be: refused with their pointer, before anything is sent."""

from typing import Any

import pytest

from tests.integration.http.bad_input.conftest import Post
from tests.testkit.http import Violations, assert_refused

P, CONNECTION_RATE = "producer_byte_rate", "connection_creation_rate"
SET = [{"key": P, "value": 1024}]
ENTITY = "/alterations/0/entity"
KEY = "/alterations/0/ops/0/key"
KAFKA = "INVALID_REQUEST"


def single(entity: Any, ops: Any = SET) -> dict[str, Any]:
    return {"alterations": [{"entity": entity, "ops": ops}]}


ENTITIES: dict[str, tuple[dict[str, Any], Violations, str | None]] = {
    "none at all": ({}, {(ENTITY, "empty-entity")}, KAFKA),
    "an empty user": ({"user": ""}, {(f"{ENTITY}/user", "empty-name")}, KAFKA),
    "an empty client-id": (
        {"user": "bad", "client-id": ""},
        {(f"{ENTITY}/client-id", "empty-name")},
        KAFKA,
    ),
    "an unknown type": ({"group": "bad"}, {(f"{ENTITY}/group", "unknown-entity-type")}, KAFKA),
    "another case": ({"User": "bad"}, {(f"{ENTITY}/User", "unknown-entity-type")}, KAFKA),
    "an underscore": (
        {"client_id": "bad"},
        {(f"{ENTITY}/client_id", "unknown-entity-type")},
        KAFKA,
    ),
    "an empty type": ({"": "bad"}, {(f"{ENTITY}/", "unknown-entity-type")}, KAFKA),
    "a type that a pointer must escape": (
        {"a/b~c": None},
        {(f"{ENTITY}/a~1b~0c", "unknown-entity-type")},
        KAFKA,
    ),
    "an unknown type beside a user": (
        {"user": "bad", "team": "bad"},
        {(f"{ENTITY}/team", "unknown-entity-type")},
        KAFKA,
    ),
    "NUL in a user": ({"user": "a\0b"}, {(f"{ENTITY}/user", "nul-in-name")}, None),
    "NUL in a client-id": ({"client-id": "\0"}, {(f"{ENTITY}/client-id", "nul-in-name")}, None),
    "513 bytes": ({"user": "x" * 513}, {(f"{ENTITY}/user", "name-too-long")}, None),
    "257 characters of 2 bytes": ({"user": "é" * 257}, {(f"{ENTITY}/user", "name-too-long")}, None),
    "129 characters of 4 bytes": (
        {"client-id": "😀" * 129},
        {(f"{ENTITY}/client-id", "name-too-long")},
        None,
    ),
    "32,767 bytes": ({"user": "x" * 32767}, {(f"{ENTITY}/user", "name-too-long")}, None),
    "32,768 bytes": ({"user": "x" * 32768}, {(f"{ENTITY}/user", "name-too-long")}, None),
    "everything at once": (
        {"user": "", "client-id": "a\0" + "x" * 512, "team": "t"},
        {
            (f"{ENTITY}/user", "empty-name"),
            (f"{ENTITY}/client-id", "nul-in-name"),
            (f"{ENTITY}/client-id", "name-too-long"),
            (f"{ENTITY}/team", "unknown-entity-type"),
        },
        KAFKA,
    ),
}


def test_an_entity_that_cannot_be_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (entity, violations, kafka_error) in ENTITIES.items():
        with subtests.test(name=name):
            problem = assert_refused(post(single(entity)), 422, violations)
            assert problem["kafka_error"] == kafka_error


def test_a_name_of_another_type_cannot_be_read(post: Post, subtests: pytest.Subtests) -> None:
    for name in [1, 1.5, True, [], ["bad"], {}, {"name": "bad"}]:
        with subtests.test(name=name):
            assert_refused(post(single({"user": name})), 400, {(f"{ENTITY}/user", "wrong-type")})


def test_half_of_a_surrogate_pair_is_refused_and_survives_the_answer(
    post: Post, subtests: pytest.Subtests
) -> None:
    for written in [r"\ud800", r"\udfff", r"a\udc00b", r"\udc00\ud800", r"\ud800\ud800"]:
        for kind in ["user", "client-id"]:
            with subtests.test(written=written, kind=kind):
                op = f'{{"key": "{P}", "value": 1}}'
                body = (
                    f'{{"alterations": [{{"entity": {{"{kind}": "{written}"}}, "ops": [{op}]}}]}}'
                )
                assert_refused(post(body), 422, {(f"{ENTITY}/{kind}", "lone-surrogate")})


def test_half_of_a_surrogate_pair_as_a_type_or_a_key_is_refused(post: Post) -> None:
    body = (
        r'{"alterations": [{"entity": {"\ud800": "bad"}, "ops": '
        r'[{"key": "\udc00", "value": 1}]}]}'
    )
    answer = post(body)
    assert rb"\ud800" in answer.content
    assert answer.json()["errors"]
    assert answer.status_code == 422
    codes = {violation["code"] for violation in answer.json()["errors"]}
    assert codes == {"unknown-entity-type", "unknown-key"}


def test_an_address_beside_a_user_or_client_id_is_refused(
    post: Post, subtests: pytest.Subtests
) -> None:
    for other in ["user", "client-id"]:
        for name in ["bad", None]:
            with subtests.test(other=other, name=name):
                ops = [{"key": CONNECTION_RATE, "value": 10}]
                answer = post(single({"ip": "192.0.2.1", other: name}, ops))
                problem = assert_refused(answer, 422, {(ENTITY, "invalid-entity-combination")})
                assert problem["kafka_error"] == KAFKA


NO_ADDRESSES = [
    *("localhost", "example.com", "broker-1", "a", "-", "*", "<default>"),
    *("10.0.0.0/8", "10.0.0.1/32", "::/0", "fe80::1%eth0", "fe80::1%1", "[::1]"),
    *("010.0.0.1", "10.0.0.01", "1.2.3", "16909060", "0x7f000001", "1.2.3.4.5", "256.0.0.1"),
    *(" 1.2.3.4", "1.2.3.4 ", "1.2.3.4\n", "1.2.3.4:9092", "1.2.3.4,5.6.7.8", "-1.2.3.4"),
    *(":", ":::", "1::2::3", "12345::", "::ffff:999.1.1.1", "::1.2.3", "g::"),
    *("\uff11.2.3.4", "\u0661.2.3.4", "1\u30022\u30023\u30024", "::\u0661"),
]


def test_what_is_no_literal_address_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name in NO_ADDRESSES:
        with subtests.test(name=name):
            answer = post(single({"ip": name}, [{"key": CONNECTION_RATE, "value": 10}]))
            problem = assert_refused(answer, 422, {(f"{ENTITY}/ip", "not-an-ip-address")})
            assert problem["code"] == "invalid-request"


KEYS: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"user": "bad"}, "producer_bytes_rate", "unknown-key"),
    "empty": ({"user": "bad"}, "", "unknown-key"),
    "another case": ({"user": "bad"}, "Producer_Byte_Rate", "unknown-key"),
    "a SCRAM mechanism": ({"user": "bad"}, "SCRAM-SHA-256", "unknown-key"),
    "another SCRAM mechanism": ({"user": "bad"}, "SCRAM-SHA-512", "unknown-key"),
    "a broker's setting": ({"user": None}, "log.retention.ms", "unknown-key"),
    "32,768 bytes": ({"user": "bad"}, "x" * 32768, "unknown-key"),
    "an address's for a user": ({"user": "bad"}, CONNECTION_RATE, "key-not-allowed"),
    "an address's for a pair": (
        {"user": None, "client-id": "bad"},
        CONNECTION_RATE,
        "key-not-allowed",
    ),
    "a user's for an address": ({"ip": "192.0.2.1"}, P, "key-not-allowed"),
    "a user's for the default address": ({"ip": None}, P, "key-not-allowed"),
}


def test_a_key_that_the_entity_cannot_carry_is_refused(
    post: Post, subtests: pytest.Subtests
) -> None:
    for name, (entity, key, code) in KEYS.items():
        for change in [{"value": 1024}, {"remove": True}]:
            with subtests.test(name=name, change=change):
                problem = assert_refused(
                    post(single(entity, [{"key": key, **change}])), 422, {(KEY, code)}
                )
                assert len(problem["detail"]) < 1000
                assert problem["kafka_error"] == (KAFKA if "value" in change else None)


DUPLICATES: dict[str, list[dict[str, Any]]] = {
    "as written": [{"user": "bad"}, {"user": "bad"}],
    "in another order": [{"user": "bad", "client-id": "c"}, {"client-id": "c", "user": "bad"}],
    "defaults": [{"user": None}, {"user": None}],
    "three": [{"user": "bad"}, {"user": "good"}, {"user": "bad"}, {"user": "bad"}],
    "two spellings of one address": [{"ip": "::1"}, {"ip": "0:0:0:0:0:0:0:1"}],
    "an IPv4 address in both clothes": [{"ip": "192.0.2.1"}, {"ip": "::ffff:192.0.2.1"}],
}


def test_the_same_entity_twice_refuses_the_whole_request(
    post: Post, subtests: pytest.Subtests
) -> None:
    for name, entities in DUPLICATES.items():
        for all_or_nothing in [True, False]:
            with subtests.test(name=name, all_or_nothing=all_or_nothing):
                key = CONNECTION_RATE if "ip" in entities[0] else P
                ops = [{"key": key, "value": 10}]
                alterations = [{"entity": entity, "ops": ops} for entity in entities]
                answer = post({"alterations": alterations, "all_or_nothing": all_or_nothing})
                later = {1} if len(entities) == 2 else {2, 3}
                violations = {
                    (f"/alterations/{index}/entity", "duplicate-entity") for index in later
                }
                assert_refused(answer, 422, violations)
