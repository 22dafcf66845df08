"""The audit log: intents before anything is sent, outcomes after. Rows are only ever added.

Two functions of the database write it, for one entity and for 10,000: ``record_intents`` takes
idempotency keys and locks and writes the first events of what it could take all of;
``record_conclusions`` writes what follows, and frees locks. Both take the database's time, once the
locks are held: the order of ``at`` is the order of the cluster.
"""

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from app.domain.alterations import AlterationResult, Outcome, Quotas
from app.domain.entities import Caller
from app.domain.errors import NotFoundError, NotSentError, QuotaError
from app.postgres.audit_query import audit_statement
from app.postgres.errors import CommitInDoubtError, failure
from app.postgres.locks import (
    KEEP_KEY_S,
    check_due,
    check_owners,
    claim_of,
    find_key,
    lock_error,
    quarantined_ordinals,
    recent_values,
    why_not,
    write_returns,
)
from app.postgres.payload import (
    Document,
    Event,
    bytes_text,
    canonical_json,
    encoded_events,
    entity_text,
    is_record_id,
    outcome_event,
    result_to_json,
    start_event,
    superseded_event,
)
from app.postgres.pool import SECONDS_PER_ROW, Database, Lease
from app.postgres.records import EVENTS, alteration_record, page_of
from app.service.alterations.results import may_be_repeated
from app.service.ports.alterations import (
    Alteration,
    AlterationRecord,
    Conclusion,
)
from app.service.ports.audit_log import AuditPage, AuditQuery, RecoveryKey, StoredKey
from app.service.ports.brokers import STANDSTILL_S
from app.service.runtime.clock import new_alteration_id, time_of
from app.service.runtime.tasks import off_loop

MAX_BATCH_ROWS: Final = 500
"""Requests of more rows share their transaction with nobody."""

_RECORD: Final = """
    select lost from record_intents(%(keys)s::json, %(locks)s::json, %(events)s::json,
      %(entities)s::json, %(handed_over_within)s, %(keep_key_s)s, %(lock_timeout_ms)s)
    """

_CONCLUDE: Final = """
    select recorded_at, refused from record_conclusions(%(events)s::json, %(entities)s::json,
      %(alterations)s, %(repeatable)s, %(keep_key_s)s)
    """


class BatchRejectedError(Exception):
    """The transaction failed for a reason that is not everybody's; each is to be tried alone."""


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
        at, left_out = await lease.call(_CONCLUDE, {**parameters, **ids}, commit=commit)
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
    return _is_alone_in_its_statement(intent) and _rows(intent) < MAX_BATCH_ROWS


def _is_alone_in_its_statement(intent: Alteration) -> bool:
    """Tell whether nothing else belongs to its transaction."""
    return intent.supersedes is None and intent.plan is None and intent.expires is None


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
        ExpectationFailedError: Owners have changed since the plan was made; or what is to be ended
            is not due any more.
    """
    try:
        if intent.supersedes is not None:
            await _supersede(intent, intent.supersedes, lease)
        commit = _is_alone_in_its_statement(intent)
        (committed,) = await _write([intent], lease, lock_s=lock_s, commit=commit)
    except psycopg.errors.LockNotAvailable as error:
        raise lock_error(error) or error from error
    lease.commits = False  # nothing that is committed is in doubt
    if committed is None:
        raise await why_not(intent, lease)
    if intent.plan is not None:
        await check_owners(intent, intent.plan, lease)
    if intent.expires is not None:
        await check_due(intent, intent.expires, lease)
    return committed


async def _write(
    batch: Sequence[Alteration], lease: Lease, *, lock_s: float, commit: bool
) -> list[Alteration | None]:
    number = sum(map(_rows, batch))
    await lease.extend(number * SECONDS_PER_ROW)
    parameters = await off_loop(number, _parameters, batch)
    limits = {"keep_key_s": KEEP_KEY_S, "lock_timeout_ms": round(lock_s * 1000)}
    (lost,) = await lease.call(_RECORD, {**parameters, **limits}, commit=commit)
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
        "locks": canonical_json(list(locks)),
        "handed_over_within": STANDSTILL_S + max(intent.send_within_s for intent in batch),
    }


def _locks(n: int, intent: Alteration) -> Iterator[Document]:
    for change in intent.changes:
        yield {
            "n": n,
            "ordinal": change.ordinal,
            "rests_on": False,
            "entity": entity_text(change.entity),
            "claim": claim_of(intent, change) or None,
        }
    for ordinal, entity in enumerate(intent.rests_on):
        yield {"n": n, "ordinal": ordinal, "rests_on": True, "entity": entity_text(entity)}


async def _supersede(intent: Alteration, superseded: str, lease: Lease) -> None:
    """End what another alteration has in quarantine, as far as this one alters it."""
    if ordinals := await quarantined_ordinals(intent, superseded, lease):
        event = superseded_event(superseded, ordinals, intent.alteration_id)
        await append([event], lease, {superseded: False}, commit=False)


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


def _in_doubt(intent: Alteration, error: QuotaError) -> QuotaError:
    """Return the error with the intent's id where the log may have it all the same."""
    if not isinstance(error, CommitInDoubtError):
        return error
    return NotSentError(error.detail, code=error.code, alteration_id=intent.alteration_id)


class PostgresJournal:
    """The port ``AuditJournal`` on Postgres; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._patience = database.patience

    async def record_intents(self, intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        """See ``AuditJournal``; who cannot share the transaction, or not be served, goes alone."""
        shared = [intent for intent in intents if can_share(intent)]
        answers = await self._record_shared(shared) if len(shared) > 1 else {}
        alone = [intent for intent in intents if intent not in answers]
        answers |= zip(alone, await asyncio.gather(*map(self._record_alone, alone)), strict=True)
        return [answers[intent] for intent in intents]

    async def _record_shared(
        self, intents: Sequence[Alteration]
    ) -> dict[Alteration, Exception | None]:
        """Return null for what was written, and the error where it was everybody's."""
        work = partial(write_intents, intents, lock_s=self._patience.shared_lock_s)
        try:
            written = await self._database.writing.run(work)
        except BatchRejectedError:
            return {}
        except QuotaError as error:
            return {intent: _in_doubt(intent, error) for intent in intents}
        return {intent: None for intent in written if intent is not None}

    async def _record_alone(self, intent: Alteration) -> Exception | None:
        if intent.supersedes is not None and not is_record_id(intent.supersedes):
            intent = replace(intent, supersedes=None)
        try:
            await self._database.writing.run(
                partial(write_intent, intent, lock_s=self._patience.lock_s)
            )
        except QuotaError as error:
            return _in_doubt(intent, error)
        except Exception as error:  # noqa: BLE001 - it is one intent's, and others are written
            return error
        return None

    async def record_returns(self, intents: Sequence[Alteration]) -> None:
        """See ``AuditJournal``."""
        await self._database.writing.run(partial(write_returns, intents))

    async def recent_values(self, intent: Alteration) -> Quotas:
        """See ``AuditJournal``."""
        return await self._database.writing.run(partial(recent_values, intent))

    async def stored_key(self, key_hash: bytes) -> StoredKey | None:
        """See ``AuditJournal``."""
        return await self._database.writing.run(partial(find_key, key_hash))

    async def record_conclusions(
        self, conclusions: Sequence[Conclusion], *, alone: bool = False
    ) -> Sequence[Exception | None]:
        """See ``AuditJournal``; where a transaction is rejected, each is written alone."""
        work = partial(write_outcomes, conclusions)
        try:
            return await self._database.writing.run(work, within_s=self._patience.conclusion_s)
        except QuotaError as error:
            return [error] * len(conclusions)
        except BatchRejectedError as error:
            if alone:
                return [failure(error.__cause__)]
        each = (self.record_conclusions([item], alone=True) for item in conclusions)
        return list(chain.from_iterable(await asyncio.gather(*each)))

    async def record_final(
        self, alteration: Alteration, results: Mapping[int, AlterationResult]
    ) -> datetime:
        """See ``AuditJournal``."""
        denied = alteration.action == "denied"
        pool = self._database.denying if denied else self._database.writing
        return await pool.run(partial(_write_final, alteration, results))

    async def alteration(self, alteration_id: str) -> AlterationRecord | None:
        """See ``AuditJournal``."""
        if not is_record_id(alteration_id):
            return None
        values = {"received_at": time_of(alteration_id), "alteration_id": uuid.UUID(alteration_id)}
        rows = await self._database.querying.rows(EVENTS, values, within_s=self._patience.look_up_s)
        if not rows:
            return None
        read = sum(len(row.documents or "") + len(row.rejected or "") for row in rows)
        number = read // 200  # an entity has so many characters, about
        return await off_loop(number, alteration_record, rows)

    async def audit_rows(self, query: AuditQuery) -> AuditPage:
        """See ``AuditJournal``."""
        statement = audit_statement(query)
        rows = await self._database.querying.rows(statement, within_s=self._patience.list_s)
        return await off_loop(len(rows), page_of, rows, query.limit)

    async def check_writable(self) -> None:
        """See ``AuditJournal``: a row is inserted and rolled back."""
        await self._database.writing.run(_probe)


async def _write_final(
    alteration: Alteration, results: Mapping[int, AlterationResult], lease: Lease
) -> datetime:
    event = await off_loop(len(alteration.changes), start_event, alteration, results)
    return (await append([event], lease)).at


_PROBE: Final = Alteration(Caller("probe", "probe", "probe"), "probe", cluster_id="probe")


async def _probe(lease: Lease) -> None:
    probe = replace(_PROBE, alteration_id=new_alteration_id())
    await append([start_event(probe)], lease, commit=False)
    await lease.driver.rollback()
