"""The write-ahead log: intents committed with their locks; outcomes, retried until written.

An entity has one alteration in flight: they queue in this process, and the log has a durable lock.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from app.domain.alterations import KafkaRefusal, Outcome, Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, NotFoundError, NotSentError, QuotaError, Retry
from app.service.alterations.command import AlterCommand, results_of
from app.service.alterations.current_values import Barrier
from app.service.auth.authorize import NoPolicy, PolicyGuard
from app.service.ports.audit_log import (
    AuditConclusion,
    AuditJournal,
    AuditRequest,
    Intent,
    KeyTakenError,
    RecoveryJournal,
)
from app.service.ports.metrics import AlterationMetrics, Phase
from app.service.queries.resolve import QuotaImage
from app.service.runtime.clock import USUAL, Patience, boot_time, utc_now
from app.service.runtime.tasks import AlterationTasks, Failpoints, LargeRequests, timed

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 1000
"""How many outcomes may wait for Postgres before no further alteration is taken."""

WAIT_S_PER_ENTITY: Final = 0.002
"""How much longer an answer waits for the record of many entities, in seconds for each: as long as
the log may take for them."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


def fault_before_sending(request: AuditRequest, fault: Exception) -> QuotaError:
    """Log a fault of ours for which an alteration was not sent; return the error to answer."""
    logger.error("%s is not sent for a fault", request.alteration_id, exc_info=fault)
    detail = "A fault of this service; report the request id. Nothing was sent."
    return QuotaError(detail, retry=Retry.SAFE, alteration_id=request.alteration_id)


def not_sent(request: AuditRequest, error: Exception) -> AuditConclusion:
    """Conclude an intent of which nothing was sent; the error says more than that, or is left."""
    if not isinstance(error, QuotaError):
        error = fault_before_sending(request, error)
    refusal = KafkaRefusal(error.kafka_error, error.detail)
    results = results_of(request.entities, Outcome.NOT_SENT, refusal)
    event = (utc_now(), "outcome", f"not sent: {error.detail}")
    conclusion = AuditConclusion(request.alteration_id, results, (event,))
    if isinstance(error, NotSentError):
        return conclusion
    # a copy: others who shared the request have the same error
    own = replace(error, alteration_id=request.alteration_id)
    own.__cause__ = error
    return replace(conclusion, error=own)


@dataclass(eq=False)
class OutcomeWriter:
    """Writes conclusions, in the background if it must."""

    journal: AuditJournal
    tasks: AlterationTasks
    metrics: AlterationMetrics
    wait_s: float = USUAL.record_s
    waiting: int = field(default=0, init=False)

    def refuse_if_full(self) -> None:
        """Take no new alteration while too many outcomes wait.

        Raises:
            NotSentError: Too many outcomes wait for Postgres.
        """
        if self.waiting >= MAX_WAITING:
            detail = f"{self.waiting} outcomes wait for the audit log; nothing was sent."
            raise NotSentError(detail, code="audit-log-unavailable")

    async def write(self, conclusion: AuditConclusion) -> bool:
        """Write; tell whether it was done in the time for so many entities."""
        task = self.tasks.start(self._until_written(conclusion))
        wait_s = self.wait_s + len(conclusion.results) * WAIT_S_PER_ENTITY
        done, _ = await asyncio.wait({task}, timeout=wait_s)
        return bool(done)

    def write_later(self, conclusion: AuditConclusion) -> None:
        """Write in the background; an intent that turns out not to exist needs no conclusion."""
        self.tasks.start(self._until_written(conclusion))

    async def _until_written(self, conclusion: AuditConclusion) -> None:
        pause = _FIRST_PAUSE_S
        self._count(1)
        try:
            while True:
                try:
                    await self.journal.record_conclusion(conclusion)
                except NotSentError:
                    self.metrics.audit_write_failed("tx2")
                    logger.warning("outcome of %s not yet recorded", conclusion.alteration_id)
                except NotFoundError:
                    logger.warning("%s has no intent to conclude", conclusion.alteration_id)
                    return
                except ValueError:
                    logger.exception("another outcome stands in the log; it is left as it is")
                    return
                except Exception:  # the outermost boundary of this task: the truth must not be lost
                    self.metrics.audit_write_failed("tx2")
                    logger.exception("outcome of %s not yet recorded", conclusion.alteration_id)
                else:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        self.waiting += step
        self.metrics.outcomes_are_waiting(self.waiting)


SEND_BY_S: Final = 1.0
"""How long the checks between the record of an intent and its sending may take, the barrier not
counted."""

SEND_BY_S_PER_ENTITY: Final = 0.0005
"""What they may take longer for each entity."""

RECORD_S_PER_ROW: Final = 0.001
"""What each row may add to the record of an intent."""


def send_within_s(
    number: int, patience: Patience, *, tables: int = 2, barrier_s: float = USUAL.broker_answer_s
) -> float:
    """Return how long after its transaction was begun an intent may still be handed over.

    Recovery counts from the end of this time, as the database measures it.

    Args:
        number: Of entities.
        patience: How long a transaction may take; where others shared it, it is tried again.
        tables: To how many tables the intent adds a row for each entity.
        barrier_s: How long the barrier may take.
    """
    record_s = 2 * patience.database_answer_s + number * tables * RECORD_S_PER_ROW
    return record_s + barrier_s + SEND_BY_S + number * SEND_BY_S_PER_ENTITY


_FIRST_RETRY_S: Final = 0.02
_LONGEST_RETRY_S: Final = 0.25

_SOON_S: Final = 1.0
"""What the log says of an entity whose holder is at work: it may be free at any time."""


class EntityLocks:
    """Locks are taken for all entities of a request or for none, so nobody waits in a circle.

    Args:
        wait_s: How long an alteration waits for another one of the same entity, in seconds.
    """

    def __init__(self, wait_s: float = USUAL.entity_wait_s) -> None:
        self._wait_s = wait_s
        self._held: dict[ClientQuotaEntity, str] = {}
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def hold(
        self, entities: Iterable[ClientQuotaEntity], alteration_id: str
    ) -> AsyncIterator[float]:
        """Hold the entities in this process; yield the deadline of the waiting.

        Raises:
            EntityBusyError: Another alteration of this process holds one of them for too long.
        """
        wanted = tuple(entities)
        deadline = time.monotonic() + self._wait_s
        await self._take(wanted, alteration_id, deadline)
        try:
            yield deadline
        finally:
            for entity in wanted:
                del self._held[entity]
            self._freed.set()
            self._freed = asyncio.Event()

    async def _take(
        self, wanted: tuple[ClientQuotaEntity, ...], alteration_id: str, deadline: float
    ) -> None:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                while self._find_taken(wanted) is not None:
                    await self._freed.wait()
        except TimeoutError:
            taken = self._find_taken(wanted)
            if taken is not None:  # it may have been freed just now
                raise self._busy(taken) from None
        self._held.update(dict.fromkeys(wanted, alteration_id))

    def _find_taken(self, wanted: Iterable[ClientQuotaEntity]) -> ClientQuotaEntity | None:
        return next((entity for entity in wanted if entity in self._held), None)

    def _busy(self, entity: ClientQuotaEntity) -> EntityBusyError:
        return EntityBusyError(
            f"Another alteration ({self._held[entity]}) of {entity} is in "
            "flight; nothing was sent. Try again when it is done.",
            retry=Retry.SAFE,
            retry_after_s=1,
        )


@dataclass(frozen=True, slots=True)
class AlterContext:
    """What all alterations of this process share.

    Attributes:
        owner: The name of this process in the log.
        failpoints: None is armed outside of tests.
        large: What each principal has in progress.
    """

    owner: str
    image: QuotaImage
    journal: AuditJournal
    recoveries: RecoveryJournal
    outcomes: OutcomeWriter
    metrics: AlterationMetrics
    failpoints: Failpoints = field(default_factory=Failpoints)
    policy: PolicyGuard = field(default_factory=NoPolicy)
    patience: Patience = USUAL
    large: LargeRequests = field(default_factory=LargeRequests)
    locks: EntityLocks = field(default_factory=EntityLocks)


def locks_of(
    request: AuditRequest, beside: Iterable[ClientQuotaEntity] = ()
) -> dict[int, ClientQuotaEntity]:
    """Return what an intent locks: what it alters, and with it what a plan rests on beside that."""
    locks = {audited.ordinal: audited.alteration.entity for audited in request.entities}
    return locks and locks | {-2 - n: entity for n, entity in enumerate(beside)}


class Intents:
    """Commits intents under the locks of their entities."""

    def __init__(self, context: AlterContext, barrier: Barrier) -> None:
        self._context = context
        self._barrier = barrier

    @asynccontextmanager
    async def committed(
        self, command: AlterCommand, request: AuditRequest
    ) -> AsyncIterator[Intent]:
        """Commit the intent and hold the entities while the block runs.

        Raises:
            EntityBusyError: Another alteration holds a lock for too long.
            KeyTakenError: The idempotency key was used before.
            NotSentError: The log cannot be written.
            UnauthenticatedError, ClusterAuthorizationError: The caller may not any more.
        """
        self._context.outcomes.refuse_if_full()
        key, plan = command.key, command.plan
        locks = locks_of(request, plan.beside if plan else ())
        tables = 2 + (plan is not None) + (command.supersedes is not None)
        intent = Intent(
            request,
            self._context.owner,
            key.claim(request.caller.principal, request.cluster_id) if key else None,
            command.supersedes,
            plan,
            locks=locks,
            send_within_s=send_within_s(
                len(locks),
                self._context.patience,
                tables=tables,
                barrier_s=self._barrier.deadline.seconds,
            ),
        )
        context, began = self._context, time.monotonic()
        try:
            async with context.locks.hold(locks.values(), request.alteration_id) as deadline:
                context.metrics.phase_took(Phase.SLOT_WAIT, time.monotonic() - began)
                context.failpoints.reach("before_intent")
                decision = await command.confirmed_evidence()
                intent = replace(intent, request=replace(request, decision=decision))
                committed = await self._commit(intent, deadline)
                context.failpoints.reach("after_intent")
                yield committed
        except EntityBusyError:
            context.metrics.slot_was_taken()
            raise

    async def _commit(self, intent: Intent, deadline: float) -> Intent:
        try:
            with timed(self._context.metrics, Phase.TX1):
                committed = await self._commit_when_free(intent, deadline)
        except NotSentError as error:
            self._context.metrics.audit_write_failed("tx1")
            if error.alteration_id is not None:
                self._context.outcomes.write_later(not_sent(intent.request, error))
            raise
        except (QuotaError, KeyTakenError):
            raise
        except Exception as fault:  # the log may have the intent
            unsent = fault_before_sending(intent.request, fault)
            self._context.outcomes.write_later(not_sent(intent.request, unsent))
            raise unsent from fault
        if intent.supersedes is not None:
            self._context.metrics.superseded()
        return committed

    async def _commit_when_free(self, intent: Intent, deadline: float) -> Intent:
        """Commit, waiting until the deadline for other processes that will soon be done.

        The time is taken before each transaction: the database, which adds the same
        ``send_within_s``, takes its own later.
        """
        pause = _FIRST_RETRY_S
        while True:
            try:
                intent = replace(intent, send_by=boot_time() + intent.send_within_s)
                self._context.failpoints.reach("intent_begun")
                return await self._context.journal.record_intent(intent)
            except EntityBusyError as error:
                held_for_s = error.retry_after_s or 0
                if time.monotonic() + (held_for_s if held_for_s > _SOON_S else pause) > deadline:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
            pause = min(pause * 2, _LONGEST_RETRY_S)

    async def verified_values(
        self,
        request: AuditRequest,
        intent: Intent | None = None,
        *,
        beside: Iterable[ClientQuotaEntity] = (),
    ) -> Quotas:
        """Return what a barrier read shows of the request's entities, and of those beside them.

        Raises:
            NotSentError: The barrier was not passed in time.
        """
        entities = [
            *(audited.alteration.entity for audited in request.entities),
            *(refused.entity for refused in request.local_refusals.values()),
            *beside,
        ]
        broker_id = request.broker_id
        if broker_id is None:
            raise NotSentError("No broker was chosen.", code="cluster-unreachable")
        recent = None if intent is None else partial(self._context.journal.recent_values, intent)
        self._context.metrics.barrier_may_take(self._barrier.deadline.seconds)
        with timed(self._context.metrics, Phase.BARRIER):
            read = await self._barrier.read(entities, broker_id=broker_id, acknowledged=recent)
        return read.values


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
