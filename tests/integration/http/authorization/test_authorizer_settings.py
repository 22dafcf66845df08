"""Clusters that let everybody in: by a setting of their authorizer, or for want of one."""

from collections.abc import Iterator

import pytest

from app.kafka.acls import cluster_acls
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow, take_back
from tests.testkit.authorization import (
    BOTH,
    NEITHER,
    DecisionOf,
    broker_verdict,
    decisions_of,
    describe_over_http,
    judging_broker,
    service_for,
    service_verdict,
    validate_over_http,
)
from tests.testkit.kafka import brokers_of
from tests.testkit.service import RunningService, acl

USERS = ("alice", "bob", "auditor")

pytestmark = pytest.mark.long  # two brokers and five services more


@pytest.fixture(scope="module")
def bare_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker without an authorizer."""
    folder = tmp_path_factory.mktemp("bare-broker")
    with judging_broker(folder, USERS, authorizer_class_name="") as kafka:
        yield kafka


def test_without_any_acl_everybody_may_where_the_broker_says_so(
    open_kafka: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("open")
    setting = {"allow_everyone_if_no_acl_found": "true"}
    with service_for(open_kafka, postgres, folder, USERS, **setting) as service:
        assert broker_verdict(open_kafka, "alice") == BOTH
        assert service_verdict(service, "alice") == BOTH
        decision = decisions_of(service, postgres)(validate_over_http(service, "alice"))
        assert (decision["allowed"], decision["rule"]) == (True, "no-acl-found")


def test_with_an_acl_of_another_principal_nobody_else_may(
    open_kafka: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    acl_of_bob = acl("bob", "DESCRIBE")
    allow(open_kafka, acl_of_bob)
    folder = tmp_path_factory.mktemp("partly-open")
    setting = {"allow_everyone_if_no_acl_found": "true"}
    with service_for(open_kafka, postgres, folder, USERS, **setting) as service:
        assert broker_verdict(open_kafka, "alice") == NEITHER
        assert service_verdict(service, "alice") == NEITHER
    take_back(open_kafka, acl_of_bob)


def test_without_the_setting_nobody_may_where_there_is_no_acl(
    open_kafka: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("closed")
    with service_for(open_kafka, postgres, folder, USERS) as service:
        assert service_verdict(service, "alice") == NEITHER


async def test_the_acls_of_a_cluster_without_an_authorizer_are_none(bare_kafka: LocalKafka) -> None:
    async with brokers_of(bare_kafka.bootstrap_servers) as brokers:
        snapshot = await cluster_acls(brokers)
    assert not snapshot.has_authorizer
    assert snapshot.bindings == ()


@pytest.fixture(scope="module")
def careful(
    bare_kafka: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("careful")
    super_users = "User:bob"
    with service_for(bare_kafka, postgres, folder, USERS, super_users=super_users) as service:
        yield service


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_cluster_without_an_authorizer_is_refused(
    bare_kafka: LocalKafka, careful: RunningService, decisions: DecisionOf, user: str
) -> None:
    assert broker_verdict(bare_kafka, user) == BOTH
    for answer in (describe_over_http(careful, user), validate_over_http(careful, user)):
        assert answer.status_code == 403
        problem = answer.json()
        assert (problem["code"], problem["kafka_error"]) == ("no-authorizer", "SECURITY_DISABLED")
        assert problem["sent_to_cluster"] == "no"
        assert "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER" in problem["detail"]
        assert decisions(answer)["rule"] == "no-authorizer"


@pytest.fixture
def decisions(careful: RunningService, postgres: LocalPostgres) -> DecisionOf:
    return decisions_of(careful, postgres)


def test_a_cluster_without_an_authorizer_is_served_where_that_is_wanted(
    bare_kafka: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("careless")
    setting = {"insecure_allow_without_authorizer": "true"}
    with service_for(bare_kafka, postgres, folder, USERS, **setting) as service:
        assert service_verdict(service, "alice") == BOTH
        decision = decisions_of(service, postgres)(validate_over_http(service, "alice"))
        assert decision["rule"] == "no-authorizer"
