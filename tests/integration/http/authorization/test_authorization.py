"""The service, over HTTP, allows what the broker allows under the same name."""

from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.authorization import (
    BOTH,
    CASES,
    ELSEWHERE,
    HERE,
    NEITHER,
    NOBODY,
    DecisionOf,
    broker_verdict,
    logged_in,
    service_verdict,
    validate_over_http,
)
from tests.testkit.kafka import PLAIN_USERS
from tests.testkit.raw_quotas import RawQuotas, RequestLog, setting
from tests.testkit.service import RunningService, new_address, running_service


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


def test_a_service_whose_account_may_not_read_the_acls_is_not_ready(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path
) -> None:
    account = {
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_username": "nobody",
        "kafka_sasl_password": PLAIN_USERS["nobody"],
    }
    brokers, database = broker.sasl_bootstrap_servers, postgres.service_url
    with running_service(tmp_path, brokers, database, **account) as service:
        refused = service.api("bob").get("/quotas")
        assert (refused.status_code, refused.json()["code"]) == (503, "acl-source-unreachable")
        for path in ("/readyz", "/readyz?for=write"):
            answer = service.api("bob").get(path)
            assert answer.status_code == 503
            assert answer.json()["problems"]["acls"] == refused.json()["detail"]
    output = refused.json()["detail"]
    assert output.count("The ACLs of the cluster could not be read") == 1
    assert "ALLOW DESCRIBE on Cluster kafka-cluster" in output
