"""A real Postgres for the whole run, a fresh migrated database for each test, and what to log."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import psycopg
import pytest
from psycopg import sql

from app.domain.alterations import ClientQuotaAlteration, Op, Values
from app.domain.entities import Caller, ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.postgres.migrate import migrate
from app.service.alterations.write_ahead import locks_of
from app.service.ports.audit_log import (
    AuditEntity,
    AuditJournal,
    AuditRequest,
    Conclusion,
    Intent,
    KeyClaim,
)
from app.service.runtime.clock import new_alteration_id

SETTINGS = {"fsync": "off", "track_commit_timestamp": "on", "scram_iterations": "1"}
"""It does not wait for the disk: the tests kill processes, not the machine. It knows when it has
committed what. To prove the password of a role costs a client next to nothing."""

SEND_WITHIN_S = 4.0
"""How long after its transaction was begun an intent may be handed over."""

_NUMBERS = itertools.count(1)

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
"""The cluster of what is logged, unless a test says otherwise."""

ALICE = Caller("User:alice", "192.0.2.7", "bearer")

HOSTILE_NAMES = (
    "<default>",
    "a\x00b",
    "two\nlines",
    "tab\tand \\ back",
    "'; drop table audit_event; --",
    '"quoted"',
    "x" * 500,
    "é" * 250,
    "😀%_*",
    "\ud800 alone",
    " ",
    "",
)


@dataclass(frozen=True)
class AuditDatabase:
    """A database of the test's own, by the URLs of three roles."""

    name: str
    owner_url: str
    service_url: str
    superuser_url: str


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """One server for the run; a test that stops or pauses it brings it back."""
    with LocalPostgres(tmp_path_factory.mktemp("postgres"), settings=SETTINGS) as server:
        yield server


_TEMPLATE: Final = "migrated"
_servers_with_template: set[str] = set()


def migrated_database(server: LocalPostgres, name: str) -> tuple[str, str]:
    """Create a database with an empty audit log; return its owner's and service URL.

    It is a copy: a server migrates once.
    """
    if server.superuser_url not in _servers_with_template:
        migrate(*server.create_database(_TEMPLATE))
        _servers_with_template.add(server.superuser_url)
    return server.create_database(name, _TEMPLATE)


def database_of(server: LocalPostgres, name: str, urls: tuple[str, str]) -> AuditDatabase:
    """Return a database of the server by its name and the URLs of its owner and the service."""
    superuser_url = server.superuser_url.removesuffix("/postgres") + f"/{name}"
    return AuditDatabase(name, *urls, superuser_url)


@pytest.fixture
def empty_database(postgres: LocalPostgres) -> AuditDatabase:
    name = f"empty_{next(_NUMBERS)}"
    return database_of(postgres, name, postgres.create_database(name))


@pytest.fixture
def audit_database(postgres: LocalPostgres) -> Iterator[AuditDatabase]:
    """A database with an empty audit log; it goes with its test, before the disk has written it."""
    name = f"audit_{next(_NUMBERS)}"
    yield database_of(postgres, name, migrated_database(postgres, name))
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def audit_entity(
    ordinal: int,
    names: Mapping[str, str | None],
    before: Values | None = None,
    ops: tuple[Op, ...] = (Op("producer_byte_rate", Decimal(1024)),),
) -> AuditEntity:
    """Return an entity of a request; by default it sets ``producer_byte_rate``."""
    return AuditEntity(
        ordinal, ClientQuotaAlteration(ClientQuotaEntity.of(names), ops), before or {}
    )


def audit_request(
    *entities: AuditEntity, caller: Caller = ALICE, action: str = "alter"
) -> AuditRequest:
    return AuditRequest(
        alteration_id=new_alteration_id(),
        cluster_id=CLUSTER,
        caller=caller,
        action=action,
        request_id="req-1",
        entities=entities,
        options={"wait": "readable", "wait_ms": 5000},
        decision={"rule": "acl", "acl_age_s": 0.25},
    )


def intent_of(
    request: AuditRequest,
    owner: str = "owner",
    key: KeyClaim | None = None,
    supersedes: str | None = None,
    rests_on: Sequence[str] = (),
) -> Intent:
    """Return an intent that locks the entities of the request, and the users that it rests on."""
    locks = locks_of(request, (ClientQuotaEntity.of({"user": user}) for user in rests_on))
    return Intent(request, owner, key, supersedes, locks=locks, send_within_s=SEND_WITHIN_S)


async def record_intent(journal: AuditJournal, intent: Intent) -> Intent:
    """Record one intent; return it, or raise why not."""
    (error,) = await journal.record_intents([intent])
    if error is not None:
        raise error
    return intent


async def record_conclusion(journal: AuditJournal, conclusion: Conclusion) -> None:
    """Record one conclusion, or raise what is wrong with it."""
    (error,) = await journal.record_conclusions([conclusion])
    if error is not None:
        raise error


async def intend(journal: AuditJournal, request: AuditRequest) -> None:
    await record_intent(journal, intent_of(request))
