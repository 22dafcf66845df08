"""The service, over HTTP, allows what the broker allows under the same name."""

import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.accounts import take_back
from tests.testkit.authorization import (
    BOTH,
    CASES,
    ELSEWHERE,
    HERE,
    NEITHER,
    NOBODY,
    DecisionOf,
    broker_verdict,
    describe_over_http,
    logged_in,
    service_verdict,
    validate_over_http,
)
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, RequestLog, setting
from tests.testkit.service import RunningService, acl, new_address


def test_a_principal_may_what_the_broker_lets_it(
    kafka: LocalKafka, service: RunningService, subtests: pytest.Subtests
) -> None:
    for user in CASES:
        with subtests.test(user=user):
            expected = CASES[user][1]
            assert broker_verdict(kafka, user) == expected
            assert service_verdict(service, user) == expected


def test_the_address_that_counts_is_the_callers(
    kafka: LocalKafka, service: RunningService, subtests: pytest.Subtests
) -> None:
    for user, verdict in {
        "from-here": NEITHER,
        "from-elsewhere": BOTH,
        "not-from-here": BOTH,
        "not-from-elsewhere": NEITHER,
        "range-of-addresses": NEITHER,
    }.items():
        with subtests.test(user=user):
            assert broker_verdict(kafka, user, ELSEWHERE) == verdict
            assert service_verdict(service, user, ELSEWHERE) == verdict


def test_a_right_that_is_taken_away_ends_without_a_restart(
    kafka: LocalKafka, service: RunningService
) -> None:
    assert service_verdict(service, "revoked") == BOTH
    take_back(kafka, acl("revoked", "ALTER_CONFIGS"))
    wait_until(lambda: service_verdict(service, "revoked") == NEITHER)
    assert service_verdict(service, "alter-configs") == BOTH


def test_a_refusal_says_what_is_missing_and_that_nothing_was_sent(service: RunningService) -> None:
    refused = {
        "DESCRIBE_CONFIGS": describe_over_http(service, "nothing"),
        "ALTER_CONFIGS": validate_over_http(service, "nothing"),
    }
    for operation, answer in refused.items():
        problem = answer.json()
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert problem["code"] == "cluster-authorization-failed"
        assert problem["kafka_error"] == "CLUSTER_AUTHORIZATION_FAILED"
        assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
        assert f"User:nothing at {HERE} lacks {operation}" in problem["detail"]


def test_nothing_of_a_denied_alteration_reaches_the_broker(
    kafka: LocalKafka, service: RunningService
) -> None:
    with RawQuotas(kafka.bootstrap_servers) as raw:
        log = RequestLog(kafka.request_log_path, raw)
        with log.nothing_arrives():
            assert validate_over_http(service, "nothing").status_code == 403
            assert validate_over_http(service, "describe-configs").status_code == 403
        with log.alterations() as arrived:
            assert validate_over_http(service, "alter-configs").status_code == 200
        assert len(arrived) == 1


def test_a_denial_is_answered_even_where_the_broker_hides_it(
    kafka: LocalKafka, service: RunningService
) -> None:
    change = setting({"user": NOBODY}, {"producer_byte_rate": 1024})
    with logged_in(kafka, "nothing") as judge:
        assert judge.alter() == []
        assert [verdict.code for verdict in judge.alter(change, change)] == [31, 31]
    op = {"key": "producer_byte_rate", "value": 1024}
    twice = [{"entity": {"user": NOBODY}, "ops": [op]}] * 2
    for alterations in ([], twice):
        body = {"alterations": alterations}
        answer = service.api("nothing").post("/quotas/alterations", json=body)
        assert answer.status_code == 403
        assert answer.json()["kafka_error"] == "CLUSTER_AUTHORIZATION_FAILED"


DECISIONS = {
    "alter-configs": (True, "allow-acl", ["User:alter-configs", "ALTER_CONFIGS", "ALLOW"]),
    "from-here": (True, "allow-acl", [f"host={HERE}"]),
    "super": (True, "super-user", []),
    "all-but-alter": (False, "deny-acl", ["operation=ALTER_CONFIGS", "permissionType=DENY"]),
    "all-and-none": (False, "deny-acl", ["operation=ALL", "permissionType=DENY"]),
    "prefixed": (True, "allow-acl", ["patternType=PREFIXED"]),
    "nothing": (False, "no-matching-acl", []),
}


@pytest.mark.parametrize("user", DECISIONS)
def test_the_audit_log_keeps_the_rule_that_decided(
    service: RunningService, decision_of: DecisionOf, user: str
) -> None:
    allowed, rule, words = DECISIONS[user]
    address = HERE if allowed else new_address()
    decision = decision_of(validate_over_http(service, user, address))
    assert (decision["allowed"], decision["rule"]) == (allowed, rule)
    assert decision["operation"] == "ALTER_CONFIGS"
    assert (decision["acl"] is None) == (words == [])
    assert [word for word in words if word not in decision["acl"]] == []
    assert 0 <= decision["acl_age_s"] <= 10


def test_a_denied_alteration_is_an_audit_row_with_what_was_asked_for(
    service: RunningService,
) -> None:
    here = new_address()
    denied = validate_over_http(service, "all-but-alter", here)
    rows = service.api("all-but-alter").get("/audit", params={"action": "denied"}).json()["rows"]
    (row,) = [row for row in rows if row["request_id"] == denied.headers["X-Request-Id"]]
    assert row["denied"] == {"entities": 1, "first": [{"user": NOBODY}], "attempts": 1}
    assert (row["outcome"], row["client_address"]) == ("refused", here)
    assert row["error"]["kafka_error"] == "CLUSTER_AUTHORIZATION_FAILED"
