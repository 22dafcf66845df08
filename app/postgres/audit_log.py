"""The audit log: intents before anything is sent, outcomes after. Rows are only ever added."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Row, func, insert, select

from app.domain.alterations import AlterationResult
from app.domain.errors import NotSentError
from app.postgres.audit_query import audit_statement
from app.postgres.bulk import MANY, copy_rows, log_time
from app.postgres.errors import CommitInDoubtError
from app.postgres.event_records import alteration_record, audit_row
from app.postgres.idempotency import find_key
from app.postgres.intents import (
    BatchRejectedError,
    IntentBatch,
    PendingIntent,
    number_of_rows,
    write_intent,
    write_intents,
)
from app.postgres.outcomes import (
    AlreadyConcludedError,
    OutcomeBatch,
    conclude,
    conclude_together,
    is_of,
    without_recorded,
)
from app.postgres.payload import canonical_json, final_rows, leaf_hash, time_text
from app.postgres.pool import Database, Lease
from app.postgres.schema import REQUEST_ORDINAL, audit_event
from app.service.alterations.group_commit import Batcher
from app.service.ports.audit_log import (
    AlterationRecord,
    AuditConclusion,
    AuditPage,
    AuditQuery,
    AuditRequest,
    Claim,
    Intent,
    StoredKey,
)
from app.service.runtime.clock import time_of


async def payloads_of(alteration_id: str, lease: Lease) -> Sequence[str]:
    """Return the payloads of an alteration, in the order of (ordinal, seq)."""
    query = (
        select(audit_event.c.payload)
        .where(is_of(alteration_id))
        .order_by(audit_event.c.ordinal, audit_event.c.seq)
    )
    return (await lease.connection.scalars(query)).all()


async def rows_of(query: AuditQuery, lease: Lease) -> Sequence[Row[Any]]:
    """Return the rows of a page, and one more where more follow."""
    result = await lease.connection.execute(audit_statement(query))
    rows: Sequence[Row[Any]] = result.all()
    return rows


def page_of(rows: Sequence[Row[Any]], limit: int) -> AuditPage:
    """Return the page that the rows make."""
    page = rows[:limit]
    requests = {row.alteration_id: row.request for row in page}
    read = {alteration_id: json.loads(payload) for alteration_id, payload in requests.items()}
    listed = [
        audit_row(
            row.at,
            read[row.alteration_id],
            json.loads(row.start),
            None if row.conclusion is None else json.loads(row.conclusion),
        )
        for row in page
    ]
    if len(rows) <= limit:
        return AuditPage(listed, None)
    last = page[-1]
    return AuditPage(listed, (last.at.astimezone(UTC), str(last.alteration_id), last.ordinal))


_PATIENCE_S: Final = 0.2
"""A transaction that takes longer holds up no other."""

_UUID_VERSION: Final = 7


class PostgresJournal:
    """The port ``AuditJournal`` on Postgres; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._patience = database.patience
        self._intents = Batcher(self._write_intents, IntentBatch, max_batch_wait_s=_PATIENCE_S)
        self._conclusions = Batcher(
            self._write_conclusions, OutcomeBatch, max_batch_wait_s=_PATIENCE_S
        )

    async def record_intent(self, request: AuditRequest, claim: Claim) -> Intent:
        """Commit the intent of every entity durably, with the slots and the key it claims.

        Raises:
            EntityBusyError: A slot is taken. Nothing was written.
            KeyTakenError: The idempotency key was used before. Nothing was written.
            NotSentError: Nothing may be sent. Where its ``alteration_id`` is set, Postgres fell
                silent during the commit: the log may hold the intent all the same, and then it
                wants a conclusion.
        """
        if claim.supersedes is not None and not _is_alteration_id(claim.supersedes):
            claim = replace(claim, supersedes=None)
        draft = PendingIntent(request, claim)
        try:
            intent = await self._intents.submit(draft)
            return intent or await self._write_alone(draft)
        except CommitInDoubtError as error:
            raise NotSentError(
                error.detail, code=error.code, alteration_id=request.alteration_id
            ) from error

    async def _write_alone(self, draft: PendingIntent) -> Intent:
        work = partial(write_intent, draft.request, draft.claim)
        return await self._database.writing.run(work)

    async def _write_intents(self, drafts: Sequence[PendingIntent]) -> Sequence[Intent | None]:
        """Write a turn of intents; those with null are to be tried alone."""
        if not drafts[0].can_share:
            return [None]
        try:
            return await self._database.writing.run(partial(write_intents, drafts))
        except BatchRejectedError:
            return [None] * len(drafts)

    async def stored_key(self, key_hash: bytes) -> StoredKey | None:
        """Return what an idempotency key was used for, if it was and has not expired.

        Raises:
            NotSentError: The log cannot be read.
        """
        return await self._database.writing.run(partial(find_key, key_hash))

    async def record_conclusion(self, conclusion: AuditConclusion) -> None:
        """Commit what became of an intent; what is recorded already is left as it is.

        Slots are freed, or quarantined where the outcome is unknown; what was applied is kept as
        the last audited state.

        Raises:
            NotSentError: Not recorded, or not known to be; repeating it is safe.
            NotFoundError: The log has no such intent.
            ValueError: The log has another outcome for some of the entities; it stands, and the
                rest is recorded.
        """
        if await self._conclusions.submit(conclusion):
            return
        run = partial(self._database.writing.run, within_s=self._patience.conclusion_s)
        contradiction = None
        while conclusion.results:
            try:
                await run(partial(conclude, conclusion))
                break
            except AlreadyConcludedError:
                conclusion, other = await run(partial(without_recorded, conclusion))
                contradiction = contradiction or other
        if contradiction is not None:
            raise ValueError(contradiction)

    async def _write_conclusions(self, conclusions: Sequence[AuditConclusion]) -> Sequence[bool]:
        """Write a turn of conclusions; tell of each whether it is done, or to be tried alone."""
        if len(conclusions[0].results) >= MANY:
            return [False]
        work = partial(conclude_together, conclusions)
        try:
            await self._database.writing.run(work, within_s=self._patience.conclusion_s)
        except BatchRejectedError:
            return [False] * len(conclusions)
        return [True] * len(conclusions)

    async def record_final(
        self, request: AuditRequest, results: Mapping[int, AlterationResult]
    ) -> datetime:
        """Commit a request that changed nothing and its results at once.

        Raises:
            NotSentError: Not recorded.
        """
        denied = request.action == "denied"
        pool = self._database.denying if denied else self._database.writing
        return await pool.run(partial(_write_final, request, results))

    async def alteration(self, alteration_id: str) -> AlterationRecord | None:
        """Return one alteration, or null where there is none.

        Raises:
            NotSentError: The log cannot be read.
        """
        if not _is_alteration_id(alteration_id):
            return None
        work = partial(payloads_of, alteration_id)
        payloads = await self._database.querying.run(work, within_s=self._patience.look_up_s)
        if not payloads:
            return None
        return await asyncio.to_thread(alteration_record, payloads)

    async def audit_rows(self, query: AuditQuery) -> AuditPage:
        """Return one page of the log.

        Raises:
            NotSentError: The log cannot be read.
        """
        work = partial(rows_of, query)
        rows = await self._database.querying.run(work, within_s=self._patience.list_s)
        if len(rows) < MANY:
            return page_of(rows, query.limit)
        return await asyncio.to_thread(page_of, rows, query.limit)

    async def check_writable(self) -> None:
        """Insert a row into the present month's partition and roll it back.

        Raises:
            NotSentError: An intent could not be written now.
        """
        await self._database.writing.run(_probe)


async def _write_final(
    request: AuditRequest, results: Mapping[int, AlterationResult], lease: Lease
) -> datetime:
    at = await log_time(lease)
    await copy_rows(lease, final_rows(request, results, time_text(at)), number_of_rows(request))
    return at.astimezone(UTC)


async def _probe(lease: Lease) -> None:
    payload = canonical_json({"event": "probe"})
    probe = insert(audit_event).values(
        received_at=func.now(),
        alteration_id=uuid.uuid4(),
        ordinal=REQUEST_ORDINAL,
        seq=0,
        event_type="intent",
        at=func.now(),
        occurred_at=func.now(),
        cluster_id="probe",
        principal="probe",
        action="alter",
        payload=payload,
        leaf_hash=leaf_hash(payload),
    )
    await lease.connection.execute(probe)
    await lease.connection.rollback()


def _is_alteration_id(alteration_id: str) -> bool:
    try:
        parsed = uuid.UUID(alteration_id)
        time_of(alteration_id)
    except ValueError:
        return False
    return parsed.version == _UUID_VERSION and str(parsed) == alteration_id
