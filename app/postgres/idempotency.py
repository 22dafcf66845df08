"""Idempotency keys: each belongs to one alteration, until a day after its outcome.

An alteration that may be repeated as it is gives its key back with its outcome.
"""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, TextClause, text
from sqlalchemy.exc import DBAPIError

from app.domain.alterations import AlterationResult, Outcome
from app.domain.errors import EntityBusyError, Retry
from app.postgres.errors import LOCKED, sql_state
from app.postgres.pool import Lease
from app.service.ports.audit_log import KeyClaim, KeyTakenError, StoredKey
from app.service.runtime.clock import time_of

_WAIT_FOR_ITS_OWNER: Final = "1200ms"
"""How long a repeated key waits for the commit of the request that came first."""

_THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"

_TAKE: Final = text(
    """
    insert into idempotency (key_hash, fingerprint, alteration_id, expires_at)
    select :key_hash, :fingerprint, :alteration_id, clock_timestamp() + interval '24 hours'
    where set_config('lock_timeout', :wait, true) is not null
    on conflict (key_hash) do update set
      fingerprint = excluded.fingerprint,
      alteration_id = excluded.alteration_id,
      expires_at = excluded.expires_at
    where idempotency.expires_at <= clock_timestamp()
    """
)

_STORED_KEY: Final = text(
    """
    select alteration_id, fingerprint from idempotency
    where key_hash = :key_hash and expires_at > clock_timestamp()
    """
)

RENEW_KEY: Final = text(
    """
    update idempotency set expires_at = clock_timestamp() + interval '24 hours'
    where alteration_id = :alteration_id
    """
)
"""A key's life begins anew with the conclusion of its alteration."""

_FREE_UNUSED: Final = text(
    """
    delete from idempotency
    where alteration_id = :alteration_id
      and not exists (select from entity_slot where alteration_id = :alteration_id)
      and not exists (
        select from audit_event
        where received_at = :received_at and alteration_id = :alteration_id and seq > 0
          and verdict not in ('not_sent', 'refused', 'not_applied', 'unknown'))
    """
)
"""What was unknown has a slot until its definite outcome is recorded, too."""

_REMOVE_EXPIRED: Final = text(
    """
    delete from idempotency where key_hash in (
      select key_hash from idempotency where expires_at <= clock_timestamp()
      order by expires_at limit :number for update skip locked)
    """
)


async def take_key(key: KeyClaim, alteration_id: str, lease: Lease) -> None:
    """Keep the key for the alteration; where another request is doing so, wait for its commit.

    Raises:
        KeyTakenError: The key was used before and has not expired.
        EntityBusyError: The first request with the key is still being recorded.
    """
    values = {
        "key_hash": key.key_hash,
        "fingerprint": key.fingerprint,
        "alteration_id": UUID(alteration_id),
        "wait": _WAIT_FOR_ITS_OWNER,
    }
    while await _taken(values, lease) == 0:
        stored = await find_key(key.key_hash, lease)
        if stored is not None:
            raise KeyTakenError(stored)


async def find_key(key_hash: bytes, lease: Lease) -> StoredKey | None:
    """Return what the key was used for; null where it was not, or long ago."""
    found: Row[Any] | None = (
        await lease.connection.execute(_STORED_KEY, {"key_hash": key_hash})
    ).first()
    return None if found is None else StoredKey(str(found.alteration_id), bytes(found.fingerprint))


async def free_key_if_unused(
    alteration_id: str, results: Iterable[AlterationResult], lease: Lease, *, found: bool = False
) -> None:
    """Forget the key of an alteration that its caller may repeat: the repeat runs it anew.

    Those are the alterations of which nothing was sent, all was throttled, or recovery found that
    nothing was applied. Where anything was applied, or may have been, the key stays.

    Args:
        alteration_id: What was just concluded.
        results: Of its conclusion; their rows are in the log, in the same transaction.
        lease: With that transaction.
        found: Whether recovery found them, so that what is not applied was not held back.
    """
    if not may_be_repeated(results, found=found):
        return
    values = {"alteration_id": UUID(alteration_id), "received_at": time_of(alteration_id)}
    await lease.connection.execute(_FREE_UNUSED, values)


async def remove_expired_keys(number: int, lease: Lease) -> int:
    """Remove at most that many expired keys; return how many there were."""
    return await _changed(_REMOVE_EXPIRED, {"number": number}, lease)


def may_be_repeated(results: Iterable[AlterationResult], *, found: bool = False) -> bool:
    """Tell whether the answer to these results asks for a repeat."""
    known = list(results)
    undone = {Outcome.NOT_SENT, Outcome.NOT_APPLIED} if found else {Outcome.NOT_SENT}
    refusals = [one.error for one in known if one.outcome is Outcome.REFUSED]
    throttled = all(one is not None and one.kafka_error == _THROTTLED for one in refusals)
    return any(one.outcome in undone for one in known) or (bool(refusals) and throttled)


async def _taken(values: dict[str, Any], lease: Lease) -> int:
    try:
        return await _changed(_TAKE, values, lease)
    except DBAPIError as error:
        if sql_state(error) != LOCKED:
            raise
        raise EntityBusyError(
            "A request with this idempotency key is just being recorded; ask again.",
            code="idempotency-key-running",
            retry=Retry.SAME_KEY_ONLY,
            retry_after_s=1,
        ) from error


async def _changed(statement: TextClause, values: dict[str, Any], lease: Lease) -> int:
    result = await lease.connection.execute(statement, values)
    changed: int = result.rowcount
    return changed
