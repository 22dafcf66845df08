"""Writes the log: the events of one or several requests, with what they lock and free, at once.

Two functions of the database do it, for one entity and for 10,000: ``record_intents`` takes
idempotency keys and locks and writes the first events of what it could take all of;
``record_conclusions`` writes what follows, and frees locks. Both take the database's time, once the
locks are held: the order of ``at`` is the order of the cluster.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from app.domain.alterations import AlterationResult, Outcome
from app.domain.errors import EntityBusyError, NotFoundError, QuotaError, Retry
from app.postgres.locks import (
    KEEP_KEY_S,
    busy_error,
    check_owners,
    entity_hash,
    find_key,
    may_be_repeated,
    ownership,
    quarantined_ordinals,
)
from app.postgres.payload import (
    Document,
    Event,
    bytes_text,
    canonical_json,
    encoded_events,
    entity_text,
    outcome_event,
    result_to_json,
    start_event,
    superseded_event,
)
from app.postgres.pool import SECONDS_PER_ROW, Lease
from app.service.ports.alterations import Alteration, Conclusion
from app.service.ports.audit_log import KeyTakenError, RecoveryKey
from app.service.ports.brokers import STANDSTILL_S
from app.service.runtime.clock import time_of
from app.service.runtime.tasks import off_loop

MAX_BATCH_ROWS: Final = 500
"""Requests of more rows share their transaction with nobody."""

_RECORD: Final = """
    select lost from record_intents(%(keys)s::json, %(requests)s::json, %(locks)s::json,
      %(events)s::json, %(entities)s::json, %(handed_over_within)s, %(keep_key_s)s,
      %(lock_timeout_ms)s)
    """

_CONCLUDE: Final = """
    select recorded_at, refused from record_conclusions(%(events)s::json, %(entities)s::json,
      %(alterations)s, %(repeatable)s, %(keep_key_s)s)
    """


class BatchRejectedError(Exception):
    """The transaction failed for a reason that is not everybody's; each is to be tried alone."""


async def _call(
    statement: str, parameters: Mapping[str, Any], lease: Lease, *, commit: bool
) -> Sequence[Any]:
    """Call a function that returns one row; with ``commit`` in one round trip that also commits.

    The commit is in doubt from the first byte on until the server has answered. An error from the
    server is an answer, and nothing was committed then.

    Raises:
        psycopg.Error: The server reports an error, or the connection has ended.
    """
    driver: psycopg.AsyncConnection[tuple[Any, ...]] = lease.driver
    if not commit or driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        return (await (await driver.execute(statement, parameters)).fetchall())[0]
    await driver.set_autocommit(True)
    lease.commits = True
    try:
        return (await (await driver.execute(statement, parameters)).fetchall())[0]
    except psycopg.Error:
        lease.commits = driver.closed
        raise
    finally:
        if not driver.closed:
            await driver.set_autocommit(False)


class Appended(NamedTuple):
    """What became of events.

    Attributes:
        at: The time that the log gave them.
        refused: The entities that have a conclusion already, with the document of that and the
            kind of its event; null where the log has no such entity. All others are written.
    """

    at: datetime
    refused: Mapping[RecoveryKey, Document | None]


async def append(
    events: Sequence[Event],
    lease: Lease,
    frees: Mapping[str, bool] | None = None,
    *,
    commit: bool = True,
) -> Appended:
    """Write events that lock nothing; those with a verdict free the lock of their entity.

    Where some entities have a conclusion already nothing is written, and the rest is tried again.

    Args:
        events: Any number, no two of them of one entity.
        lease: With the transaction.
        frees: The alterations whose locks are freed, or quarantined where the verdict is unknown;
            true where the idempotency key is freed, too, unless anything was applied. Null: none.
        commit: Whether nothing else belongs to the transaction.
    """
    number = sum(len(event.entities) for event in events)
    await lease.extend(number * SECONDS_PER_ROW)
    ids = {
        "alterations": list(map(UUID, frees or ())),
        "repeatable": [UUID(text) for text, repeatable in (frees or {}).items() if repeatable],
        "keep_key_s": KEEP_KEY_S,
    }
    refused: dict[RecoveryKey, Document | None] = {}
    while True:
        parameters = await off_loop(number, encoded_events, events)
        at, left_out = await _call(_CONCLUDE, {**parameters, **ids}, lease, commit=commit)
        if left_out is None:
            return Appended(at.astimezone(UTC), refused)
        for entity in left_out:
            kind, document = entity["event_type"], entity["document"]
            standing = None if kind is None else {"event": kind, **json.loads(document)}
            refused[entity["alteration_id"], entity["ordinal"]] = standing
        events = [left for event in events if (left := event.without(refused)) is not None]
        if not events:
            return Appended(at.astimezone(UTC), refused)


def can_share(intent: Alteration) -> bool:
    """Tell whether others may be written with it: it is small, and takes only its own entities."""
    return intent.supersedes is None and intent.plan is None and _rows(intent) < MAX_BATCH_ROWS


def _rows(intent: Alteration) -> int:
    return 1 + len(intent.locked)


async def write_intents(
    batch: Sequence[Alteration], lease: Lease, *, lock_s: float
) -> list[Alteration | None]:
    """Write those that get their keys and locks at once, and commit; null for the others.

    Args:
        batch: Of which none is written where one waits for a lock longer than ``lock_s`` seconds.
        lease: With the transaction.
        lock_s: As it says.

    Raises:
        BatchRejectedError: Another transaction has locked one of the rows; nothing was written.
    """
    try:
        return await _write(batch, lease, lock_s=lock_s, commit=True)
    except psycopg.errors.LockNotAvailable as error:
        raise BatchRejectedError from error


async def write_intent(intent: Alteration, lease: Lease, *, lock_s: float) -> Alteration:
    """Write an intent with everything that it claims; wait for those who are about to commit.

    Args:
        intent: What is written.
        lease: With the transaction.
        lock_s: How long it may wait for each of them, in seconds.

    Raises:
        KeyTakenError: The key was used before.
        EntityBusyError: An entity is locked, or the key is being recorded.
        OwnerConflictError: Another owner holds a key that a plan would change.
        ExpectationFailedError: Owners have changed since the plan was made.
    """
    try:
        if intent.supersedes is not None:
            await _supersede(intent, intent.supersedes, lease)
        commit = intent.supersedes is None and intent.plan is None
        (committed,) = await _write([intent], lease, lock_s=lock_s, commit=commit)
    except psycopg.errors.LockNotAvailable as error:
        raise _lock_error(error) or error from error
    lease.commits = False  # nothing that is committed is in doubt
    if committed is None:
        raise await _why_not(intent, lease)
    if intent.plan is not None:
        await check_owners(intent, intent.plan, lease)
    return committed


async def _write(
    batch: Sequence[Alteration], lease: Lease, *, lock_s: float, commit: bool
) -> list[Alteration | None]:
    number = sum(map(_rows, batch))
    await lease.extend(number * SECONDS_PER_ROW)
    parameters = await off_loop(number, _parameters, batch)
    limits = {"keep_key_s": KEEP_KEY_S, "lock_timeout_ms": round(lock_s * 1000)}
    (lost,) = await _call(_RECORD, {**parameters, **limits}, lease, commit=commit)
    without = set(map(str, lost or ()))
    return [None if intent.alteration_id in without else intent for intent in batch]


def _parameters(batch: Sequence[Alteration]) -> Mapping[str, Any]:
    locks = chain.from_iterable(map(_locks, count(1), batch))
    keys = [
        {
            "alteration_id": intent.alteration_id,
            "key_hash": bytes_text(key_hash),
            "fingerprint": bytes_text(intent.key.fingerprint),
        }
        for intent in batch
        if intent.key is not None and (key_hash := intent.key_hash) is not None
    ]
    return {
        **encoded_events([start_event(intent) for intent in batch]),
        "keys": canonical_json(keys),
        "requests": canonical_json([_request(n, intent) for n, intent in enumerate(batch, 1)]),
        "locks": canonical_json(list(locks)),
        "handed_over_within": STANDSTILL_S + max(intent.send_within_s for intent in batch),
    }


def _request(n: int, intent: Alteration) -> Document:
    return {
        "n": n,
        "alteration_id": intent.alteration_id,
        "cluster_id": intent.cluster_id,
        "received_at": time_of(intent.alteration_id).isoformat(),
        "owner": intent.owner,
        "broker_id": intent.broker_id,
    }


def _locks(n: int, intent: Alteration) -> Iterator[Document]:
    owner = None if intent.plan is None else intent.plan.owner
    for change in intent.changes:
        yield {
            "n": n,
            "ordinal": change.ordinal,
            "rests_on": False,
            "entity": entity_text(change.entity),
            "claim": None if owner is None else ownership(owner, change),
        }
    for ordinal, entity in enumerate(intent.rests_on):
        yield {"n": n, "ordinal": ordinal, "rests_on": True, "entity": entity_text(entity)}


async def _supersede(intent: Alteration, superseded: str, lease: Lease) -> None:
    """End what another alteration has in quarantine, as far as this one alters it."""
    if ordinals := await quarantined_ordinals(intent, superseded, lease):
        event = superseded_event(superseded, ordinals, intent.alteration_id)
        await append([event], lease, {superseded: False}, commit=False)


def _lock_error(error: psycopg.Error) -> EntityBusyError | None:
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


async def _why_not(intent: Alteration, lease: Lease) -> Exception:
    key_hash = intent.key_hash
    stored = None if key_hash is None else await find_key(key_hash, lease)
    if stored is not None:
        return KeyTakenError(stored)
    hashes = {entity_hash(entity): entity for entity in intent.locked}
    return await busy_error(intent, hashes, lease)


async def write_outcomes(
    batch: Sequence[Conclusion], lease: Lease
) -> list[QuotaError | ValueError | None]:
    """Write an outcome for each result that the log does not have yet, and commit.

    Locks are freed, or quarantined where the outcome is unknown. What recovery has found stands; an
    owner that comes late and knows nothing agrees with it.

    Returns:
        For each conclusion null, or what is wrong with it; the rest of it is written all the same.

    Raises:
        BatchRejectedError: Another transaction has locked a row, or is just concluding the same;
            nothing was written.
    """
    frees = {
        item.alteration_id: item.is_repeatable or may_be_repeated(item.results.values())
        for item in batch
    }
    number = sum(len(item.results) for item in batch)
    try:
        events = await off_loop(number, list, map(outcome_event, batch))
        appended = await append(events, lease, frees)
    except _NOT_EVERYBODYS as error:
        raise BatchRejectedError from error
    return [_fault(item, appended.refused) for item in batch]


_NOT_EVERYBODYS: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
)


def _fault(
    conclusion: Conclusion, refused: Mapping[RecoveryKey, Document | None]
) -> QuotaError | ValueError | None:
    alteration_id = conclusion.alteration_id
    recorded = {
        ordinal: refused[alteration_id, ordinal]
        for ordinal in conclusion.results
        if (alteration_id, ordinal) in refused
    }
    other = []
    for ordinal, record in recorded.items():
        if record is None:
            return NotFoundError(f"The log has no intent {ordinal} of {alteration_id}.")
        result = conclusion.results[ordinal]
        if not _agrees(result, record):
            outcome = record["result"]["outcome"]
            other.append(f"entity {ordinal} is already {outcome}, not {result.outcome.value}")
    if other:
        return ValueError(f"the log says of {alteration_id}: {'; '.join(other)}")
    return None


def _agrees(result: AlterationResult, record: Document) -> bool:
    if record["event"] != "outcome":
        return result.outcome in {Outcome.UNKNOWN, Outcome(record["result"]["outcome"])}
    return bool(json.loads(canonical_json(result_to_json(result))) == record["result"])
