"""Rights that end: on every replica, and for everybody where the ACLs cannot be had any more."""

import time
from pathlib import Path

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow, take_back
from tests.testkit.authorization import (
    DEADLINE_S,
    OLDEST_ACLS_S,
    DecisionOf,
    decisions_of,
    describe_over_http,
    replicas,
    revoke,
    service_for,
    validate_over_http,
)
from tests.testkit.http import problem_of
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService, acl
from tests.testkit.sizes import size

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
