"""Drift in the log: one process watches each cluster, each change is recorded once."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

from psycopg.errors import DeadlockDetected, LockNotAvailable

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Op,
    Outcome,
    Quotas,
    Values,
    same_value,
)
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import EntityBusyError
from app.postgres.audit_log import append
from app.postgres.locks import by_hash
from app.postgres.payload import (
    Event,
    entity_text,
    late_event,
    start_event,
    values_from_text,
    values_text,
)
from app.postgres.pool import SECONDS_PER_ROW, Database, Lease, Row, T, Work
from app.postgres.recovery import DOUBTFUL, doubtful_alterations
from app.service.ports.alterations import Alteration, Change
from app.service.ports.audit_log import AuditedState, Drift
from app.service.runtime.clock import new_alteration_id, time_of

V = TypeVar("V")

_UNKNOWN_CALLER: Final = Caller("unknown", "unknown", "unknown")

_SECONDS_PER_CHANGE: Final = 0.01

_HOLD: Final = """
    with clock as materialized (select clock_timestamp() as now), taken as (
      insert into quota_entity as held (cluster_id, entity_hash, alteration_id, ordinal,
        received_at, owner, taken_at, handed_over_by, entity)
      select %(cluster_id)s, entity_hash, alteration_id, 0, now, 'drift', now, now, entity
      from clock, unnest(cast(%(hashes)s as bytea[]), cast(%(ids)s as uuid[]),
        cast(%(entities)s as text[])) as wanted(entity_hash, alteration_id, entity)
      order by entity_hash
      on conflict (cluster_id, entity_hash) do update set
        (alteration_id, ordinal, rests_on, received_at, owner, taken_at, handed_over_by)
        = (excluded.alteration_id, 0, false, excluded.received_at, excluded.owner,
          excluded.taken_at, excluded.handed_over_by)
      where held.alteration_id is null
      returning entity_hash, alteration_id, version
    ), opened as (
      insert into open_alteration (alteration_id, cluster_id, entity_hashes)
      select alteration_id, %(cluster_id)s, array[entity_hash] from taken
    )
    select entity_hash, version from taken
    """

_RELEASE: Final = """
    with closed as (
      delete from open_alteration where alteration_id = any(cast(%(ids)s as uuid[]))
    )
    update quota_entity set alteration_id = null
    where cluster_id = %(cluster_id)s and entity_hash = any(cast(%(hashes)s as bytea[]))
      and alteration_id = any(cast(%(ids)s as uuid[]))
    """

_ORDINALS: Final = """
    select ordinal from audit_entity_event
    where received_at = %(received_at)s and alteration_id = %(alteration_id)s and seq = 0
      and position('"entity":' || %(entity)s || ',' in document) > 0
    """


async def record_changes(
    cluster_id: str, changes: Mapping[ClientQuotaEntity, Drift], lease: Lease
) -> Sequence[ClientQuotaEntity]:
    """Record each change whose entity is free and whose audited state is still the same.

    For the length of the transaction it holds the locks, so that no alteration comes between.

    Raises:
        EntityBusyError: An alteration is taking or freeing one of them; nothing was recorded.
    """
    await lease.extend(len(changes) * _SECONDS_PER_CHANGE)
    hashes = by_hash(changes)
    ids = {entity: new_alteration_id() for entity in changes}
    drift_ids = [UUID(ids[entity]) for entity in hashes.values()]
    scope = {
        "cluster_id": cluster_id,
        "hashes": list(hashes),
        "ids": drift_ids,
        "entities": [entity_text(entity) for entity in hashes.values()],
    }
    free = ((hashes[row.entity_hash], row.version) for row in await _hold(scope, lease))
    fresh = [entity for entity, version in free if version == changes[entity].version]
    events: list[Event] = []
    for entity in fresh:
        change = changes[entity]
        request, result = _drift_request(cluster_id, ids[entity], change)
        events += [start_event(request, {0: result}), *await _late(change, ids[entity], lease)]
    frees = {ids[entity]: False for entity in fresh}
    await append(events, lease, frees, commit=False)
    await lease.rows(_RELEASE, scope)
    return fresh


async def _hold(values: Mapping[str, Any], lease: Lease) -> Sequence[Row]:
    try:
        return await lease.rows(_HOLD, values)
    except (LockNotAvailable, DeadlockDetected) as error:
        raise EntityBusyError("An alteration is taking or freeing one of these.") from error


async def _late(drift: Drift, drift_id: str, lease: Lease) -> Sequence[Event]:
    linked = drift.linked_alteration_id
    if linked is None:
        return ()
    parameters = {
        "received_at": time_of(linked),
        "alteration_id": UUID(linked),
        "entity": entity_text(drift.entity),
    }
    rows = await lease.rows(_ORDINALS, parameters)
    return [late_event(linked, row.ordinal, drift_id) for row in rows]


def _drift_request(
    cluster_id: str, alteration_id: str, drift: Drift
) -> tuple[Alteration, AlterationResult]:
    first_seen = drift.first_seen.isoformat(timespec="milliseconds")
    reason = f"first seen {first_seen}"
    if drift.linked_alteration_id is not None:
        reason += f"; applied late by alteration {drift.linked_alteration_id}"
    ops = tuple(_ops(drift.before, drift.after))
    request = Alteration(
        alteration_id=alteration_id,
        cluster_id=cluster_id,
        caller=_UNKNOWN_CALLER,
        action="drift",
        request_id=alteration_id,
        changes=(Change(drift.entity, ops, before=drift.before),),
        reason=reason,
        evidence={
            "first_seen": first_seen,
            "audited_version": drift.version,
            "linked_alteration_id": drift.linked_alteration_id,
        },
    )
    result = AlterationResult(
        drift.entity, Outcome.APPLIED, changed=True, before=drift.before, after=drift.after
    )
    return request, result


def _ops(before: Values, after: Values) -> Iterator[Op]:
    for key in sorted({*before, *after}):
        if key not in after:
            yield Op(key, remove=True)
        elif not same_value(before.get(key), after[key]):
            yield Op(key, Decimal(repr(after[key])))


_AT_ONCE: Final = 100
_STATES_AT_ONCE: Final = 5_000

_HELD: Final = """
    exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
      and objsubid = 1 and ((classid::bigint << 32) | objid::bigint) = key)
    """
"""Whether this session has the lock of a key. Source: ``pg_locks`` in the manual of Postgres."""

_LEAD: Final = f"""
    select case when {_HELD} then true else pg_try_advisory_lock(key) end
    from hashtextextended(%(cluster_id)s, 7052) as key
    """  # noqa: S608 - constants
"""Who has the lock has it once, however often it leads."""

_RESIGN: Final = f"""
    select pg_advisory_unlock(key) from hashtextextended(%(cluster_id)s, 7052) as key where {_HELD}
    """  # noqa: S608 - constants
"""The connection has the locks of other clusters, too."""

_WATCHED: Final = "select taken_at from drift_baseline where cluster_id = %(cluster_id)s"

_STATES: Final = """
    select entity, "values" as stored, version
    from quota_entity where cluster_id = %(cluster_id)s and version > 0
    """

_FORGET: Final = """
    delete from quota_entity where cluster_id = %(cluster_id)s and entity_hash in (
      select entity_hash from quota_entity
      where cluster_id = %(cluster_id)s and alteration_id is null and "values" = '{}'
        and changed_at <= clock_timestamp() - make_interval(secs => %(forgotten_after)s)
      limit 10000 for update skip locked)
    """
"""An entity without a state has no values: so the rows are no more than the cluster's entities
and those that were removed, or locked in vain, of late. Each round reads all of them, as it reads
all of the cluster.
"""

_FORGOTTEN_AFTER_S: Final = 3600.0
_DOUBTFUL_S: Final = 1800.0
"""How long ago what is a doubt now ended at most, in seconds."""

_KEEP: Final = """
    insert into quota_entity as held (cluster_id, entity_hash, entity, "values", version)
    select %(cluster_id)s, entity_hash, entity, "values", 1
    from unnest(cast(%(hashes)s as bytea[]), cast(%(entities)s as text[]),
      cast(%(values)s as text[])) as seen(entity_hash, entity, "values")
    order by entity_hash
    on conflict (cluster_id, entity_hash) do update set entity = excluded.entity,
      "values" = excluded."values", version = 1, changed_at = excluded.changed_at
    where held.version = 0
    """

_WATCH: Final = """
    insert into drift_baseline (cluster_id, taken_at) values (%(cluster_id)s, clock_timestamp())
    on conflict (cluster_id) do nothing
    """


class PostgresDriftJournal:
    """The port ``DriftJournal`` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read_within_s = database.patience.report_s
        self._record_within_s = database.patience.conclusion_s

    async def try_lead(self, cluster_id: str) -> bool:
        """See ``DriftJournal``; this process does while its connection lasts."""
        ((leads,),) = await self._database.leading.rows(_LEAD, {"cluster_id": cluster_id})
        return bool(leads)

    async def let_others_lead(self, cluster_id: str) -> None:
        """See ``DriftJournal``; where the connection is lost, so is what it held."""
        await self._database.leading.rows(_RESIGN, {"cluster_id": cluster_id})

    async def baseline(self, cluster_id: str) -> Mapping[ClientQuotaEntity, AuditedState] | None:
        """See ``DriftJournal``.

        What has had no values for an hour is forgotten before: never while a round compares, for
        the versions of an entity that comes back begin anew.
        """
        await self._change(_FORGET, cluster_id, forgotten_after=_FORGOTTEN_AFTER_S)
        cluster, pool = {"cluster_id": cluster_id}, self._database.querying
        if not await pool.rows(_WATCHED, cluster):
            return None
        rows = await pool.rows(_STATES, cluster, within_s=self._read_within_s)
        return await asyncio.to_thread(_audited_states, rows)

    async def keep_baseline(self, cluster_id: str, quotas: Quotas) -> None:
        """See ``DriftJournal``; repeating it is safe where not all was stored."""
        for portion in _portions(quotas, _STATES_AT_ONCE):
            states = await asyncio.to_thread(_states_to_store, portion)
            await self._run(partial(_keep, {"cluster_id": cluster_id, **states}))
        await self._change(_WATCH, cluster_id)

    async def record_drift(
        self, cluster_id: str, changes: Sequence[Drift]
    ) -> Sequence[ClientQuotaEntity]:
        """See ``DriftJournal``: a hundred in each transaction; the next round finds the rest."""
        by_entity = {change.entity: change for change in changes}
        recorded: list[ClientQuotaEntity] = []
        for portion in _portions(by_entity, _AT_ONCE):
            with suppress(EntityBusyError):  # they are for the next round
                recorded += await self._run(partial(record_changes, cluster_id, portion))
        return recorded

    async def recent_doubtful(
        self, cluster_id: str, entities: Iterable[ClientQuotaEntity]
    ) -> Mapping[ClientQuotaEntity, Mapping[str, ClientQuotaAlteration]]:
        """See ``DriftJournal``."""
        rows = await self._database.querying.rows(
            DOUBTFUL,
            {"cluster_id": cluster_id, "within_s": _DOUBTFUL_S},
            within_s=self._read_within_s,
        )
        return await asyncio.to_thread(doubtful_alterations, rows, frozenset(entities))

    async def _run(self, work: Work[T]) -> T:
        return await self._database.recovering.run(work, within_s=self._record_within_s)

    async def _change(self, statement: str, cluster_id: str, **values: float) -> None:
        await self._database.recovering.rows(
            statement, {"cluster_id": cluster_id, **values}, within_s=self._record_within_s
        )


async def _keep(states: Mapping[str, Any], lease: Lease) -> None:
    await lease.extend(len(states["hashes"]) * SECONDS_PER_ROW)
    await lease.rows(_KEEP, states)


def _states_to_store(quotas: Quotas) -> dict[str, Any]:
    hashes = by_hash(quotas)
    return {
        "hashes": list(hashes),
        "entities": [entity_text(entity) for entity in hashes.values()],
        "values": [values_text(quotas[entity]) for entity in hashes.values()],
    }


def _audited_states(rows: Sequence[Row]) -> dict[ClientQuotaEntity, AuditedState]:
    return {
        ClientQuotaEntity.of(json.loads(row.entity)): AuditedState(
            values_from_text(row.stored), row.version
        )
        for row in rows
    }


def _portions(
    by_entity: Mapping[ClientQuotaEntity, V], size: int
) -> Iterator[Mapping[ClientQuotaEntity, V]]:
    left = iter(by_entity.items())
    while some := dict(islice(left, size)):
        yield some
