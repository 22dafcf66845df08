"""What happens between a committed intent and its outcome; late responses, too, are evidence.

Alterations that arrive while one is in flight share the next request. Alone nobody waits: the
request in flight is the timer. A broker forwards alterations to the controller one at a time, each
for as long as the metadata log lingers: about 27 ms. One request of many entities takes as long as
that of a single entity.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError, OutcomeNotRecordedError, QuotaError, Sent, Violation
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, encoded_bytes
from app.service.alterations.command import (
    answered_results,
    as_unchanged,
    expectation_failed,
    in_order,
    result_of,
    results_of,
    throttle_time_s,
    unexpected_results,
)
from app.service.alterations.write_ahead import AlterContext, not_sent
from app.service.ports.audit_log import AuditConclusion, AuditRequest, Recovered, RecoveryJournal
from app.service.ports.brokers import AlterAnswer, ClientQuotaAdmin
from app.service.ports.metrics import AlterationMetrics, FoundBy, Phase
from app.service.runtime.clock import boot_time, utc_now
from app.service.runtime.dependencies import BrokerBatchers
from app.service.runtime.tasks import Tasks, off_loop, timed

logger = logging.getLogger(__name__)

PORTION: Final = 1000
"""How many findings are one transaction."""


async def record_in_portions(
    journal: RecoveryJournal, found: Sequence[Recovered]
) -> AsyncIterator[Sequence[Recovered]]:
    """Record findings; yield those of each portion once they are in the log.

    Raises:
        NotSentError: The rest is not recorded; what was yielded is.
    """
    for begin in range(0, len(found), PORTION):
        portion = found[begin : begin + PORTION]
        left = await journal.record_recovery(portion)
        for (alteration_id, _), why in left.items():
            logger.warning("%s was concluded elsewhere: %s", alteration_id, why)
        yield [finding for finding in portion if finding.key not in left]


_DEFINITE = frozenset({Outcome.APPLIED, Outcome.REFUSED})


async def record_late_answer(
    request: AuditRequest,
    coming: Awaitable[AlterAnswer],
    journal: RecoveryJournal,
    metrics: AlterationMetrics,
) -> None:
    """Listen on for the answer to an alteration that ran out of time, and record it."""
    late = await coming
    found = await off_loop(len(request.entities), _definite, request, late)
    for _ in found:
        metrics.outcome_came_late()
    seconds = (late.answered_at - late.sent_at).total_seconds()
    try:
        async for recorded in record_in_portions(journal, found):
            for finding in recorded:
                metrics.recovered(finding.result.outcome.value, FoundBy.LATE_ANSWER, seconds)
    except NotSentError as error:
        logger.warning("the late answer to %s was not recorded: %s", request.alteration_id, error)


def _definite(request: AuditRequest, late: AlterAnswer) -> Sequence[Recovered]:
    verdicts = ((audited, late.verdicts[audited.alteration.entity]) for audited in request.entities)
    return [
        Recovered(
            request.alteration_id,
            entity.ordinal,
            result_of(entity, verdict),
            final=True,
            evidence={
                "late_answer": verdict.outcome.value,
                "broker_id": late.broker_id,
                "answered_at": late.answered_at.isoformat(),
            },
        )
        for entity, verdict in verdicts
        if verdict.outcome in _DEFINITE
    ]


class AlterExecutor:
    """Sends what was judged and committed, and commits what became of it."""

    def __init__(self, context: AlterContext, admin: ClientQuotaAdmin, tasks: Tasks) -> None:
        self._context = context
        self._admin = admin
        self._tasks = tasks
        self._turns = AlterTurns()
        self._shared = AlterBatcher(admin)

    @asynccontextmanager
    async def turn(self, request: AuditRequest, *, validate_first: bool) -> AsyncIterator[None]:
        """Wait for the others who alter through this broker, and begin with them.

        Whoever has the broker judge first would hold them up, and goes beside them.
        """
        if validate_first:
            yield
            return
        began = time.monotonic()
        async with self._turns.turn(request.broker_id):
            self._context.metrics.phase_took(Phase.GROUP_WAIT, time.monotonic() - began)
            yield

    async def send(
        self, request: AuditRequest, *, send_by: float, validate_first: bool
    ) -> AuditConclusion:
        """Send, and return what became of it; nothing of that is in the log yet.

        Args:
            request: Its intent is committed.
            send_by: Until when it may be handed over, by ``boot_time``.
            validate_first: Let the broker judge all entities before any is applied.
        """
        if validate_first:
            judged = await self._validate_first(request)
            if judged is not None:
                return judged
        self._context.failpoints.reach("before_send")
        return await self._send(request, send_by)

    async def _validate_first(self, request: AuditRequest) -> AuditConclusion | None:
        try:
            judged = await self.judge(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was handed over
            return not_sent(request, error)
        if all(result.outcome is Outcome.VALIDATED for result in judged.results.values()):
            return None
        results = as_unchanged(judged.results, Outcome.VALIDATED, Outcome.NOT_APPLIED)
        event = (utc_now(), "outcome", "refused by the broker's own validation; nothing was sent")
        return replace(judged, results=results, events=(event,))

    async def judge(self, request: AuditRequest) -> AuditConclusion:
        """Ask the broker for its verdict without the change."""
        answer = await self._admin.alter_client_quotas(
            _alterations(request), validate_only=True, broker_id=request.broker_id
        )
        return await off_loop(len(request.entities), _judgement, request, answer)

    async def _send(self, request: AuditRequest, send_by: float) -> AuditConclusion:
        try:
            with timed(self._context.metrics, Phase.KAFKA):
                answer = await self._shared.send(
                    _alterations(request), broker_id=request.broker_id, send_by=send_by
                )
            self._context.failpoints.reach("after_answer")
            entities = request.entities
            results = await off_loop(len(entities), answered_results, entities, answer)
        except QuotaError as error:
            return not_sent(request, error)
        except Exception:  # its origin is unclear, and so is whether it was sent
            logger.exception("%s may have been sent", request.alteration_id)
            return _in_doubt(request)
        words = ", ".join(sorted({result.outcome.value for result in results.values()}))
        events = (
            (answer.sent_at, "sent", f"handed to broker {answer.broker_id}"),
            (answer.answered_at, "outcome", words),
        )
        return AuditConclusion(
            request.alteration_id,
            results,
            events,
            sent=True,
            broker_id=answer.broker_id,
            retry_after_s=throttle_time_s(answer),
            late=answer.late,
        )

    async def record(self, request: AuditRequest, conclusion: AuditConclusion) -> None:
        """Commit what became of a request.

        Raises:
            OutcomeNotRecordedError: The cluster has answered; the record is not written yet.
            QuotaError: That of the request.
        """
        try:
            with timed(self._context.metrics, Phase.TX2):
                written = await self._context.outcomes.write(conclusion)
        finally:
            if conclusion.late is not None:
                context = self._context
                self._tasks.watch(
                    record_late_answer(
                        request, conclusion.late, context.recoveries, context.metrics
                    )
                )
        unknown = any(each.outcome is Outcome.UNKNOWN for each in conclusion.results.values())
        if not written and conclusion.sent and not unknown:
            raise OutcomeNotRecordedError(
                "The cluster has answered; its answer is not in the audit log yet and will be "
                "written as soon as the log takes it. Ask for the alteration instead of repeating.",
                sent=Sent.YES,
                alteration_id=conclusion.alteration_id,
                results=in_order(conclusion.results),
            )
        self._context.failpoints.reach("after_conclusion")
        if conclusion.error is not None:
            raise conclusion.error


def unexpected(request: AuditRequest, failed: Sequence[Violation]) -> AuditConclusion:
    """Conclude an intent whose expectations do not hold; nothing is sent."""
    results = unexpected_results(request.entities, failed)
    event = (utc_now(), "outcome", "an expectation does not hold; nothing was sent")
    error = expectation_failed(failed, request)
    return AuditConclusion(request.alteration_id, results, (event,), error=error)


def _in_doubt(request: AuditRequest) -> AuditConclusion:
    reason = KafkaRefusal(None, "A fault of this service came between.")
    results = results_of(request.entities, Outcome.UNKNOWN, reason)
    event = (utc_now(), "outcome", Outcome.UNKNOWN.value)
    return AuditConclusion(request.alteration_id, results, (event,), sent=True)


def _alterations(request: AuditRequest) -> list[ClientQuotaAlteration]:
    return [entity.alteration for entity in request.entities]


def _judgement(request: AuditRequest, answer: AlterAnswer) -> AuditConclusion:
    """A validation without an answer changed nothing: it is not sent, not unknown."""
    results = answered_results(request.entities, answer)
    return AuditConclusion(
        request.alteration_id,
        as_unchanged(results, Outcome.UNKNOWN, Outcome.NOT_SENT),
        broker_id=answer.broker_id,
        retry_after_s=throttle_time_s(answer),
    )


@dataclass(eq=False, slots=True)
class _Turn:
    """A caller's part in a group."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class AlterTurns:
    """Lets callers begin in groups, so that a group shares a barrier and a request to the broker.

    A broker passes one request at a time on to the controller: a barrier waits there behind the
    alteration in flight, and who passed it before the others would alter alone. The next group
    begins when all of the last one have ended, or after ``MAX_BATCH_WAIT_S``.
    """

    def __init__(self) -> None:
        self._groups = BrokerBatchers(self._run_group)

    @asynccontextmanager
    async def turn(self, broker_id: int | None) -> AsyncIterator[None]:
        """Wait until the group begins; its end waits for the end of the block."""
        turn = _Turn()
        in_group = asyncio.ensure_future(self._groups.submit(broker_id, turn))
        try:
            await turn.begun.wait()
            yield
        finally:
            turn.ended.set()
            in_group.cancel()

    async def _run_group(self, _: int | None, turns: Sequence[_Turn]) -> Sequence[None]:
        for turn in turns:
            turn.begun.set()
        for turn in turns:
            await turn.ended.wait()
        return [None] * len(turns)


MAX_SHARED_ENTITIES: Final = 500
"""A request of more entities goes by itself: it is its own group."""


@dataclass(frozen=True, slots=True)
class _BatchItem:
    """What one caller sends, and until when by ``boot_time``."""

    alterations: Sequence[ClientQuotaAlteration]
    send_by: float


class AlterBatcher:
    """Sends alterations whose intents are committed; all of a request get its one answer.

    Source of the bounds: ``QuorumController.MAX_RECORDS_PER_USER_OP``; the controller refuses a
    request beyond them as a whole, so a neighbour's size must not count.
    """

    def __init__(self, admin: ClientQuotaAdmin) -> None:
        self._admin = admin
        self._batchers = BrokerBatchers(self._send, _AlterBatch)

    async def send(
        self, alterations: Sequence[ClientQuotaAlteration], *, broker_id: int | None, send_by: float
    ) -> AlterAnswer:
        """Alter, in one request with whoever else is waiting; the answer has their verdicts too.

        Args:
            alterations: Of entities that nobody else alters meanwhile.
            broker_id: The broker to send through; null picks one.
            send_by: Until when it may be handed over, by ``boot_time``.

        Raises:
            NotSentError: Not one byte was handed to a socket, or it was too late for that.
            QuotaError: As ``ClientQuotaAdmin.alter_client_quotas``.
        """
        return await self._batchers.submit(broker_id, _BatchItem(alterations, send_by))

    async def _send(
        self, broker_id: int | None, items: Sequence[_BatchItem]
    ) -> Sequence[AlterAnswer | Exception]:
        in_time = _in_time(items)
        while in_time:
            try:
                answer = await self._admin.alter_client_quotas(
                    [each for item in in_time for each in item.alterations],
                    validate_only=False,
                    broker_id=broker_id,
                    send_by=min(item.send_by for item in in_time),
                )
            except NotSentError:
                before, in_time = in_time, _in_time(in_time)
                if len(in_time) == len(before):
                    raise  # it was not for lack of time
            else:
                sent = set(map(id, in_time))
                return [answer if id(item) in sent else _too_late() for item in items]
        return [_too_late() for _ in items]


def _in_time(items: Sequence[_BatchItem]) -> list[_BatchItem]:
    now = boot_time()
    return [item for item in items if item.send_by >= now]


class _AlterBatch:
    """One request while it fills."""

    def __init__(self) -> None:
        self._entities: set[ClientQuotaEntity] = set()
        self._changes = 0
        self._bytes = 0

    def __call__(self, item: _BatchItem) -> bool:
        """Take one more in, if the controller takes them all and no entity is there twice."""
        entities = {alteration.entity for alteration in item.alterations}
        changes = self._changes + sum(len(alteration.ops) for alteration in item.alterations)
        if len(entities) > MAX_SHARED_ENTITIES:
            size = MAX_ENCODED_BYTES + 1
        else:
            size = self._bytes + sum(map(encoded_bytes, item.alterations))
        fits = (
            changes <= MAX_CHANGES
            and size <= MAX_ENCODED_BYTES
            and self._entities.isdisjoint(entities)
        )
        if fits or not self._entities:
            self._changes, self._bytes = changes, size
            self._entities |= entities
        return fits


def _too_late() -> NotSentError:
    return NotSentError("Not sent: it was too late after the intent.")
