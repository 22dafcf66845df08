"""Locks: each entity belongs to one alteration at a time, across all processes and their deaths.

Whoever needs several takes them in the order of the entities' hashes, so nobody waits in a circle.
With the lock of an entity stands its last audited state.
"""

import asyncio
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, Retry
from app.postgres.bulk import MANY, SECONDS_PER_ROW, bytes_array, integer_array
from app.postgres.errors import DEADLOCK, LOCKED, sql_state
from app.postgres.payload import canonical_json, values_from_json, values_to_json
from app.postgres.pool import Lease
from app.service.ports.audit_log import AuditRequest, Claim, LastState
from app.service.ports.brokers import STANDSTILL_S
from app.service.recovery.recovery import FINAL_AFTER_S
from app.service.runtime.clock import time_of

Hashes = Mapping[bytes, ClientQuotaEntity]
"""Entities by hash, in the order of the hashes: the order in which everybody takes slots."""

_LAST_STATES: Final = text(
    """
    select json_agg(json_build_array(encode(entity_hash, 'hex'), "values",
      extract(epoch from clock_timestamp() - updated_at)::float8))::text
    from entity_state
    where cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
    """
)
"""One text for all: of 10,000 rows the driver takes apart each by itself, on the event loop."""


def entity_text(entity: ClientQuotaEntity) -> str:
    """Return an entity as canonical JSON that Postgres can store, whatever its names hold."""
    return canonical_json(entity.as_dict())


def entity_hash(entity: ClientQuotaEntity) -> bytes:
    """Return the SHA-256 of the canonical JSON: names can be longer than a key of an index."""
    return hashlib.sha256(entity_text(entity).encode()).digest()


def by_hash(entities: Iterable[ClientQuotaEntity]) -> Hashes:
    """Return the entities in the order of their hashes."""
    return dict(sorted((entity_hash(one), one) for one in entities))


def values_text(values: Values) -> str:
    """Return an entity's values as canonical JSON."""
    return canonical_json(values_to_json(values) or {})


def values_of(stored: str) -> Values:
    """Return the values that were stored."""
    return values_from_json(json.loads(stored)) or {}


async def last_states(
    cluster_id: str, hashes: Hashes, lease: Lease
) -> Mapping[ClientQuotaEntity, LastState]:
    """Return the last audited state of those entities that have one."""
    if not hashes:
        return {}
    wanted = {"cluster_id": cluster_id, "hashes": bytes_array(hashes)}
    found = await lease.connection.scalar(_LAST_STATES, wanted)
    if len(hashes) < MANY:
        return _last_states(found, hashes)
    return await asyncio.to_thread(_last_states, found, hashes)


def _last_states(found: str | None, hashes: Hashes) -> dict[ClientQuotaEntity, LastState]:
    return {
        hashes[bytes.fromhex(digest)]: LastState(values_of(stored), age_s)
        for digest, stored, age_s in json.loads(found or "[]")
    }


_TAKE: Final = text(
    """
    with clock as materialized (
      select clock_timestamp() as now, set_config('lock_timeout', '500ms', true)
    )
    insert into entity_slot (cluster_id, entity_hash, alteration_id, ordinal, received_at, owner,
      broker_id, taken_at, handed_over_by)
    select :cluster_id, entity_hash, :alteration_id, ordinal, :received_at, :owner, :broker_id,
      now, now + make_interval(secs => :handed_over_within)
    from clock, unnest(cast(:hashes as bytea[]), cast(:ordinals as smallint[]))
      as wanted(entity_hash, ordinal)
    order by entity_hash
    on conflict (cluster_id, entity_hash) do nothing
    """
)

_HOLDER: Final = text(
    """
    select entity_hash, alteration_id, extract(epoch from (
        select max(handed_over_by) from entity_slot as own
        where own.alteration_id = slot.alteration_id and own.state = 'quarantined'
          and (own.ordinal = slot.ordinal or slot.ordinal < 0)
      ) + make_interval(secs => :final_after) - clock_timestamp()) as seconds
    from entity_slot as slot
    where cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
      and alteration_id <> :alteration_id
    order by entity_hash limit 1
    """
)

_IN_QUARANTINE: Final = text(
    """
    select ordinal from entity_slot
    where alteration_id = :superseded and state = 'quarantined'
      and cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
    order by entity_hash for update
    """
)

_FREE: Final = text(
    """
    delete from entity_slot
    where alteration_id = :alteration_id and ordinal = any(cast(:ordinals as smallint[]))
    """
)


_FREE_RESTS: Final = text("select free_rests(cast(:ids as uuid[]))")


async def take_slots(request: AuditRequest, claim: Claim, hashes: Hashes, lease: Lease) -> None:
    """Take the slots of all entities; they are free again when the transaction fails.

    A slot that an uncommitted transaction takes or frees is waited for. What is only rested on has
    ordinals from -2 down: the log has no row of it, and nothing is to be recovered.

    Raises:
        EntityBusyError: One is taken.
    """
    ordinals = {entity: -2 - n for n, entity in enumerate(claim.rests_on)}
    ordinals |= {one.alteration.entity: one.ordinal for one in request.entities}
    values = {
        **_scope(request, hashes),
        "ordinals": integer_array(ordinals[entity] for entity in hashes.values()),
        "received_at": time_of(request.alteration_id),
        "owner": claim.owner,
        "broker_id": request.broker_id,
        "handed_over_within": claim.send_within_s + STANDSTILL_S,
    }
    await lease.extend(len(hashes) * SECONDS_PER_ROW)
    try:
        taken = (await lease.connection.execute(_TAKE, values)).rowcount
    except DBAPIError as error:
        if sql_state(error) not in (LOCKED, DEADLOCK):
            raise
        detail = "Another alteration is taking one of these entities; nothing was sent. Try again."
        raise EntityBusyError(detail, retry=Retry.SAFE, retry_after_s=1) from error
    if taken < len(hashes):
        raise await _busy(request, hashes, lease)


async def take_over(
    request: AuditRequest, superseded: str, hashes: Hashes, lease: Lease
) -> Sequence[int]:
    """Free the slots that a superseded alteration has in quarantine; return their ordinals there.

    Only those of entities of the request; it takes them in the same transaction.
    """
    values = {**_scope(request, hashes), "superseded": UUID(superseded)}
    ordinals = (await lease.connection.scalars(_IN_QUARANTINE, values)).all()
    freed = {"alteration_id": UUID(superseded), "ordinals": list(ordinals)}
    await lease.connection.execute(_FREE, freed)
    await lease.connection.execute(_FREE_RESTS, {"ids": [UUID(superseded)]})
    return ordinals


async def _busy(request: AuditRequest, hashes: Hashes, lease: Lease) -> EntityBusyError:
    values = {**_scope(request, hashes), "final_after": FINAL_AFTER_S}
    holder = (await lease.connection.execute(_HOLDER, values)).first()
    if holder is None:
        detail = "Another alteration had one of these entities; nothing was sent. Try again."
        return EntityBusyError(detail, retry=Retry.SAFE, retry_after_s=1)
    held, entity = str(holder.alteration_id), hashes[bytes(holder.entity_hash)]
    return EntityBusyError(
        f"Another alteration ({held}) of {entity} is in flight, or its outcome is "
        "not known yet; nothing was sent. Try again when it is done.",
        retry=Retry.SAFE,
        alteration_id=held,
        retry_after_s=max(1, math.ceil(holder.seconds or 0)),
    )


def _scope(request: AuditRequest, hashes: Hashes) -> dict[str, Any]:
    return {
        "cluster_id": request.cluster_id,
        "alteration_id": UUID(request.alteration_id),
        "hashes": bytes_array(hashes),
    }
