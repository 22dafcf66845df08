"""A real Postgres for the whole run, a fresh migrated database for each test, and what to log."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Values
from app.domain.callers import Caller
from app.domain.entities import ClientQuotaEntity
from app.localdev.postgres import LocalPostgres
from app.postgres.migration import migrate
from app.service.audit_records import AuditEntity, AuditRequest
from app.service.identifiers import new_alteration_id
from app.service.journal_ports import AuditJournal, Claim, KeyClaim

SETTINGS = {"fsync": "off", "track_commit_timestamp": "on"}
"""It does not wait for the disk: the tests kill processes, not the machine. It knows when it has
committed what."""

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


@pytest.fixture
def empty_database(postgres: LocalPostgres) -> AuditDatabase:
    """A database without any table."""
    name = f"audit_{next(_NUMBERS)}"
    owner_url, service_url = postgres.create_database(name)
    superuser_url = postgres.superuser_url.removesuffix("/postgres") + f"/{name}"
    return AuditDatabase(name, owner_url, service_url, superuser_url)


@pytest.fixture
def audit_database(empty_database: AuditDatabase) -> AuditDatabase:
    """A database with an empty audit log."""
    migrate(empty_database.owner_url, empty_database.service_url)
    return empty_database


def audit_entity(
    ordinal: int,
    names: Mapping[str, str | None],
    before: Values | None = None,
    ops: tuple[Op, ...] = (Op("producer_byte_rate", Decimal(1024)),),
) -> AuditEntity:
    """Return an entity of a request; unless told otherwise it sets ``producer_byte_rate``."""
    return AuditEntity(
        ordinal, ClientQuotaAlteration(ClientQuotaEntity.of(names), ops), before or {}
    )


def audit_request(
    *entities: AuditEntity, caller: Caller = ALICE, action: str = "alter"
) -> AuditRequest:
    """Return a request to log, under a new id."""
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


def claim_of(
    request: AuditRequest,
    owner: str = "owner",
    key: KeyClaim | None = None,
    supersedes: str | None = None,
) -> Claim:
    """Return a claim of all entities of the request."""
    entities = tuple(one.alteration.entity for one in request.entities)
    return Claim(owner, entities, key, supersedes)


async def intend(journal: AuditJournal, request: AuditRequest) -> datetime:
    """Record an intent with the slots of its entities; return the time that the log gave it."""
    return (await journal.record_intent(request, claim_of(request))).at
