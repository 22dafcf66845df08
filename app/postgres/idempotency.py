"""Idempotency keys: each belongs to one alteration, until a day after its outcome.

An alteration that may be repeated as it is gives its key back with its outcome.
"""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Row, text

from app.domain.alterations import AlterationResult, Outcome
from app.postgres.pool import Lease
from app.service.ports.audit_log import StoredKey

_THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"

_STORED_KEY: Final = text(
    """
    select alteration_id, fingerprint from idempotency
    where key_hash = :key_hash and expires_at > clock_timestamp()
    """
)

_REMOVE_EXPIRED: Final = text(
    """
    delete from idempotency where key_hash in (
      select key_hash from idempotency where expires_at <= clock_timestamp()
      order by expires_at limit :number for update skip locked)
    """
)


async def find_key(key_hash: bytes, lease: Lease) -> StoredKey | None:
    """Return what the key was used for; null where it was not, or long ago."""
    found: Row[Any] | None = (
        await lease.connection.execute(_STORED_KEY, {"key_hash": key_hash})
    ).first()
    return None if found is None else StoredKey(str(found.alteration_id), bytes(found.fingerprint))


async def remove_expired_keys(number: int, lease: Lease) -> int:
    """Remove at most that many expired keys; return how many there were."""
    removed: int = (await lease.connection.execute(_REMOVE_EXPIRED, {"number": number})).rowcount
    return removed


def may_be_repeated(results: Iterable[AlterationResult], *, found: bool = False) -> bool:
    """Tell whether the answer to these results asks for a repeat: the key is free again then.

    That is so where nothing was sent, all was throttled, or recovery found that nothing was
    applied. Where anything was applied, or may have been, the log keeps the key all the same.

    Args:
        results: What an alteration was concluded with.
        found: Whether recovery found them, so that what is not applied was not held back.
    """
    outcomes = list(results)
    undone = {Outcome.NOT_SENT, Outcome.NOT_APPLIED} if found else {Outcome.NOT_SENT}
    refusals = [one.error for one in outcomes if one.outcome is Outcome.REFUSED]
    throttled = all(one is not None and one.kafka_error == _THROTTLED for one in refusals)
    return any(one.outcome in undone for one in outcomes) or (bool(refusals) and throttled)
