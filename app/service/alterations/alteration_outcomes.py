"""Outcomes are written until they are written: the truth is known, only its record is late."""

import asyncio
import logging
from typing import Final

from app.domain.errors import NotFoundError, NotSentError, QuotaError, Retry
from app.service.alterations.alteration_tasks import AlterationTasks
from app.service.audit_records import AuditConclusion, AuditRequest
from app.service.journal_ports import AuditJournal
from app.service.metrics_port import AlterationMetrics
from app.service.patience import USUAL

MAX_WAITING: Final = 1000
"""How many outcomes may wait for Postgres before no further alteration is taken."""

WAIT_S_PER_ENTITY: Final = 0.002
"""How much longer an answer waits for the record of many entities, in seconds for each: as long as
the log may take for them."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0

logger = logging.getLogger(__name__)


def fault_before_sending(request: AuditRequest, fault: Exception) -> QuotaError:
    """Log a fault of ours that kept an alteration from being sent; return the error to answer."""
    logger.error("%s is not sent for a fault", request.alteration_id, exc_info=fault)
    detail = "A fault of this service; report the request id. Nothing was sent."
    return QuotaError(detail, retry=Retry.SAFE, alteration_id=request.alteration_id)


class OutcomeWriter:
    """Writes conclusions, in the background if it must.

    Args:
        journal: Takes them.
        tasks: Runs what is written in the background.
        metrics: Counts what waits.
        wait_s: How long an answer waits for the record of a few entities, in seconds.
    """

    def __init__(
        self,
        journal: AuditJournal,
        tasks: AlterationTasks,
        metrics: AlterationMetrics,
        *,
        wait_s: float = USUAL.record_s,
    ) -> None:
        self._wait_s = wait_s
        self._journal = journal
        self._tasks = tasks
        self._metrics = metrics
        self.waiting = 0

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
        task = self._tasks.start(self._until_written(conclusion))
        wait_s = self._wait_s + len(conclusion.results) * WAIT_S_PER_ENTITY
        done, _ = await asyncio.wait({task}, timeout=wait_s)
        return bool(done)

    def write_later(self, conclusion: AuditConclusion) -> None:
        """Write in the background; an intent that turns out not to exist needs no conclusion."""
        self._tasks.start(self._until_written(conclusion))

    async def _until_written(self, conclusion: AuditConclusion) -> None:
        pause = _FIRST_PAUSE_S
        self._count(1)
        try:
            while True:
                try:
                    await self._journal.record_conclusion(conclusion)
                except NotSentError:
                    self._metrics.audit_write_failed("tx2")
                    logger.warning("outcome of %s not yet recorded", conclusion.alteration_id)
                except NotFoundError:
                    logger.warning("%s has no intent to conclude", conclusion.alteration_id)
                    return
                except ValueError:
                    logger.exception("another outcome stands in the log; it is left as it is")
                    return
                except Exception:  # the outermost boundary of this task: the truth must not be lost
                    self._metrics.audit_write_failed("tx2")
                    logger.exception("outcome of %s not yet recorded", conclusion.alteration_id)
                else:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        self.waiting += step
        self._metrics.outcomes_are_waiting(self.waiting)
