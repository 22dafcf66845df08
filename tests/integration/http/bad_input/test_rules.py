"""Requests that can be read and ask for what this service does not do."""

from typing import Any

import pytest

from tests.integration.http.bad_input.conftest import Post
from tests.testkit.http import Violations, assert_refused

P, C = "producer_byte_rate", "consumer_byte_rate"
OPS = "/alterations/0/ops"


def with_ops(*ops: dict[str, Any]) -> dict[str, Any]:
    return {"alterations": [{"entity": {"user": "bad"}, "ops": list(ops)}]}


OPERATIONS: dict[str, tuple[list[dict[str, Any]], Violations, str | None]] = {
    "none": ([], {(OPS, "no-ops")}, None),
    "neither value nor removal": ([{"key": P}], {(f"{OPS}/0", "value-or-remove-missing")}, None),
    "remove: false without a value": (
        [{"key": P, "remove": False}],
        {(f"{OPS}/0", "value-or-remove-missing")},
        None,
    ),
    "value and removal": (
        [{"key": P, "value": 1, "remove": True}],
        {(f"{OPS}/0", "value-with-remove")},
        None,
    ),
    "a key twice": (
        [{"key": P, "value": 1}, {"key": C, "value": 1}, {"key": P, "value": 1}],
        {(f"{OPS}/0/key", "duplicate-key"), (f"{OPS}/2/key", "duplicate-key")},
        "INVALID_REQUEST",
    ),
    "a key set and removed": (
        [{"key": P, "value": 1}, {"key": P, "remove": True}],
        {(f"{OPS}/0/key", "duplicate-key"), (f"{OPS}/1/key", "duplicate-key")},
        "INVALID_REQUEST",
    ),
    "a misspelt key beside a good one": (
        [{"key": P, "value": 1}, {"key": "consumer_byte_rte", "value": 1}],
        {(f"{OPS}/1/key", "unknown-key")},
        "INVALID_REQUEST",
    ),
}


def test_operations_that_break_a_rule_are_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (ops, violations, kafka_error) in OPERATIONS.items():
        for validate_only in [False, True]:
            with subtests.test(name=name, validate_only=validate_only):
                answer = post({**with_ops(*ops), "validate_only": validate_only})
                assert assert_refused(answer, 422, violations)["kafka_error"] == kafka_error


def test_a_request_without_alterations_is_no_success(post: Post, subtests: pytest.Subtests) -> None:
    for body in [{}, {"alterations": []}, {"alterations": [], "reason": "x"}]:
        for all_or_nothing in [True, False]:
            with subtests.test(body=body, all_or_nothing=all_or_nothing):
                answer = post({**body, "all_or_nothing": all_or_nothing})
                problem = assert_refused(answer, 422, {("/alterations", "no-alterations")})
                assert problem["code"] == "no-alterations"


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown wait": ({"wait": "forever"}, "unknown-word"),
    "wait in another case": ({"wait": "Readable"}, "unknown-word"),
    "an empty wait": ({"wait": ""}, "unknown-word"),
    "a negative wait_ms": ({"wait_ms": -1}, "out-of-range"),
    "over a minute": ({"wait_ms": 60001}, "out-of-range"),
    "half a millisecond": ({"wait_ms": 0.5}, "out-of-range"),
    "a wait_ms beyond every integer": ({"wait_ms": 10**30}, "out-of-range"),
    "a long reason": ({"reason": "x" * 1001}, "reason-too-long"),
    "NUL in a reason": ({"reason": "a\0b"}, "nul-in-reason"),
    "half a surrogate pair in a reason": ({"reason": "a\ud800"}, "lone-surrogate"),
}


def test_an_option_that_breaks_a_rule_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (options, code) in OPTIONS.items():
        with subtests.test(name=name):
            (field,) = options
            assert_refused(
                post({**with_ops({"key": P, "value": 1}), **options}), 422, {(f"/{field}", code)}
            )


def test_options_and_alterations_are_judged_together(post: Post) -> None:
    violations = {("/wait_ms", "out-of-range"), (f"{OPS}/0/value", "not-positive")}
    answer = post({**with_ops({"key": P, "value": 0}), "wait_ms": -1})
    assert_refused(answer, 422, violations)


def many(count: int, keys: list[str], name: str = "bad") -> dict[str, Any]:
    ops = [{"key": key, "value": 1024} for key in keys]
    entities = ({"user": f"{name}-{number}"} for number in range(count))
    return {"alterations": [{"entity": entity, "ops": ops} for entity in entities]}


def test_over_ten_thousand_changed_keys_are_refused(post: Post, subtests: pytest.Subtests) -> None:
    for body in [many(10_001, [P]), many(5_001, [P, C])]:
        with subtests.test(body=body):
            problem = assert_refused(post(body), 422, {("/alterations", "too-many-changes")})
            assert (problem["code"], problem["kafka_error"]) == (
                "too-many-changes",
                "POLICY_VIOLATION",
            )


def test_over_two_mebibytes_of_records_are_refused(post: Post) -> None:
    body = many(4_000, [P], "x" * 500)
    problem = assert_refused(post(body), 422, {("/alterations", "too-large")})
    assert problem["code"] == "too-large"


def test_more_violations_than_fit_are_counted(post: Post) -> None:
    problem = post(many(5_000, ["bad-key"])).json()
    assert len(problem["errors"]) == 1_001
    assert problem["errors"][-1]["code"] == "more"
    assert problem["errors"][0]["code"] == "unknown-key"
    assert problem["status"] == 422


IDENTITIES: dict[str, tuple[Any, int, Violations]] = {
    "none named": ({}, 400, {("/identities", "missing-field")}),
    "an object": ({"identities": {}}, 400, {("/identities", "wrong-type")}),
    "a text": ({"identities": ["alice"]}, 400, {("/identities/0", "wrong-type")}),
    "a null user": ({"identities": [{"user": None}]}, 400, {("/identities/0/user", "wrong-type")}),
    "an unknown member": (
        {"identities": [{"user": "a", "client_id": "b"}]},
        400,
        {("/identities/0/client_id", "unknown-field")},
    ),
    "nobody": ({"identities": [{}]}, 422, {("/identities/0/user", "identity-without-user")}),
    "a client-id alone": (
        {"identities": [{"client-id": "b"}]},
        422,
        {("/identities/0/user", "identity-without-user")},
    ),
    "an address and a user": (
        {"identities": [{"user": "a"}, {"ip": "192.0.2.1", "user": "a"}]},
        422,
        {("/identities/1", "invalid-identity-combination")},
    ),
    "a host name": (
        {"identities": [{"ip": "host"}]},
        422,
        {("/identities/0/ip", "not-an-ip-address")},
    ),
    "half a surrogate pair": (
        {"identities": [{"user": "\ud800", "client-id": "\udfff"}]},
        422,
        {("/identities/0/user", "lone-surrogate"), ("/identities/0/client-id", "lone-surrogate")},
    ),
    "10,001": (
        {"identities": [{"user": "a"}] * 10_001},
        422,
        {("/identities", "too-many-identities")},
    ),
    "a negative age": (
        {"identities": [], "max_age_ms": -1},
        422,
        {("/max_age_ms", "out-of-range")},
    ),
    "an expectation of another type in a what-if": (
        {"identities": [], "alterations": [{"entity": {}, "ops": [], "expected": []}]},
        400,
        {("/alterations/0/expected", "wrong-type")},
    ),
    "a what-if that breaks a rule": (
        {"identities": [{"user": "a"}], **with_ops({"key": P, "value": 1.5})},
        422,
        {(f"{OPS}/0/value", "fraction")},
    ),
}


def test_identities_that_cannot_be_resolved_are_refused(
    post: Post, subtests: pytest.Subtests
) -> None:
    for name, (body, status, violations) in IDENTITIES.items():
        with subtests.test(name=name):
            assert_refused(post(body, path="/quotas/resolve"), status, violations)
