"""Services of these tests' own: what they stop, pause and confuse serves nobody else."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from app.domain.authorization import AclBinding
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow
from tests.testkit.class_archive import shared_classes
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.outages import small_disk
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import SETTINGS, migrated_database
from tests.testkit.service import RunningService, acl, running_service


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A real broker; alice may alter, bob describe.

    Its controller collects records for 25 ms, as in production: what is stopped here is then more
    often between the request and the record.
    """
    folder = tmp_path_factory.mktemp("fault-broker")
    classes = shared_classes()
    with LocalKafka(folder, request_log=True, heap="256m", java_options=classes) as broker:
        rights = acl("alice", "ALTER_CONFIGS"), acl("bob", "DESCRIBE_CONFIGS")
        allow(broker, *rights)
        yield broker


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    with LocalPostgres(tmp_path_factory.mktemp("fault-postgres"), settings=SETTINGS) as server:
        yield server


DISK_MB: Final = 256


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small disk, for a test to fill."""
    folder = tmp_path_factory.mktemp("disk")
    with small_disk(folder, DISK_MB):
        yield folder


@pytest.fixture(scope="module")
def disk_database(disk: Path) -> Iterator[LocalPostgres]:
    """A Postgres that has its data on that disk."""
    with LocalPostgres(disk / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def service(
    kafka: LocalKafka, database: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """The service on both; it gives up soon."""
    _, service_url = migrated_database(database, "real")
    folder = tmp_path_factory.mktemp("fault-service")
    with running_service(folder, kafka.bootstrap_servers, service_url, patience=PROMPT) as running:
        yield running


@pytest.fixture(scope="session")
def patient_service(
    service: RunningService, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A second service on the same broker and log, which does not."""
    folder, url = tmp_path_factory.mktemp("patient"), service.environ["QUOTAS_DATABASE_URL"]
    with running_service(folder, kafka.bootstrap_servers, url) as running:
        yield running


RIGHTS = {"User:alice": "ALTER_CONFIGS", "User:bob": "DESCRIBE_CONFIGS"}


@contextmanager
def fake_kafka_with_rights() -> Iterator[FakeCluster]:
    """Run a fake cluster on which alice may alter and bob describe."""
    with in_a_thread(fake_cluster) as cluster:
        cluster.acls = [
            AclBinding("kafka-cluster", "LITERAL", principal, "*", operation, "ALLOW")
            for principal, operation in RIGHTS.items()
        ]
        yield cluster


@pytest.fixture(scope="session")
def fake_kafka() -> Iterator[FakeCluster]:
    with fake_kafka_with_rights() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def scripted_url(database: LocalPostgres) -> str:
    _, service_url = migrated_database(database, "scripted")
    return service_url


@pytest.fixture(scope="session")
def scripted_service(
    fake_kafka: FakeCluster, scripted_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("scripted-service")
    with running_service(
        folder, fake_kafka.bootstrap_servers, scripted_url, patience=PROMPT
    ) as running:
        yield running


Serve = Callable[..., RunningService]


@pytest.fixture
def serve(fake_kafka: FakeCluster, scripted_url: str, tmp_path: Path) -> Iterator[Serve]:
    """Starts a service of the test's own on the fake cluster, with options of ``new_service``."""
    servers = fake_kafka.bootstrap_servers
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            running_service(tmp_path, servers, scripted_url, **options)
        )
