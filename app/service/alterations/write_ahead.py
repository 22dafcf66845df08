"""Around the log: locks of this process, outcomes that are retried until written, late answers.

An entity has one alteration in flight: they queue in this process, and the log has a durable lock.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, NotFoundError, NotSentError, Retry
from app.metrics import AlterationMetrics, FoundBy, Phase
from app.service.alterations.results import result_of
from app.service.ports.alterations import Alteration, Conclusion
from app.service.ports.audit_log import AuditJournal, Recovered, RecoveryJournal
from app.service.ports.brokers import Handover
from app.service.runtime.clock import USUAL, Patience
from app.service.runtime.tasks import AlterationTasks, off_loop

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 1000
"""How many outcomes may wait for Postgres before no further alteration is taken."""

WAIT_S_PER_ENTITY: Final = 0.002
"""How much longer an answer waits for the record of many entities, in seconds for each: as long as
the log may take for them."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


@dataclass(eq=False)
class OutcomeWriter:
    """Writes conclusions, in the background if it must."""

    journal: AuditJournal
    tasks: AlterationTasks
    metrics: AlterationMetrics
    wait_s: float = USUAL.record_s
    _writing: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    @property
    def waiting(self) -> int:
        """How many are not written yet."""
        return len(self._writing)

    def refuse_if_full(self) -> None:
        """Take no new alteration while too many outcomes wait.

        Raises:
            NotSentError: Too many outcomes wait for Postgres.
        """
        if self.waiting >= MAX_WAITING:
            detail = f"{self.waiting} outcomes wait for the audit log; nothing was sent."
            raise NotSentError(detail, code="audit-log-unavailable")

    def write(self, conclusions: Sequence[Conclusion]) -> None:
        """Write them in one transaction, each again and again where it fails; begin, do not wait.

        An intent that turns out not to exist needs no conclusion.
        """
        first = self.tasks.start(self._try(conclusions))
        for n, conclusion in enumerate(conclusions):
            task = self.tasks.start(self._until_written(n, conclusion, first))
            self._writing[conclusion.alteration_id] = task
        self.metrics.outcomes_are_waiting(self.waiting)

    async def is_written(self, conclusion: Conclusion) -> bool:
        """Wait for the record; tell whether the log had it in the time for so many entities."""
        wait_s = self.wait_s + len(conclusion.results) * WAIT_S_PER_ENTITY
        with self.metrics.timed(Phase.TX2):
            return await self.until_written(conclusion.alteration_id, wait_s)

    async def until_written(self, alteration_id: str, within_s: float | None = None) -> bool:
        """Wait for the record of what ``write`` has begun with; tell whether the log has it."""
        task = self._writing.get(alteration_id)
        if task is not None:
            await asyncio.wait({task}, timeout=within_s)
        return task is None or task.done()

    async def _try(self, conclusions: Sequence[Conclusion]) -> Sequence[Exception | None]:
        try:
            return await self.journal.record_conclusions(conclusions)
        except Exception as error:  # noqa: BLE001 - the truth must not be lost
            return [error] * len(conclusions)

    async def _until_written(
        self,
        number: int,
        conclusion: Conclusion,
        first: asyncio.Task[Sequence[Exception | None]],
    ) -> None:
        pause = _FIRST_PAUSE_S
        try:
            error = (await asyncio.shield(first))[number]
            while error is not None and self._is_to_be_repeated(conclusion, error):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                (error,) = await self._try([conclusion])
        finally:
            self._writing.pop(conclusion.alteration_id, None)
            self.metrics.outcomes_are_waiting(self.waiting)

    def _is_to_be_repeated(self, conclusion: Conclusion, error: Exception) -> bool:
        alteration_id = conclusion.alteration_id
        if isinstance(error, NotFoundError):
            logger.warning("%s has no intent to conclude", alteration_id)
            return False
        if isinstance(error, ValueError):
            logger.error("another outcome stands in the log, and is left", exc_info=error)
            return False
        self.metrics.audit_write_failed("tx2")
        unexpected = None if isinstance(error, NotSentError) else error
        logger.warning("outcome of %s not yet recorded", alteration_id, exc_info=unexpected)
        return True


SEND_BY_S: Final = 1.0
"""How long the checks between the record of an intent and its sending may take, the barrier not
counted."""

SEND_BY_S_PER_ENTITY: Final = 0.0005
"""What they may take longer for each entity."""

RECORD_S_PER_ROW: Final = 0.001
"""What each row may add to the record of an intent."""


def send_within_s(
    number: int,
    patience: Patience,
    *,
    tables: int = 2,
    transactions: int = 2,
    barrier_s: float = USUAL.broker_answer_s,
) -> float:
    """Return how long after its transaction was begun an intent may still be handed over.

    Recovery counts from the end of this time, as the database measures it.

    Args:
        number: Of entities.
        patience: How long a transaction may take.
        tables: To how many tables the intent adds a row for each entity.
        transactions: How many there are before it: the intent's, which is tried again where others
            shared it, and one more where the values are recorded that are to return.
        barrier_s: How long the barrier may take.
    """
    record_s = transactions * patience.database_answer_s + number * tables * RECORD_S_PER_ROW
    return record_s + barrier_s + SEND_BY_S + number * SEND_BY_S_PER_ENTITY


class EntityLocks:
    """Locks are taken for all entities of a request or for none, so nobody waits in a circle.

    Args:
        metrics: Who counts.
        wait_s: How long an alteration waits for another one of the same entity, in seconds.
    """

    def __init__(self, metrics: AlterationMetrics, wait_s: float = USUAL.entity_wait_s) -> None:
        self._metrics = metrics
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
        began = time.monotonic()
        deadline = began + self._wait_s
        try:
            await self._take(wanted, alteration_id, deadline)
            self._metrics.phase_took(Phase.SLOT_WAIT, time.monotonic() - began)
            try:
                yield deadline
            finally:
                self._free(wanted)
        except EntityBusyError:
            self._metrics.slot_was_taken()
            raise

    def _free(self, wanted: Iterable[ClientQuotaEntity]) -> None:
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
    alteration: Alteration,
    coming: Awaitable[Handover],
    journal: RecoveryJournal,
    metrics: AlterationMetrics,
) -> None:
    """Listen on for the answer to an alteration that ran out of time, and record it."""
    late = await coming
    found = await off_loop(len(alteration.changes), _definite, alteration, late)
    for _ in found:
        metrics.outcome_came_late()
    seconds = (late.answered_at - late.sent_at).total_seconds()
    try:
        async for recorded in record_in_portions(journal, found):
            for finding in recorded:
                metrics.recovered(finding.result.outcome.value, FoundBy.LATE_ANSWER, seconds)
    except NotSentError as error:
        alteration_id = alteration.alteration_id
        logger.warning("the late answer to %s was not recorded: %s", alteration_id, error)


def _definite(alteration: Alteration, late: Handover) -> Sequence[Recovered]:
    verdicts = ((change, late.verdicts[change.entity]) for change in alteration.changes)
    return [
        Recovered(
            alteration.alteration_id,
            change.ordinal,
            result_of(change, verdict),
            final=True,
            evidence={
                "late_answer": verdict.outcome.value,
                "broker_id": late.broker_id,
                "answered_at": late.answered_at.isoformat(),
            },
        )
        for change, verdict in verdicts
        if verdict.outcome in _DEFINITE
    ]
