"""Owners of keys: who holds them now, and who will once an alteration was applied for certain.

What an owner holds changes under the lock of its entity only; the migration's ``close_slots`` does
it, in the transaction that frees the lock.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, text

from app.domain.alterations import ClientQuotaAlteration, apply_ops
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import ExpectationFailedError, OwnerConflictError
from app.domain.plans import Holders, Holding, Holdings
from app.postgres.bulk import SECONDS_PER_ROW, joined_by_hash
from app.postgres.entity_locks import Hashes, by_hash, entity_text
from app.postgres.payload import canonical_json, number_to_json
from app.postgres.pool import Lease
from app.service.ports.audit_log import AuditRequest
from app.service.ports.plans import OwnershipClaim

_HELD: Final = text(
    """
    select entity_hash, key, owner from quota_owner
    where cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
    """
)

_CLAIM: Final = text(
    """
    update entity_slot as slot set claim = wanted.claim
    from json_to_recordset(cast(:claims as json)) as wanted(ordinal smallint, claim json)
    where slot.alteration_id = :alteration_id and slot.ordinal = wanted.ordinal
    """
)

_HOLDINGS: Final = text(
    """
    select entity, key, owner, value from quota_owner
    where cluster_id = :cluster_id
      and (owner = :owner or entity_hash = any(cast(:hashes as bytea[])))
    """
)


async def read_holdings(
    cluster_id: str, owner: str, entities: Iterable[ClientQuotaEntity], lease: Lease
) -> list[Row[Any]]:
    """Return the rows of the keys that are held: of these entities, and of the owner."""
    values = {"cluster_id": cluster_id, "owner": owner, "hashes": list(by_hash(set(entities)))}
    return list((await lease.connection.execute(_HOLDINGS, values)).all())


def holdings_of(rows: Iterable[Row[Any]]) -> Holdings:
    """Return the rows as domain values."""
    entities: dict[str, ClientQuotaEntity] = {}
    held: dict[ClientQuotaEntity, dict[str, Holding]] = {}
    for row in rows:
        if row.entity not in entities:
            entities[row.entity] = ClientQuotaEntity.of(json.loads(row.entity))
        held.setdefault(entities[row.entity], {})[row.key] = Holding(row.owner, row.value)
    return held


async def claim_ownership(
    request: AuditRequest, claim: OwnershipClaim, hashes: Hashes, lease: Lease
) -> None:
    """Write what the owner will hold beside the slots, which this transaction has just taken.

    Raises:
        OwnerConflictError: Meanwhile another owner has come to hold a key.
        ExpectationFailedError: Owners have changed otherwise, or where force was given.
    """
    wanted = {"cluster_id": request.cluster_id, "hashes": list(hashes)}
    present: dict[ClientQuotaEntity, dict[str, str]] = {}
    for row in await lease.connection.execute(_HELD, wanted):
        present.setdefault(hashes[bytes(row.entity_hash)], {})[row.key] = row.owner
    for entity, holders in claim.holders.items():
        _check(claim, entity, holders, present.get(entity, {}))
    await lease.extend(len(hashes) * SECONDS_PER_ROW)
    claims = [
        {"ordinal": one.ordinal, "claim": _claimed(claim.owner, one.alteration)}
        for one in request.entities
    ]
    # one JSON text: psycopg writes arrays of JSON ten times slower
    texts = f"[{','.join(canonical_json(one) for one in claims)}]"
    values = {"alteration_id": UUID(request.alteration_id), "claims": texts}
    async with joined_by_hash(len(claims), lease):
        await lease.connection.execute(_CLAIM, values)


def _check(
    claim: OwnershipClaim,
    entity: ClientQuotaEntity,
    holders: Holders,
    present: Mapping[str, str],
) -> None:
    for key, planned in holders.items():
        actual = present.get(key)
        if actual == planned:
            continue
        where = f"{key} of {entity}"
        if actual not in (None, claim.owner) and not claim.force:
            raise OwnerConflictError(f"{where} is held by {actual} now; nothing was applied.")
        raise ExpectationFailedError(
            f"Who holds {where} has changed since the plan was made; nothing was applied."
        )


def _claimed(owner: str, alteration: ClientQuotaAlteration) -> dict[str, Any]:
    values = apply_ops({}, alteration.ops)
    return {
        "owner": owner,
        "entity": entity_text(alteration.entity),
        "values": {key: number_to_json(value) for key, value in values.items()},
        "removed": [op.key for op in alteration.ops if op.remove],
    }
