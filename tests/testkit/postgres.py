"""A real Postgres for the whole run, a fresh migrated database for each test, and what to log."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import psycopg
import pytest
from psycopg import sql

from app.domain.alterations import Op, Values
from app.domain.entities import Caller, ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.postgres.migrate import migrate
from app.service.ports.alterations import Alteration, Change, Conclusion, IdempotencyKey
from app.service.ports.audit_log import (
    AuditJournal,
)
from app.service.ports.plans import PlanApplication
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


def audit_change(
    ordinal: int,
    names: Mapping[str, str | None],
    before: Values | None = None,
    ops: tuple[Op, ...] = (Op("producer_byte_rate", Decimal(1024)),),
) -> Change:
    """Return the change of an entity; by default it sets ``producer_byte_rate``."""
    return Change(ClientQuotaEntity.of(names), ops, ordinal, before=before or {})


def audit_request(*changes: Change, caller: Caller = ALICE, action: str = "alter") -> Alteration:
    return Alteration(
        caller,
        "req-1",
        changes,
        action,
        validate_only=action == "validate",
        alteration_id=new_alteration_id(),
        cluster_id=CLUSTER,
        evidence={"rule": "acl", "acl_age_s": 0.25},
    )


def intent_of(
    request: Alteration,
    owner: str = "owner",
    key: IdempotencyKey | None = None,
    supersedes: str | None = None,
    rests_on: Sequence[str] = (),
) -> Alteration:
    """Return an intent that locks the entities of the request, and the users that it rests on."""
    intent = replace(request, key=key, supersedes=supersedes)
    if rests_on:
        beside = {ClientQuotaEntity.of({"user": user}): {} for user in rests_on}
        intent = replace(intent, plan=PlanApplication("plan", "owner", False, {}, beside))
    return intent.begun(owner, SEND_WITHIN_S, 0.0)


async def record_intent(journal: AuditJournal, intent: Alteration) -> Alteration:
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


async def intend(journal: AuditJournal, request: Alteration) -> None:
    await record_intent(journal, intent_of(request))
