"""Owners of keys: who holds them now, and who will once an alteration was applied for certain.

What an owner holds changes under the lock of its entity only; ``append_events`` of
the database does it, in the transaction that frees the lock.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Row, text

from app.domain.alterations import ClientQuotaAlteration, apply_ops
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import ExpectationFailedError, OwnerConflictError
from app.domain.plans import Holders, Holding, Holdings
from app.postgres.locks import by_hash
from app.postgres.payload import Document, entity_text, number_to_json
from app.postgres.pool import Lease
from app.service.ports.audit_log import AuditRequest
from app.service.ports.plans import OwnershipClaim

_HELD: Final = text(
    """
    select entity_hash, key, owner from quota_owner
    where cluster_id = :cluster_id and entity_hash = any(cast(:hashes as bytea[]))
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


async def check_owners(request: AuditRequest, claim: OwnershipClaim, lease: Lease) -> None:
    """Check that the keys have the owners that the plan was made with.

    Args:
        request: Whose entities this transaction has locked.
        claim: Of the plan.
        lease: With the transaction.

    Raises:
        OwnerConflictError: Meanwhile another owner has come to hold a key.
        ExpectationFailedError: Owners have changed otherwise, or where force was given.
    """
    hashes = by_hash(one.alteration.entity for one in request.entities)
    wanted = {"cluster_id": request.cluster_id, "hashes": list(hashes)}
    present: dict[ClientQuotaEntity, dict[str, str]] = {}
    for row in await lease.connection.execute(_HELD, wanted):
        present.setdefault(hashes[bytes(row.entity_hash)], {})[row.key] = row.owner
    for entity, holders in claim.holders.items():
        _check(claim, entity, holders, present.get(entity, {}))


def ownership_claims(request: AuditRequest, claim: OwnershipClaim) -> dict[int, Document]:
    """Return what the lock of each entity carries, by ordinal: what the owner will hold."""
    return {one.ordinal: _claimed(claim.owner, one.alteration) for one in request.entities}


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
