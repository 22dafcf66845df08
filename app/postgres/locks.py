"""Locks: each entity belongs to one alteration at a time, across all processes and their deaths.

Whoever needs several takes them in the order of the entities' hashes, so nobody waits in a circle.
An idempotency key belongs to one alteration too, until a day after its outcome; what may be
repeated as it is gives its key back with its outcome. Who holds the keys of an entity changes under
its lock only, in the transaction that frees it (``change_owners`` of the database).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import psycopg

from app.domain.alterations import (
    ClientQuotaAlteration,
    Op,
    Quotas,
    Values,
    apply_ops,
)
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    EntityBusyError,
    ExpectationFailedError,
    NotSentError,
    OwnerConflictError,
    Retry,
    Violation,
)
from app.domain.plans import Holding, Holdings
from app.postgres.payload import (
    Document,
    bytes_text,
    canonical_json,
    entity_text,
    number_to_json,
    values_from_text,
)
from app.postgres.pool import SECONDS_PER_ROW, Lease, Row
from app.service.ports.alterations import Alteration, Change
from app.service.ports.audit_log import KeyTakenError, StoredKey
from app.service.ports.plans import PlanApplication
from app.service.recovery import FINAL_AFTER_S

Hashes = Mapping[bytes, ClientQuotaEntity]
"""Entities by hash, in the order of the hashes: the order in which everybody takes locks."""

_HOLDER: Final = """
    select entity_hash, alteration_id, extract(epoch from (
        case when not rests_on and quarantined then handed_over_by
          when rests_on then (select max(handed_over_by) from held_entity as own
            where own.alteration_id = held.alteration_id and own.quarantined) end
      ) + make_interval(secs => %(final_after)s) - clock_timestamp()) as seconds
    from quota_entity as held
    where cluster_id = %(cluster_id)s and entity_hash = any(cast(%(hashes)s as bytea[]))
      and alteration_id <> %(alteration_id)s
    order by entity_hash limit 1
    """

_IN_QUARANTINE: Final = """
    select ordinal from quota_entity
    where alteration_id = %(superseded)s and quarantined
      and cluster_id = %(cluster_id)s and entity_hash = any(cast(%(hashes)s as bytea[]))
    order by entity_hash for update
    """


def entity_hash(entity: ClientQuotaEntity) -> bytes:
    """Return the SHA-256 of the canonical JSON: names can be longer than a key of an index."""
    return hashlib.sha256(entity_text(entity).encode()).digest()


def by_hash(entities: Iterable[ClientQuotaEntity]) -> Hashes:
    """Return the entities in the order of their hashes."""
    return dict(sorted((entity_hash(entity), entity) for entity in entities))


async def quarantined_ordinals(intent: Alteration, superseded: str, lease: Lease) -> Sequence[int]:
    """Lock what an alteration has in quarantine of an intent's entities; return its ordinals."""
    values = {
        "superseded": UUID(superseded),
        "cluster_id": intent.cluster_id,
        "hashes": [entity_hash(change.entity) for change in intent.changes],
    }
    return [ordinal for (ordinal,) in await lease.rows(_IN_QUARANTINE, values)]


async def busy_error(intent: Alteration, hashes: Hashes, lease: Lease) -> EntityBusyError:
    """Return the error that says who holds one of the entities, and for how long at most."""
    values = {
        "cluster_id": intent.cluster_id,
        "alteration_id": UUID(intent.alteration_id),
        "hashes": list(hashes),
        "final_after": FINAL_AFTER_S,
    }
    holders = await lease.rows(_HOLDER, values)
    if not holders:
        detail = "Another alteration had one of these entities; nothing was sent. Try again."
        return EntityBusyError(detail, retry=Retry.SAFE, retry_after_s=1)
    (holder,) = holders
    held, entity = str(holder.alteration_id), hashes[holder.entity_hash]
    return EntityBusyError(
        f"Another alteration ({held}) of {entity} is in flight, or has no outcome "
        "yet; nothing was sent. Try again when it is done.",
        retry=Retry.SAFE,
        alteration_id=held,
        retry_after_s=max(1, math.ceil(holder.seconds or 0)),
    )


_RECENT: Final = """
    select entity, "values" as stored from held_entity
    where alteration_id = %(alteration_id)s and version > 0
      and changed_at > clock_timestamp() - make_interval(secs => %(within_s)s)
    """

_RECENT_OF_CLUSTER: Final = """
    select entity, "values" as stored from quota_entity
    where cluster_id = %(cluster_id)s and version > 0
      and changed_at > clock_timestamp() - make_interval(secs => %(within_s)s)
    """

_RECENT_S: Final = 60.0
"""What was applied longer ago every broker shows, in seconds."""


async def recent_values(intent: Alteration, lease: Lease) -> Quotas:
    """Return what was applied a short while ago to what the intent has locked, and its budgets."""
    values = {
        "alteration_id": UUID(intent.alteration_id),
        "cluster_id": intent.cluster_id,
        "within_s": _RECENT_S,
    }
    rows = await lease.rows(_RECENT_OF_CLUSTER if intent.budgets else _RECENT, values)
    found = {
        ClientQuotaEntity.of(json.loads(row.entity)): values_from_text(row.stored) for row in rows
    }
    locked = set(intent.locked)
    return {
        entity: held
        for entity, held in found.items()
        if entity in locked or any(budget.covers(entity) for budget in intent.budgets)
    }


KEEP_KEY_S: Final = 24 * 3600.0
"""For how many seconds after the outcome an idempotency key is remembered."""

_STORED_KEY: Final = """
    select alteration_id, fingerprint from idempotency
    where key_hash = %(key_hash)s and expires_at > clock_timestamp()
    """

REMOVE_EXPIRED_KEYS: Final = """
    delete from idempotency where key_hash in (
      select key_hash from idempotency where expires_at <= clock_timestamp()
      order by expires_at limit %(number)s for update skip locked)
    returning 1
    """


async def find_key(key_hash: bytes, lease: Lease) -> StoredKey | None:
    """Return what the key was used for; null where it was not, or long ago."""
    rows = await lease.rows(_STORED_KEY, {"key_hash": key_hash})
    return StoredKey(str(rows[0].alteration_id), rows[0].fingerprint) if rows else None


_HELD: Final = """
    select entity_hash, key, owner from quota_owner
    where cluster_id = %(cluster_id)s and entity_hash = any(cast(%(hashes)s as bytea[]))
    """

HOLDINGS: Final = """
    select entity, key, owner, value from quota_owner
    where cluster_id = %(cluster_id)s
      and (owner = %(owner)s or entity_hash = any(cast(%(hashes)s as bytea[])))
    """


OWNED: Final = """
    select entity, key, owner, value from quota_owner
    where cluster_id = %(cluster_id)s
      and (%(owners)s::text[] is null or entity_hash in (
        select entity_hash from quota_owner
        where cluster_id = %(cluster_id)s and owner = any(cast(%(owners)s as text[]))))
    """


def holdings_of(rows: Iterable[Row]) -> Holdings:
    """Return the rows as domain values."""
    entities: dict[str, ClientQuotaEntity] = {}
    held: dict[ClientQuotaEntity, dict[str, Holding]] = {}
    for row in rows:
        if row.entity not in entities:
            entities[row.entity] = ClientQuotaEntity.of(json.loads(row.entity))
        held.setdefault(entities[row.entity], {})[row.key] = Holding(row.owner, row.value)
    return held


async def check_owners(intent: Alteration, plan: PlanApplication, lease: Lease) -> None:
    """Check that the keys have the owners that the plan was made with.

    Args:
        intent: Whose entities this transaction has locked.
        plan: With its holders.
        lease: With the transaction.

    Raises:
        OwnerConflictError: Meanwhile another owner has come to hold a key.
        ExpectationFailedError: Owners have changed otherwise, or although force was used.
    """
    hashes = by_hash(change.entity for change in intent.changes)
    wanted = {"cluster_id": intent.cluster_id, "hashes": list(hashes)}
    rows = await lease.rows(_HELD, wanted)
    present = {(hashes[row.entity_hash], row.key): row.owner for row in rows}
    conflicts: list[Violation] = []
    others: list[Violation] = []
    for position, (entity, holders) in enumerate(plan.holders.items()):
        for key, planned in holders.items():
            actual = present.get((entity, key))
            if actual == planned:
                continue
            pointer, holder = f"/changes/{position}", {"owner": actual}
            found = f"{key} of {entity} is held by {actual or 'nobody'} now."
            if actual not in (None, plan.owner) and not plan.force:
                conflicts.append(Violation(pointer, "owner-conflict", found, values=holder))
            else:
                others.append(Violation(pointer, "plan-outdated", found, values=holder))
    if conflicts:
        detail = "Another owner has come to hold what the plan would change; nothing was applied."
        raise OwnerConflictError(detail, violations=conflicts + others)
    if others:
        detail = "Who holds what the plan would change has changed; nothing was applied."
        raise ExpectationFailedError(detail, violations=others)


def claim_of(intent: Alteration, change: Change, returns_to: Values | None = None) -> Document:
    """Return what the lock of an entity carries: what its conclusion does beside freeing it.

    Args:
        intent: The alteration that takes the lock.
        change: What it does with the entity.
        returns_to: What held before, where that has been read.
    """
    claim: Document = {}
    if intent.plan is not None:
        claim |= ownership(intent.plan.owner, change)
    if intent.expires is not None:
        claim["expires"] = intent.expires
    if intent.expires_at is not None:
        temporary = {
            "expires_at": intent.expires_at.isoformat(),
            "principal": intent.caller.principal,
            "reason": intent.reason,
            "values": _stored(apply_ops({}, change.ops), change.ops),
        }
        if returns_to is not None:
            temporary["returns_to"] = _stored(returns_to, change.ops)
        claim["temporary"] = temporary
    return claim


def _stored(values: Values, ops: Iterable[Op]) -> Document:
    """Return the value of each key of the operations, null where it has none."""
    return {op.key: number_to_json(values[op.key]) if op.key in values else None for op in ops}


def ownership(owner: str, alteration: ClientQuotaAlteration) -> Document:
    """Return what the owner of a plan will hold."""
    values = apply_ops({}, alteration.ops)
    return {
        "owner": owner,
        "values": {key: number_to_json(value) for key, value in values.items()},
        "removed": [op.key for op in alteration.ops if op.remove],
    }


_KEEP_CLAIMS: Final = """
    update quota_entity as held set claim = wanted.claim
    from json_to_recordset(cast(%(claims)s as json)) as wanted(cluster_id text, entity_hash bytea,
      alteration_id uuid, claim json)
    where held.cluster_id = wanted.cluster_id and held.entity_hash = wanted.entity_hash
      and held.alteration_id = wanted.alteration_id and not held.rests_on
    returning 1
    """


async def write_returns(intents: Sequence[Alteration], lease: Lease) -> None:
    """Keep with the locks of intents what their keys return to.

    Raises:
        NotSentError: A lock is another's now: whoever had it was taken for dead.
    """
    claims = [
        {
            "cluster_id": intent.cluster_id,
            "entity_hash": bytes_text(entity_hash(change.entity)),
            "alteration_id": intent.alteration_id,
            "claim": claim_of(intent, change, change.before or {}),
        }
        for intent in intents
        for change in intent.changes
    ]
    await lease.extend(len(claims) * SECONDS_PER_ROW)
    await lease.rows("select commit_durably()")
    if len(await lease.rows(_KEEP_CLAIMS, {"claims": canonical_json(claims)})) < len(claims):
        raise NotSentError("Not sent: the log has given the locks to another alteration.")


_DUE: Final = """
    select entity_hash, key, value, returns_to from temporary_value
    where cluster_id = %(cluster_id)s and alteration_id = %(expires)s
      and expires_at <= clock_timestamp()
    for update
    """


async def check_due(intent: Alteration, expires: str, lease: Lease) -> None:
    """Check that what an intent is to end is due, and as it was when the intent was made.

    Raises:
        ExpectationFailedError: It has been ended, or set again, or goes on for longer.
    """
    wanted = {"cluster_id": intent.cluster_id, "expires": UUID(expires)}
    due = {
        (row.entity_hash, row.key): (row.value, row.returns_to)
        for row in await lease.rows(_DUE, wanted)
    }
    ends = {
        (entity_hash(change.entity), op.key): (
            change.expected_values[op.key],
            None if op.value is None else float(op.value),
        )
        for change in intent.changes
        for op in change.ops
    }
    if due != ends:
        raise ExpectationFailedError("What was to be ended is not due any more; nothing was sent.")


def lock_error(error: psycopg.Error) -> EntityBusyError | None:
    """Return what it means that a lock was not got in time; null where it is the log's own."""
    if error.diag.table_name is None:
        return None
    if error.diag.table_name == "idempotency":
        return EntityBusyError(
            "A request with this idempotency key is just being recorded; ask again.",
            code="idempotency-key-running",
            retry=Retry.SAME_KEY_ONLY,
            retry_after_s=1,
        )
    detail = "Another alteration is taking one of these entities; nothing was sent. Try again."
    return EntityBusyError(detail, retry=Retry.SAFE, retry_after_s=1)


async def why_not(intent: Alteration, lease: Lease) -> Exception:
    """Return why an intent did not get its key, or one of its locks."""
    key_hash = intent.key_hash
    stored = None if key_hash is None else await find_key(key_hash, lease)
    if stored is not None:
        return KeyTakenError(stored)
    hashes = {entity_hash(entity): entity for entity in intent.locked}
    return await busy_error(intent, hashes, lease)
