"""The service, over HTTP, allows what the broker allows under the same name, as long as it does."""

import time
from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow, take_back
from tests.testkit.authorization import (
    BOTH,
    CASES,
    ELSEWHERE,
    HERE,
    NEITHER,
    NOBODY,
    OLDEST_ACLS_S,
    DecisionOf,
    broker_verdict,
    decisions_of,
    describe_over_http,
    logged_in,
    replicas,
    revoke,
    service_for,
    service_verdict,
    validate_over_http,
)
from tests.testkit.http import problem_of
from tests.testkit.kafka import PLAIN_USERS
from tests.testkit.patience import DEADLINE_S, wait_until
from tests.testkit.raw_quotas import RawQuotas, RequestLog, setting
from tests.testkit.service import RunningService, acl, new_address, running_service
from tests.testkit.sizes import size


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


ACCOUNT = "service-account"


def test_a_right_that_was_taken_away_ends_on_every_replica(
    kafka: LocalKafka, service: RunningService, decision_of: DecisionOf, tmp_path: Path
) -> None:
    with replicas(service, tmp_path) as both:
        for _ in range(size(1, 20)):
            revoke(kafka, both, "revoked-now", decision_of)
            answers = [validate_over_http(item, "revoked-now").status_code for item in both]
            assert answers == [403, 403]


def test_nobody_alters_on_acls_that_are_too_old(
    kafka: LocalKafka, postgres: LocalPostgres, tmp_path: Path
) -> None:
    rights = [acl(ACCOUNT, item) for item in ("ALTER_CONFIGS", "DESCRIBE_CONFIGS")]
    may_read_acls = acl(ACCOUNT, "DESCRIBE")
    allow(kafka, *rights, may_read_acls)
    settings = {
        "kafka_bootstrap_servers": kafka.sasl_bootstrap_servers,
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_username": ACCOUNT,
        "kafka_sasl_password": "secret",
    }
    folder = tmp_path / "without_acls"
    folder.mkdir()
    with service_for(kafka, postgres, folder, ("alter-configs",), **settings) as running:
        assert validate_over_http(running, "alter-configs").status_code == 200
        take_back(kafka, may_read_acls)
        decision_of, passed = decisions_of(running, postgres), 0
        deadline = time.monotonic() + DEADLINE_S
        while (answer := validate_over_http(running, "alter-configs")).status_code == 200:
            assert time.monotonic() < deadline, "old ACLs are still believed"
            assert decision_of(answer)["acl_age_s"] <= OLDEST_ACLS_S
            passed += 1
            time.sleep(0.05)
        assert passed > 0, "the cached ACLs were used for a while"
        problem = problem_of(answer, 503)
        assert (problem["code"], problem["sent_to_cluster"]) == ("acl-source-unreachable", "no")
        assert describe_over_http(running, "alter-configs").status_code == 200
        allow(kafka, may_read_acls)
        wait_until(lambda: validate_over_http(running, "alter-configs").status_code == 200)
    take_back(kafka, *rights, may_read_acls)
