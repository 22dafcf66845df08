"""The judges, and a service of which each principal stands for one set of ACLs."""

from collections.abc import Iterator

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow
from tests.testkit.authorization import (
    ACLS,
    CASES,
    SUPER_USERS,
    DecisionOf,
    decisions_of,
    judging_broker,
    service_for,
)
from tests.testkit.service import RunningService

USERS = (*CASES, "revoked-now", "auditor")


@pytest.fixture(scope="session")
def kafka(broker: LocalKafka) -> LocalKafka:
    """The broker of the run as the judge."""
    allow(broker, *ACLS)
    return broker


@pytest.fixture(scope="session")
def open_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that allows everything until there is an ACL."""
    folder = tmp_path_factory.mktemp("open-broker")
    users = ("alice", "bob", "ALICE", "super")
    super_users = f"User:ANONYMOUS;{SUPER_USERS}"
    with judging_broker(
        folder, users, super_users, allow_everyone_if_no_acl_found="true"
    ) as broker:
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
