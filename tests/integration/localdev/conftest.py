"""One broker with everything that a local one can have, and one Postgres, for this folder."""

from collections.abc import Iterator

import pytest

from app.localdev.kafka import LocalKafka, LocalTls
from app.localdev.postgres import LocalPostgres
from tests.testkit.class_archive import shared_classes


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, tls: LocalTls) -> Iterator[LocalKafka]:
    """A node with every listener, a request log and metrics."""
    with LocalKafka(
        tmp_path_factory.mktemp("local-kafka"),
        plain_users={"admin": "admin-secret", "alice": 'al"i\\ce', "bob": "bob-secret"},
        scram_users={"carol": "carol-secret"},
        request_log=True,
        tls=tls,
        metrics=True,
        java_options=shared_classes(),
    ) as running:
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """A server as ``dev`` starts it."""
    with LocalPostgres(tmp_path_factory.mktemp("local-postgres")) as running:
        yield running
