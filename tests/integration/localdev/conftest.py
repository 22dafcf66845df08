"""One broker and one Postgres as ``dev`` starts them, for this folder."""

from collections.abc import Iterator

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.class_archive import shared_classes

PASSWORD = 'al"i\\ce'
"""Both the broker's configuration and its login modules read these characters otherwise."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(
        tmp_path_factory.mktemp("local-kafka"),
        plain_users={"admin": "admin-secret", "alice": PASSWORD},
        request_log=True,
        java_options=shared_classes(),
    ) as running:
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    with LocalPostgres(tmp_path_factory.mktemp("local-postgres")) as running:
        yield running
