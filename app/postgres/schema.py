"""The tables that queries name, what the service needs of this database and server, and its upkeep.

Upkeep makes partitions for the months to come, and removes what has expired.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import TableClause, column, table

from app.postgres.locks import REMOVE_EXPIRED_KEYS
from app.postgres.plans import REMOVE_EXPIRED_PLANS
from app.postgres.pool import Database, Lease, Row
from app.service.runtime.clock import DATABASE_CLOCK, MOST_APART_S, boot_time

logger = logging.getLogger(__name__)


def _table(name: str, columns: str) -> TableClause:
    return table(name, *map(column, columns.split()))


audit_event: Final = _table(
    "audit_event",
    """
    received_at alteration_id seq event_type at occurred_at cluster_id principal action
    documents_hash rejected payload leaf_hash log_position
    """,
)
"""One row for each event of a request.

`seq` 0 is what was asked for; then come the outcome, what recovery found, what superseded entities,
and that some were applied late after all. `at` is the time of the first event on every
row. What names the request stands on that alone. `payload` is the record of the request,
`rejected` what became of entities that our own rules refused, `documents_hash` of this and of the
documents of `audit_entity`; `leaf_hash` seals all of it, and the times. `log_position` is its
number in the log, drawn under the locks of its entities: see ``event_log``.
"""

audit_entity: Final = _table(
    "audit_entity",
    """
    received_at alteration_id ordinal seq at cluster_id user_kind user_name client_id_kind
    client_id_name ip_kind ip_name other_types verdict document
    """,
)
"""One row for each entity of an event: what the event says of it, and what to find it by.

Those of `seq` 0 are the rows of ``GET /audit``; the cluster and the names stand on them alone.
"""

LOG_TABLES: Final = ("audit_event", "audit_entity")
"""What the service may read and add to, and nothing else."""

LOG_VIEWS: Final = ("audit_log", "audit_entity_event", "held_entity")
"""What the service may read: the log, and the entities that are locked."""

LOG_SEQUENCE: Final = "audit_event_log_position"
"""What the service may draw numbers from: adding an event draws one."""

ANALYTICS_TABLES: Final = (
    "utilization_daily",
    "utilization_hist",
    "throttle_incident",
    "bucket_hour",
    "dim_bucket",
    "recommendation",
    "stale_quota",
    "uncovered_client",
    "broker_commit",
    "drift_finding",
    "whatif_run",
    "whatif_entity",
    "whatif_timeline",
    "pipeline_run",
)
"""What the pipeline publishes, and its runs."""

WORKING_TABLES: Final = (
    "quota_entity",
    "open_alteration",
    "idempotency",
    "worker",
    "drift_baseline",
    "quota_plan",
    "quota_owner",
    "temporary_value",
    "events_topic",
    *ANALYTICS_TABLES,
)
"""What the service may change. Their rows come and go; what they lead to is in the log."""

ENSURE_PARTITIONS: Final = "select ensure_audit_partitions(1, 3)"
"""Makes what is missing from the month before to three months ahead; returns how many.

The function belongs to the owner of the log; the service may call it and do nothing else with
tables.
"""

MONTHS_AHEAD: Final = """
    select coalesce(min(step) filter (where to_regclass(to_char(
      (now() at time zone 'UTC') + make_interval(months => step), '"audit_event_y"YYYY"m"MM'
    )) is null or to_regclass(to_char(
      (now() at time zone 'UTC') + make_interval(months => step), '"audit_entity_y"YYYY"m"MM'
    )) is null), 25) - 1
    from generate_series(0, 24) as step
    """
"""How many months after the present one have a partition, without a gap; -1 where it has none."""

_FACTS: Final = """
    select
      current_setting('fsync') as fsync,
      current_setting('full_page_writes') as full_page_writes,
      current_setting('synchronous_commit') as synchronous_commit,
      extract(epoch from clock_timestamp())::float8 as clock_s,
      coalesce((select bool_or(relowner = current_user::regrole) from pg_class
        where oid in (to_regclass('audit_event'), to_regclass('audit_entity'))), false)
        as owns_the_log,
      (select rolsuper from pg_roles where rolname = current_user) as is_superuser,
      current_user as role
    """

_DURABLE: Final = ("fsync", "full_page_writes", "synchronous_commit")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What was found.

    Attributes:
        off: Those of ``fsync``, ``full_page_writes`` and ``synchronous_commit`` that are off: a
            crash may then lose rows that were acknowledged, or the whole log.
        clock_ahead_s: How far the server's clock is ahead of this machine's, in seconds, at least:
            what the question itself took is not counted.
        role: Of the service.
        owns_the_log: Whether the role could change the log by changing its table.
        is_superuser: Whether nothing is forbidden to the role.
    """

    off: tuple[str, ...]
    clock_ahead_s: float
    role: str
    owns_the_log: bool
    is_superuser: bool


async def server_facts(database: Database) -> ServerFacts:
    """Ask the server, and take over its time.

    Raises:
        NotSentError: It does not answer.
    """
    return await database.recovering.run(_read_facts)


async def clock_problem(database: Database) -> str | None:
    """Read Postgres's clock; return what is wrong with the difference from this machine's, or null.

    Raises:
        NotSentError: It does not answer.
    """
    return clocks_apart(await server_facts(database))


def clocks_apart(facts: ServerFacts) -> str | None:
    """Return a sentence where the clocks differ by more than ``MOST_APART_S``, or null."""
    if abs(facts.clock_ahead_s) <= MOST_APART_S:
        return None
    return (
        f"The clock of Postgres differs by {facts.clock_ahead_s:+.1f} s from this machine's; at "
        f"most {MOST_APART_S:g} s are allowed, tokens and deadlines rest on both."
    )


async def _read_facts(lease: Lease) -> ServerFacts:
    before, booted_before = time.time(), boot_time()
    (row,) = await lease.rows(_FACTS)
    after, booted_after = time.time(), boot_time()
    DATABASE_CLOCK.set(float(row.clock_s), (booted_before + booted_after) / 2)
    return ServerFacts(
        tuple(name for name in _DURABLE if getattr(row, name) == "off"),
        _distance(row.clock_s, before, after),
        row.role,
        row.owns_the_log,
        row.is_superuser,
    )


def _distance(clock_s: float, before: float, after: float) -> float:
    """Return how far a time is outside of an interval: 0 within, negative before it."""
    if clock_s > after:
        return clock_s - after
    return min(clock_s - before, 0.0)


SCHEMA_REVISION: Final = "0010"
"""The newest migration."""

_MIGRATE: Final = "run `kafka-quota-service migrate`"

_TABLES: Final = """
    select to_regclass('alembic_version') is not null and to_regclass('audit_event') is not null
      and to_regclass('audit_entity') is not null
    """

_RIGHTS: Final = """
    with log as (
      select relid, isleaf, c.relname, c.relowner
      from (values ('audit_event'), ('audit_entity')) as own(name)
      cross join pg_partition_tree(cast(name as regclass)) join pg_class c on c.oid = relid
    ), me as (
      select bool_and(relowner <> current_user::regrole) as is_other from log where not isleaf
    )
    select
      current_user as role,
      (select bool_and(has_table_privilege(relid, 'select')
        and has_table_privilege(relid, 'insert')) from log where not isleaf)
        and has_table_privilege('alembic_version', 'select')
        and has_table_privilege('audit_entity_event', 'select')
        and coalesce(has_sequence_privilege(
          cast(to_regclass('audit_event_log_position') as oid), 'usage'), true) as has_enough,
      (select is_other from me) and exists (
        select from log where has_table_privilege(relid, 'update, delete, truncate, trigger')
        or has_any_column_privilege(relid, 'update')
        or isleaf and has_table_privilege(relid, 'insert')
        or pg_has_role(relowner, 'member')) as has_too_much,
      (select min(relname) from log where not exists (
        select from pg_trigger t join pg_proc f on f.oid = tgfoid
        where tgrelid = relid and tgenabled = 'A' and proname = 'refuse_change_of_audit_event'
        having bit_or(tgtype) & 56 = 56)) as unguarded,
      (select min(name) from unnest(cast(%(working_tables)s as text[])) as name
        where (
          select bool_and(has_table_privilege(cast(to_regclass(name) as oid), action))
          from unnest(array['select', 'insert', 'update', 'delete']) as action
        ) is not true) as unusable,
      coalesce((select indisunique and indisvalid from pg_index
        where indexrelid = to_regclass('audit_entity_one_conclusion')), false)
        as has_one_conclusion
    """
"""56 are the bits of DELETE, UPDATE and TRUNCATE in ``pg_trigger.tgtype``; A means always."""


async def ensure_partitions(database: Database) -> int:
    """Create what is missing of the partitions up to three months ahead; return how many.

    Raises:
        NotSentError: Postgres did not do it; the partitions that exist are as they were.
    """
    ((created,),) = await database.writing.rows(ENSURE_PARTITIONS)
    return int(created)


async def schema_problem(database: Database) -> str | None:
    """Return a sentence that says what is wrong with the schema, or null.

    Raises:
        NotSentError: Postgres does not answer.
    """
    return await database.writing.run(_problem)


async def _problem(lease: Lease) -> str | None:
    ((has_log,),) = await lease.rows(_TABLES)
    if not has_log:
        return f"The database has no audit log yet: {_MIGRATE}."
    tables = {"working_tables": list(WORKING_TABLES)}
    (rights,) = await lease.rows(_RIGHTS, tables)
    if not rights.has_enough:
        return f"The role {rights.role} may not read and add to the audit log: {_MIGRATE}."
    revisions = await lease.rows("select version_num from alembic_version")
    revision = revisions[0].version_num if revisions else "none"
    ((months,),) = await lease.rows(MONTHS_AHEAD)
    problems = _problems(revision, rights, months)
    return next((sentence for wrong, sentence in problems if wrong), None)


def _problems(revision: str, rights: Row, months: int) -> Iterator[tuple[bool, str]]:
    """Yield what can be wrong, and whether it is, the cause before its consequences."""
    role, again = rights.role, "create it again as in the migration."
    at = f"The schema is at {revision}"
    newer = "run the version of the service that belongs to it."
    is_older = revision == "none" or revision < SCHEMA_REVISION
    yield is_older, f"{at}, older than {SCHEMA_REVISION}: {_MIGRATE}."
    yield revision > SCHEMA_REVISION, f"{at}, newer than {SCHEMA_REVISION}: {newer}"
    sentence = (
        f"The role {role} could change or remove audit rows: {_MIGRATE}, and take away "
        "rights and memberships beyond INSERT and SELECT on its tables."
    )
    yield rights.has_too_much, sentence
    sentence = f"The table {rights.unguarded} lacks a trigger that keeps it append-only: {again}"
    yield rights.unguarded is not None, sentence
    sentence = f"The role {role} may not use the table {rights.unusable}: {_MIGRATE}."
    yield rights.unusable is not None, sentence
    sentence = (
        "The index audit_entity_one_conclusion, which keeps conclusions unique, is missing or "
        f"invalid: {again}"
    )
    yield not rights.has_one_conclusion, sentence
    for number, month in enumerate(("present", "next")):
        yield (
            months < number,
            f"The audit log has no partition for the {month} month: {_MIGRATE}.",
        )


_EXPIRED: Final = ((REMOVE_EXPIRED_KEYS, 1000), (REMOVE_EXPIRED_PLANS, 100))
"""What removes expired rows, and how many at once."""


async def keep_house(database: Database) -> int:
    """Create missing partitions, forget expired keys and plans; return how many partitions.

    Meant to be called again and again; any number of processes may do it at once.

    Raises:
        NotSentError: Postgres did not do all of it.
    """
    created = await ensure_partitions(database)
    if created:
        logger.info("made %d partitions of the audit log", created)
    for statement, at_once in _EXPIRED:
        values = {"number": at_once}
        while len(await database.recovering.rows(statement, values)) == at_once:
            pass
    return created


async def months_ahead(database: Database) -> int:
    """Return for how many months after the present one there are partitions; -1: not even for it.

    Raises:
        NotSentError: Postgres does not answer.
    """
    ((months,),) = await database.recovering.rows(MONTHS_AHEAD)
    return int(months)
