"""One broker and one service, on which each principal stands for one set of ACLs."""

from collections.abc import Iterator

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.authorization.cases import ACLS, CASES, SUPER_USERS
from tests.testkit.authorization import (
    DecisionOf,
    decisions_of,
    judging_broker,
    service_for,
)
from tests.testkit.service import RunningService, acl, set_cluster_acls

USERS = (*CASES, "revoked", "revoked-now", "service-account", "auditor")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """The judge; ``revoked`` has a right that only a test takes away."""
    folder = tmp_path_factory.mktemp("judge")
    with judging_broker(folder, USERS, f"User:ANONYMOUS;{SUPER_USERS}") as broker:
        set_cluster_acls(broker.bootstrap_servers, *ACLS, acl("revoked", "ALTER_CONFIGS"))
        yield broker


@pytest.fixture(scope="session")
def service(
    kafka: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """The judged."""
    folder = tmp_path_factory.mktemp("authorization")
    with service_for(kafka, postgres, folder, USERS, super_users=SUPER_USERS) as running:
        yield running


@pytest.fixture
def decision_of(service: RunningService, postgres: LocalPostgres) -> DecisionOf:
    """The decisions that the judged keeps."""
    return decisions_of(service, postgres)
