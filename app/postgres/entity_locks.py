"""Locks: each entity belongs to one alteration at a time, across all processes and their deaths.

Whoever needs several takes them in the order of the entities' hashes, so nobody waits in a circle.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import text

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, Retry
from app.postgres.payload import entity_text
from app.postgres.pool import Lease
from app.service.ports.audit_log import AuditRequest
from app.service.recovery.recovery import FINAL_AFTER_S

Hashes = Mapping[bytes, ClientQuotaEntity]
"""Entities by hash, in the order of the hashes: the order in which everybody takes locks."""

_HOLDER: Final = text(
    """
    select entity_hash, alteration_id, extract(epoch from (
        select max(handed_over_by) from quota_entity as own
        where own.alteration_id = held.alteration_id and own.quarantined
          and (own.ordinal = held.ordinal or held.ordinal < 0)
      ) + make_interval(secs => :final_after) - clock_timestamp()) as seconds
    from quota_entity as held
    where cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
      and alteration_id <> :alteration_id
    order by entity_hash limit 1
    """
)

_IN_QUARANTINE: Final = text(
    """
    select ordinal from quota_entity
    where alteration_id = :superseded and quarantined
      and cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
    order by entity_hash for update
    """
)


def entity_hash(entity: ClientQuotaEntity) -> bytes:
    """Return the SHA-256 of the canonical JSON: names can be longer than a key of an index."""
    return hashlib.sha256(entity_text(entity).encode()).digest()


def by_hash(entities: Iterable[ClientQuotaEntity]) -> Hashes:
    """Return the entities in the order of their hashes."""
    return dict(sorted((entity_hash(one), one) for one in entities))


async def quarantined_ordinals(
    cluster_id: str, alteration_id: str, hashes: Iterable[bytes], lease: Lease
) -> Sequence[int]:
    """Lock what an alteration has in quarantine of these entities; return its ordinals there."""
    values = {
        "superseded": UUID(alteration_id),
        "cluster_id": cluster_id,
        "hashes": list(hashes),
    }
    return (await lease.connection.scalars(_IN_QUARANTINE, values)).all()


async def busy_error(request: AuditRequest, hashes: Hashes, lease: Lease) -> EntityBusyError:
    """Return the error that says who holds one of the entities, and for how long at most."""
    values = {
        "cluster_id": request.cluster_id,
        "alteration_id": UUID(request.alteration_id),
        "hashes": list(hashes),
        "final_after": FINAL_AFTER_S,
    }
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
