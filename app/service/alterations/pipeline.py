"""Three stages for a group of alterations that begin together: commit the intents, execute, record.

One transaction takes the locks of all, one barrier and one read show what holds, one request to the
broker changes it, one transaction records what became of it. Alone nobody waits: the group in
flight is the timer. A broker forwards alterations to the controller one at a time, each for as long
as the metadata log lingers: about 27 ms. One request of many entities takes as long as that of a
single entity.
"""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.alterations import (
    ClientQuotaAlteration,
    KafkaRefusal,
    Outcome,
    Quotas,
    failed_expectations,
    moved_beside,
)
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError, QuotaError, Violation
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, encoded_bytes
from app.service.alterations.barrier import Barrier
from app.service.alterations.command import (
    AlterCommand,
    Wait,
    answered_results,
    applied_quotas,
    as_unchanged,
    expectation_failed,
    results_of,
    throttle_time_s,
    unexpected_results,
)
from app.service.alterations.write_ahead import (
    AlterContext,
    fault_before_sending,
    not_sent,
    record_late_answer,
)
from app.service.ports.audit_log import (
    AuditRequest,
    Conclusion,
    Intent,
    KeyTakenError,
)
from app.service.ports.brokers import ClientQuotaAdmin, Handover
from app.service.ports.metrics import Phase
from app.service.runtime.clock import boot_time, utc_now
from app.service.runtime.dependencies import BrokerBatchers
from app.service.runtime.tasks import Tasks, off_loop, timed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, slots=True)
class Ready:
    """An alteration that is ready for a group: its entities are held in this process.

    Attributes:
        at: When it was ready, by ``time.monotonic``.
    """

    command: AlterCommand
    intent: Intent
    at: float = field(default_factory=time.monotonic)

    @property
    def validates_first(self) -> bool:
        """Whether the broker is to judge all entities before any is applied."""
        return self.command.all_or_nothing and len(self.intent.request.entities) > 1


@dataclass(frozen=True, eq=False, slots=True)
class Concluded:
    """What became of an alteration of a group.

    Attributes:
        request: With what held before, where that was read.
        recorded: Ends when the log has the conclusion.
        readable: Tells whether the broker shows what was applied; null where nobody waits for it.
    """

    request: AuditRequest
    conclusion: Conclusion
    recorded: asyncio.Task[None]
    readable: "asyncio.Future[bool] | None"


Executed = dict[Ready, tuple[AuditRequest, Conclusion]]
"""Each alteration as it was executed, with what held before, and what is to be recorded of it."""


class AlterPipeline:
    """Runs groups, one after the other for each broker.

    The next group begins when the last one is executed, or after ``MAX_BATCH_WAIT_S``; it does not
    wait for records.
    """

    def __init__(
        self, context: AlterContext, admin: ClientQuotaAdmin, barrier: Barrier, tasks: Tasks
    ) -> None:
        self._context = context
        self._admin = admin
        self._barrier = barrier
        self._tasks = tasks
        self._metrics = context.metrics
        self._outcomes = context.outcomes
        self._failpoints = context.failpoints
        self._groups = BrokerBatchers(self._run, AlterGroup)

    async def run(self, item: Ready) -> Concluded:
        """Run one alteration with whoever begins together with it.

        Raises:
            EntityBusyError: The log says that another process has one of the entities.
            KeyTakenError: The idempotency key was used before.
            NotSentError: The log cannot be written.
            QuotaError: The owners of a plan have changed, or a fault.
        """
        return await self._groups.submit(item.intent.request.broker_id, item)

    async def _run(
        self, broker_id: int | None, group: Sequence[Ready]
    ) -> Sequence[Concluded | Exception]:
        for item in group:
            self._metrics.phase_took(Phase.GROUP_WAIT, time.monotonic() - item.at)
        committed = await self.commit_intents(group)
        ready = [item for item in committed if isinstance(item, Ready)]
        executed: Executed = {}
        if ready:
            self._failpoints.reach("after_intent")
            executed = await self.execute(broker_id, ready)
        concluded = self.record(broker_id, executed)
        return [concluded[item] if isinstance(item, Ready) else item for item in committed]

    async def commit_intents(self, group: Sequence[Ready]) -> Sequence[Ready | Exception]:
        """Commit the intents of those who get their locks and keys; say why not of the others.

        The time is taken before the transaction: the database, which adds the same
        ``send_within_s``, takes its own later.
        """
        now = boot_time()
        ready = [
            replace(item, intent=replace(item.intent, send_by=now + item.intent.send_within_s))
            for item in group
        ]
        self._failpoints.reach("intent_begun")
        answers: Sequence[Exception | None]
        try:
            with timed(self._metrics, Phase.TX1):
                intents = [item.intent for item in ready]
                answers = await self._context.journal.record_intents(intents)
        except Exception as fault:  # noqa: BLE001 - the log may have them
            answers = [fault] * len(ready)
        return [self._committed(*pair) for pair in zip(ready, answers, strict=True)]

    def _committed(self, item: Ready, answer: Exception | None) -> Ready | Exception:
        if answer is None:
            if item.intent.supersedes is not None:
                self._metrics.superseded()
            return item
        if isinstance(answer, NotSentError):
            self._metrics.audit_write_failed("tx1")
            may_be_there = answer.alteration_id is not None
        elif isinstance(answer, QuotaError | KeyTakenError):
            may_be_there = False
        else:
            answer, may_be_there = fault_before_sending(item.intent.request, answer), True
        if may_be_there:
            self._outcomes.write([not_sent(item.intent.request, answer)])
        return answer

    async def execute(self, broker_id: int | None, group: Sequence[Ready]) -> Executed:
        """Read behind a barrier, judge what was expected, and send what is left in one request."""
        executed: Executed = {}
        requests = {item: item.intent.request for item in group}
        try:
            values = await self._read(broker_id, group)
            for item in group:
                requests[item], failed = await as_expected(
                    item.command, requests[item], values, with_plan=True
                )
                if failed:
                    executed[item] = requests[item], unexpected(requests[item], failed)
            left = {item: request for item, request in requests.items() if item not in executed}
            executed |= await self._validate_first(broker_id, left)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was handed over
            unsent = {item: (each, not_sent(each, error)) for item, each in requests.items()}
            return unsent | executed
        left = {item: request for item, request in requests.items() if item not in executed}
        if left:
            self._failpoints.reach("before_send")
            executed |= await self._hand_over(broker_id, left)
        return executed

    async def _read(self, broker_id: int | None, group: Sequence[Ready]) -> Quotas:
        if broker_id is None:
            raise NotSentError("No broker was chosen.", code="cluster-unreachable")
        entities = [entity for item in group for entity in entities_to_read(item)]

        async def acknowledged() -> Quotas:
            recent = (self._context.journal.recent_values(item.intent) for item in group)
            return dict(ChainMap(*map(dict, await asyncio.gather(*recent))))

        self._metrics.barrier_may_take(self._barrier.deadline.seconds)
        with timed(self._metrics, Phase.BARRIER):
            read = await self._barrier.read(
                entities, broker_id=broker_id, acknowledged=acknowledged
            )
        return read.values

    async def _validate_first(
        self, broker_id: int | None, group: Mapping[Ready, AuditRequest]
    ) -> Executed:
        """Let the broker judge the alterations whose entities hold together; return the refused."""
        judged = {item: request for item, request in group.items() if item.validates_first}
        if not judged:
            return {}
        alterations = [each for request in judged.values() for each in alterations_of(request)]
        answer = await self._admin.alter_client_quotas(
            alterations, validate_only=True, broker_id=broker_id
        )
        refused: Executed = {}
        for item, request in judged.items():
            verdicts = await off_loop(len(request.entities), judgement, request, answer)
            if any(each.outcome is not Outcome.VALIDATED for each in verdicts.results.values()):
                refused[item] = request, held_back(verdicts)
        return refused

    async def _hand_over(
        self, broker_id: int | None, group: Mapping[Ready, AuditRequest]
    ) -> Executed:
        """Send what is in time, in one request; those who run out of time are left out alone."""
        executed: Executed = {}
        left = dict(group)
        while left:
            for item in [item for item in left if item.intent.send_by < boot_time()]:
                request = left.pop(item)
                executed[item] = request, not_sent(request, _too_late())
            if not left:
                break
            try:
                return executed | await self._send(broker_id, left)
            except QuotaError as error:
                is_late = any(item.intent.send_by < boot_time() for item in left)
                if not (isinstance(error, NotSentError) and is_late):
                    return executed | {
                        item: (request, not_sent(request, error)) for item, request in left.items()
                    }
        return executed

    async def _send(self, broker_id: int | None, group: Mapping[Ready, AuditRequest]) -> Executed:
        try:
            with timed(self._metrics, Phase.KAFKA):
                answer = await self._admin.alter_client_quotas(
                    [each for request in group.values() for each in alterations_of(request)],
                    validate_only=False,
                    broker_id=broker_id,
                    send_by=min(item.intent.send_by for item in group),
                )
            self._failpoints.reach("after_answer")
        except QuotaError:
            raise
        except Exception:  # its origin is unclear, and so is whether it was sent
            logger.exception("%d alterations may have been sent", len(group))
            return {item: (request, in_doubt(request)) for item, request in group.items()}
        executed: Executed = {}
        for item, request in group.items():
            try:
                conclusion = await off_loop(len(request.entities), answered, request, answer)
            except Exception:  # what the broker answered is not understood
                logger.exception("%s may have been sent", request.alteration_id)
                conclusion = in_doubt(request)
            executed[item] = request, conclusion
        return executed

    def record(self, broker_id: int | None, executed: Executed) -> Mapping[Ready, Concluded]:
        """Begin to commit what became of all, and to look whether it can be read."""
        conclusions = [
            replace(conclusion, rejected=request.local_refusals)
            for request, conclusion in executed.values()
        ]
        recorded = self._outcomes.write(conclusions)
        concluded: dict[Ready, Concluded] = {}
        waiting: dict[asyncio.Future[bool], Quotas] = {}
        for (item, (request, _)), conclusion in zip(executed.items(), conclusions, strict=True):
            written = recorded[conclusion.alteration_id]
            readable = None
            after = applied_quotas(conclusion.results.values())
            if item.command.wait is Wait.READABLE and after:
                readable = asyncio.get_running_loop().create_future()
                waiting[readable] = after
            if conclusion.late is not None:
                self._tasks.watch(self._record_late(request, conclusion.late, written))
            concluded[item] = Concluded(request, conclusion, written, readable)
        if waiting:
            within_s = max(item.command.wait_ms for item in executed) / 1000
            show = self._barrier.present.show_each(waiting, broker_id, within_s=within_s)
            self._tasks.watch(show)
        return concluded

    async def _record_late(
        self, request: AuditRequest, late: Awaitable[Handover], recorded: asyncio.Task[None]
    ) -> None:
        await asyncio.wait({recorded})
        await record_late_answer(request, late, self._context.recoveries, self._metrics)


def entities_to_read(item: Ready) -> Iterator[ClientQuotaEntity]:
    """Yield what is read: what it alters, what is refused of it, what its plan rests on."""
    yield from (audited.alteration.entity for audited in item.intent.request.entities)
    yield from (refused.entity for refused in item.intent.request.local_refusals.values())
    if item.command.plan is not None:
        yield from item.command.plan.beside


async def as_expected(
    command: AlterCommand, request: AuditRequest, values: Quotas, *, with_plan: bool
) -> tuple[AuditRequest, Sequence[Violation]]:
    """Return the request with what truly held before, and what was not to be expected.

    Args:
        command: What was expected.
        request: Without values.
        values: As they were read behind a barrier.
        with_plan: Whether what a plan rests on is locked, and is to be judged.
    """
    request = await off_loop(len(request.entities), with_before, request, values)
    expected, precondition = command.expected, command.precondition
    failed: Sequence[Violation] = ()
    if expected or precondition is not None:
        before = {entity.ordinal: entity.before or {} for entity in request.entities}
        failed = await off_loop(len(expected), failed_expectations, expected, before, precondition)
    beside = command.plan.beside if command.plan and with_plan else {}
    moved = await off_loop(len(beside), moved_beside, beside, values)
    return request, [*failed, *moved]


def with_before(request: AuditRequest, values: Quotas) -> AuditRequest:
    """Return the request with these values before."""
    entities = [
        replace(each, before=values.get(each.alteration.entity, {})) for each in request.entities
    ]
    refusals = {
        ordinal: replace(refused, before=present, after=present)
        for ordinal, refused in request.local_refusals.items()
        for present in (values.get(refused.entity, {}),)
    }
    return replace(request, entities=tuple(entities), local_refusals=refusals)


def alterations_of(request: AuditRequest) -> list[ClientQuotaAlteration]:
    """Return what is sent of a request."""
    return [entity.alteration for entity in request.entities]


def unexpected(request: AuditRequest, failed: Sequence[Violation]) -> Conclusion:
    """Conclude an intent whose expectations do not hold; nothing is sent."""
    results = unexpected_results(request.entities, failed)
    event = (utc_now(), "outcome", "an expectation does not hold; nothing was sent")
    error = expectation_failed(failed, request)
    return Conclusion(request.alteration_id, results, (event,), error=error)


def judgement(request: AuditRequest, answer: Handover) -> Conclusion:
    """A validation without an answer changed nothing: it is not sent, not unknown."""
    results = answered_results(request.entities, answer)
    return Conclusion(
        request.alteration_id,
        as_unchanged(results, Outcome.UNKNOWN, Outcome.NOT_SENT),
        broker_id=answer.broker_id,
        retry_after_s=throttle_time_s(answer),
    )


def held_back(judged: Conclusion) -> Conclusion:
    """Conclude an intent of which the broker's own validation refuses something."""
    results = as_unchanged(judged.results, Outcome.VALIDATED, Outcome.NOT_APPLIED)
    event = (utc_now(), "outcome", "refused by the broker's own validation; nothing was sent")
    return replace(judged, results=results, events=(event,))


def answered(request: AuditRequest, answer: Handover) -> Conclusion:
    """Conclude an intent that was handed over and answered, or not answered in time."""
    results = answered_results(request.entities, answer)
    words = ", ".join(sorted({result.outcome.value for result in results.values()}))
    events = (
        (answer.sent_at, "sent", f"handed to broker {answer.broker_id}"),
        (answer.answered_at, "outcome", words),
    )
    return Conclusion(
        request.alteration_id,
        results,
        events,
        sent=True,
        broker_id=answer.broker_id,
        retry_after_s=throttle_time_s(answer),
        late=answer.late,
    )


def in_doubt(request: AuditRequest) -> Conclusion:
    """Conclude an intent of which a fault leaves open whether it was sent."""
    reason = KafkaRefusal(None, "A fault of this service came between.")
    results = results_of(request.entities, Outcome.UNKNOWN, reason)
    event = (utc_now(), "outcome", Outcome.UNKNOWN.value)
    return Conclusion(request.alteration_id, results, (event,), sent=True)


def _too_late() -> NotSentError:
    return NotSentError("Not sent: it was too late after the intent.")


MAX_GROUP_ENTITIES: Final = 500
"""So many entities a group has at most, or a single request: its transaction is to be short."""


class AlterGroup:
    """A group while it fills: no entity and no idempotency key is there twice.

    Source of the bounds: ``QuorumController.MAX_RECORDS_PER_USER_OP``; the controller refuses a
    request beyond them as a whole, so a neighbour's size must not count.
    """

    def __init__(self) -> None:
        self._claimed: set[object] = set()
        self._entities = 0
        self._changes = 0
        self._bytes = 0

    def __call__(self, item: Ready) -> bool:
        """Take one more in, if the controller takes them all."""
        intent = item.intent
        alterations = alterations_of(intent.request)
        claimed: set[object] = {*intent.locks.values()}
        if intent.key is not None:
            claimed.add(intent.key.key_hash)
        changes = self._changes + sum(len(alteration.ops) for alteration in alterations)
        entities = self._entities + len(intent.locks)
        size = self._bytes
        if entities <= MAX_GROUP_ENTITIES:
            size += sum(map(encoded_bytes, alterations))
        fits = (
            entities <= MAX_GROUP_ENTITIES
            and changes <= MAX_CHANGES
            and size <= MAX_ENCODED_BYTES
            and self._claimed.isdisjoint(claimed)
        )
        if fits or not self._claimed:
            self._entities, self._changes, self._bytes = entities, changes, size
            self._claimed |= claimed or {intent.request.alteration_id}
        return fits
