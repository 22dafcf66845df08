"""The last audited state of each entity, and the hash that names an entity in the tables."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import text

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.postgres.arrays import bytes_array
from app.postgres.canonical import canonical_json, values_from_json, values_to_json
from app.postgres.copying import MANY
from app.postgres.leases import Lease
from app.service.journal_ports import KnownState

Hashes = Mapping[bytes, ClientQuotaEntity]
"""Entities by hash, in the order of the hashes: the order in which everybody takes slots."""

_KNOWN: Final = text(
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


async def known_states(
    cluster_id: str, hashes: Hashes, lease: Lease
) -> Mapping[ClientQuotaEntity, KnownState]:
    """Return the last audited state of those entities that have one."""
    if not hashes:
        return {}
    wanted = {"cluster_id": cluster_id, "hashes": bytes_array(hashes)}
    told = await lease.connection.scalar(_KNOWN, wanted)
    if len(hashes) < MANY:
        return _known(told, hashes)
    return await asyncio.to_thread(_known, told, hashes)


def _known(told: str | None, hashes: Hashes) -> dict[ClientQuotaEntity, KnownState]:
    return {
        hashes[bytes.fromhex(digest)]: KnownState(values_of(stored), age_s)
        for digest, stored, age_s in json.loads(told or "[]")
    }
