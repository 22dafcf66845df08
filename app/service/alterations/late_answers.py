"""Late answers: the best evidence of what became of an alteration is the broker's own word."""

import logging
from collections.abc import Mapping, Sequence

from app.domain.alterations import Outcome
from app.domain.errors import NotSentError
from app.service.alterations.alteration_results import result_of
from app.service.alterations.alteration_tasks import Tasks
from app.service.audit_records import AuditRequest
from app.service.cluster_ports import AlterAnswer, EntityVerdict
from app.service.metrics_port import AlterationMetrics, FoundBy
from app.service.off_loop import off_loop
from app.service.recovery.recovery_ports import Recovered, RecoveryJournal
from app.service.recovery.recovery_records import record_in_portions

_DEFINITE = frozenset({Outcome.APPLIED, Outcome.REFUSED})

logger = logging.getLogger(__name__)


class LateAnswers:
    """Listens on for the answer to an alteration that ran out of time, and records it."""

    def __init__(self, journal: RecoveryJournal, tasks: Tasks, metrics: AlterationMetrics) -> None:
        self._journal = journal
        self._tasks = tasks
        self._metrics = metrics

    def listen(self, request: AuditRequest, answer: AlterAnswer) -> None:
        """Wait in the background, up to 95 s after the sending; nothing where none can come."""
        if answer.late is not None:
            self._tasks.watch(self._listen(request, answer))

    async def _listen(self, request: AuditRequest, answer: AlterAnswer) -> None:
        if answer.late is None:
            return
        late = await answer.late
        found = await off_loop(len(request.entities), _definite, request, late)
        for _ in found:
            self._metrics.outcome_came_late()
        seconds = (late.answered_at - late.sent_at).total_seconds()
        try:
            async for recorded in record_in_portions(self._journal, found):
                for one in recorded:
                    verdict = one.result.outcome.value
                    self._metrics.recovered(verdict, FoundBy.LATE_ANSWER, seconds)
        except NotSentError as error:
            logger.warning(
                "the late answer to %s was not recorded: %s", request.alteration_id, error
            )


def _definite(request: AuditRequest, late: AlterAnswer) -> Sequence[Recovered]:
    verdicts = ((one, late.verdicts[one.alteration.entity]) for one in request.entities)
    return [
        Recovered(
            request.alteration_id,
            entity.ordinal,
            result_of(entity, verdict.outcome, verdict.error),
            final=True,
            evidence=_evidence(late, verdict),
        )
        for entity, verdict in verdicts
        if verdict.outcome in _DEFINITE
    ]


def _evidence(late: AlterAnswer, verdict: EntityVerdict) -> Mapping[str, object]:
    return {
        "late_answer": verdict.outcome.value,
        "broker_id": late.broker_id,
        "answered_at": late.answered_at.isoformat(),
    }
