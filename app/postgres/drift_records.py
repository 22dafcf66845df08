"""How a change that others made gets into the log: held like an alteration, over at once."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Op,
    Outcome,
    Values,
    same_value,
)
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import EntityBusyError
from app.postgres.closing import Ended, close_slots
from app.postgres.copying import copy_rows, log_time
from app.postgres.event_rows import EventRow, final_rows, time_text
from app.postgres.failures import DEADLOCK, LOCKED, sql_state
from app.postgres.later_events import late_row, stories
from app.postgres.leases import Lease
from app.postgres.states import by_hash, entity_text
from app.service.audit_records import AuditEntity, AuditRequest
from app.service.identifiers import new_alteration_id, time_of
from app.service.recovery.drift_ports import Drift

_NOBODY_KNOWN: Final = Caller("unknown", "unknown", "unknown")

_SECONDS_PER_CHANGE: Final = 0.01

_HOLD: Final = text(
    """
    with clock as materialized (select clock_timestamp() as now)
    insert into entity_slot (cluster_id, entity_hash, alteration_id, ordinal, received_at, owner,
      taken_at, handed_over_by)
    select :cluster_id, entity_hash, alteration_id, 0, now, 'drift', now, now
    from clock, unnest(cast(:hashes as bytea[]), cast(:ids as uuid[]))
      as wanted(entity_hash, alteration_id)
    order by entity_hash
    on conflict (cluster_id, entity_hash) do nothing
    returning entity_hash
    """
)

_RELEASE: Final = text("delete from entity_slot where alteration_id = any(cast(:ids as uuid[]))")

_VERSIONS: Final = text(
    """
    select entity_hash, version from entity_state
    where cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
    """
)

_PLACE: Final = text(
    """
    select ordinal from audit_event
    where received_at = :received_at and alteration_id = :alteration_id and ordinal >= 0
      and seq = 0 and cast(cast(payload as json) -> 'entity' as text) = :entity
    """
)


async def record_changes(
    cluster_id: str, changes: Mapping[ClientQuotaEntity, Drift], lease: Lease
) -> Sequence[ClientQuotaEntity]:
    """Record each change whose entity is free and whose audited state is still the same.

    For the length of the transaction it holds the slots, so that no alteration comes between.

    Raises:
        EntityBusyError: An alteration is taking or freeing one of them; nothing was recorded.
    """
    await lease.extend(len(changes) * _SECONDS_PER_CHANGE)
    hashes = by_hash(changes)
    ids = {entity: new_alteration_id() for entity in changes}
    scope = {"cluster_id": cluster_id, "hashes": list(hashes)}
    drift_ids = [UUID(ids[entity]) for entity in hashes.values()]
    free = [hashes[one] for one in await _hold({**scope, "ids": drift_ids}, lease)]
    versions = {
        hashes[bytes(row.entity_hash)]: row.version
        for row in await lease.connection.execute(_VERSIONS, scope)
    }
    fresh = [entity for entity in free if versions.get(entity, 0) == changes[entity].version]
    at = time_text(await log_time(lease))
    told = {entity: _story(cluster_id, ids[entity], changes[entity]) for entity in fresh}
    ended = [Ended(ids[entity], {0: result}) for entity, (_, result) in told.items()]
    await close_slots(ended, lease)
    rows: list[EventRow] = []
    for entity, (request, result) in told.items():
        rows += [
            *final_rows(request, {0: result}, at),
            *await _late(changes[entity], request, lease),
        ]
    await copy_rows(lease, rows, len(rows))
    await lease.connection.execute(_RELEASE, {"ids": drift_ids})
    return fresh


async def _hold(values: Mapping[str, Any], lease: Lease) -> Sequence[bytes]:
    try:
        return [bytes(one) for one in await lease.connection.scalars(_HOLD, values)]
    except DBAPIError as error:
        if sql_state(error) not in (LOCKED, DEADLOCK):
            raise
        raise EntityBusyError("An alteration is taking or freeing one of these.") from error


async def _late(drift: Drift, request: AuditRequest, lease: Lease) -> Sequence[EventRow]:
    linked = drift.linked_alteration_id
    if linked is None:
        return ()
    place = {
        "received_at": time_of(linked),
        "alteration_id": UUID(linked),
        "entity": entity_text(drift.entity),
    }
    ordinals = (await lease.connection.scalars(_PLACE, place)).all()
    told = await stories([(linked, ordinal) for ordinal in ordinals], lease)
    return [late_row(story, request.alteration_id) for story in told]


def _story(
    cluster_id: str, alteration_id: str, drift: Drift
) -> tuple[AuditRequest, AlterationResult]:
    first_seen = drift.first_seen.isoformat(timespec="milliseconds")
    reason = f"first seen {first_seen}"
    if drift.linked_alteration_id is not None:
        reason += f"; applied late by alteration {drift.linked_alteration_id}"
    alteration = ClientQuotaAlteration(drift.entity, tuple(_ops(drift.before, drift.after)))
    request = AuditRequest(
        alteration_id=alteration_id,
        cluster_id=cluster_id,
        caller=_NOBODY_KNOWN,
        action="drift",
        request_id=alteration_id,
        entities=(AuditEntity(0, alteration, drift.before),),
        reason=reason,
        decision={
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
