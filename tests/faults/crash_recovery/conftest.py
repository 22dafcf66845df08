"""A database that records when it committed, and a cluster with scripted faults."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from app.localdev.postgres import LocalPostgres
from tests.faults.crash_recovery.run import Run
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.postgres import SETTINGS, AuditDatabase, database_of, migrated_database

SOCKET_PATIENCE_S, QUEUE_PATIENCE_S = 1.0, 2.0
"""A thirtieth of what real brokers have."""

_NUMBERS = count(1)


@pytest.fixture
def mortal_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """A server beside that of the run, to be killed."""
    with LocalPostgres(tmp_path_factory.mktemp("mortal-postgres"), settings=SETTINGS) as server:
        yield server


def empty_log(server: LocalPostgres) -> AuditDatabase:
    name = f"crash_recovery_{next(_NUMBERS)}"
    return database_of(server, name, migrated_database(server, name))


World = tuple[Run, FakeCluster]


class NewWorld(Protocol):
    """Makes a world on a server: with an audit log of its own, or with that of another world."""

    def __call__(self, postgres: LocalPostgres, log: AuditDatabase | None = None) -> World: ...


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[NewWorld]:
    """Makes worlds: replicas to be started, their audit log, and a fake broker.

    What that is sent is applied or gone within 3 s.
    """
    opening = partial(
        fake_cluster, socket_patience_s=SOCKET_PATIENCE_S, queue_patience_s=QUEUE_PATIENCE_S
    )
    with ExitStack() as stack:

        def make(postgres: LocalPostgres, log: AuditDatabase | None = None) -> World:
            cluster = stack.enter_context(in_a_thread(opening))
            folder = tmp_path / f"world-{next(_NUMBERS)}"
            folder.mkdir()
            run = Run(
                folder,
                cluster.bootstrap_servers,
                log or empty_log(postgres),
                lambda: cluster.apply_log,
            )
            return stack.enter_context(run), cluster

        yield make


@pytest.fixture
def world(new_world: NewWorld, postgres: LocalPostgres) -> World:
    return new_world(postgres)
