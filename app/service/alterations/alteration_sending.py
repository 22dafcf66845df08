"""What happens between a committed intent and its conclusion."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Outcome,
)
from app.domain.errors import NotSentError, OutcomeNotRecordedError, QuotaError, Sent
from app.service.alterations.alteration_outcomes import OutcomeWriter, fault_before_sending
from app.service.alterations.alteration_results import (
    answered_results,
    conclusion_not_sent,
    held_back,
    results_of,
    throttle_time_s,
    unexpected_results,
)
from app.service.alterations.late_answers import LateAnswers
from app.service.alterations.life_context import LifeContext
from app.service.alterations.shared_sending import SharedSending
from app.service.audit_records import AuditConclusion, AuditRequest
from app.service.clock import utc_now
from app.service.cluster_ports import AlterAnswer, ClientQuotaAdmin
from app.service.journal_ports import AuditJournal
from app.service.metrics_port import Phase, timed
from app.service.off_loop import off_loop
from app.service.patience import Patience

SEND_BY_S: Final = 3.0
"""How long the checks between the record of an intent and its sending may take."""

SEND_BY_S_PER_ENTITY: Final = 0.0005
"""What they may take longer for each entity."""

RECORD_S_PER_ROW: Final = 0.001
"""What each row may add to the record of an intent."""

Results = Mapping[int, AlterationResult]
Event = tuple[datetime, str, str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SendingReport:
    """Results by ordinal, and what is known of the way there.

    Attributes:
        results: One for each entity of the request.
        sent: Whether a request that changes something was handed to a broker.
        broker_id: The broker that answered, or null.
        retry_after_s: Where the broker throttles, in seconds.
    """

    results: Results
    sent: bool = False
    broker_id: int | None = None
    retry_after_s: float | None = None

    @property
    def is_answered(self) -> bool:
        """Whether it was sent, and of every entity it is known what became of it."""
        unknown = any(one.outcome is Outcome.UNKNOWN for one in self.results.values())
        return self.sent and not unknown


class AlterationSending:
    """Sends what was judged and committed, and commits what became of it."""

    def __init__(
        self,
        admin: ClientQuotaAdmin,
        journal: AuditJournal,
        outcomes: OutcomeWriter,
        late: LateAnswers,
        context: LifeContext,
    ) -> None:
        self._admin = admin
        self._shared = SharedSending(admin)
        self._journal = journal
        self._outcomes = outcomes
        self._late = late
        self._failpoints = context.failpoints
        self._metrics = context.metrics

    async def validate(self, request: AuditRequest) -> SendingReport:
        """Ask the broker for its verdict without the change, and keep the attempt."""
        report = await _judged(request, await self._verdict(request))
        await self._journal.record_final(request, report.results)
        return report

    async def refuse_expectations(self, request: AuditRequest, failed: Mapping[int, str]) -> None:
        """Conclude an intent whose expectations do not hold; nothing is sent."""
        results = unexpected_results(request.entities, failed)
        event = (utc_now(), "outcome", "an expectation does not hold; nothing was sent")
        await self._concluded(request, SendingReport(results), (event,))

    async def keep_refused_expectations(
        self, request: AuditRequest, failed: Mapping[int, str]
    ) -> None:
        """Keep a validation whose expectations do not hold."""
        await self._journal.record_final(request, unexpected_results(request.entities, failed))

    async def not_sent(self, request: AuditRequest, error: Exception) -> SendingReport:
        """Conclude an intent of which nothing was sent.

        Raises:
            QuotaError: The error, where it says more than that nothing was sent.
        """
        if not isinstance(error, QuotaError):
            error = fault_before_sending(request, error)
        conclusion = conclusion_not_sent(request, error)
        report = SendingReport(conclusion.results)
        await self._concluded(request, report, tuple(conclusion.events))
        if not isinstance(error, NotSentError):
            # a copy: others who shared the request have the same error
            raise replace(error, alteration_id=request.alteration_id) from error
        return report

    async def apply(
        self, request: AuditRequest, *, send_by: float, validate_first: bool
    ) -> SendingReport:
        """Send, and commit what became of it.

        Args:
            request: Its intent is committed.
            send_by: Until when it may be handed over, by ``boot_time``.
            validate_first: Let the broker judge all entities before any is applied.

        Raises:
            OutcomeNotRecordedError: The cluster has answered; the record is not written yet.
            QuotaError: The brokers cannot be told this; nothing was sent.
        """
        if validate_first:
            judged = await self._validated_first(request)
            if judged is not None:
                return judged
        self._failpoints.reach("before_send")
        return await self._sent(request, send_by)

    async def _validated_first(self, request: AuditRequest) -> SendingReport | None:
        try:
            answer = await self._verdict(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was handed over
            return await self.not_sent(request, error)
        if all(one.outcome is Outcome.VALIDATED for one in answer.verdicts.values()):
            return None
        judged = await _judged(request, answer)
        results = held_back(judged.results, request.entities)
        event = (utc_now(), "outcome", "refused by the broker's own validation; nothing was sent")
        report = SendingReport(results, False, judged.broker_id, judged.retry_after_s)
        return await self._concluded(request, report, (event,))

    async def _verdict(self, request: AuditRequest) -> AlterAnswer:
        return await self._admin.alter_client_quotas(
            _alterations(request), validate_only=True, broker_id=request.broker_id
        )

    async def _sent(self, request: AuditRequest, send_by: float) -> SendingReport:
        try:
            with timed(self._metrics, Phase.KAFKA):
                answer = await self._shared.send(
                    _alterations(request), broker_id=request.broker_id, send_by=send_by
                )
            self._failpoints.reach("after_answer")
            entities = request.entities
            results = await off_loop(len(entities), answered_results, entities, answer)
        except QuotaError as error:
            return await self.not_sent(request, error)
        except Exception:  # where it came from is not known, nor then whether it was sent
            logger.exception("%s may have been sent", request.alteration_id)
            return await self._in_doubt(request)
        words = ", ".join(sorted({one.outcome.value for one in results.values()}))
        events = (
            (answer.sent_at, "sent", f"handed to broker {answer.broker_id}"),
            (answer.answered_at, "outcome", words),
        )
        report = SendingReport(results, True, answer.broker_id, throttle_time_s(answer))
        try:
            return await self._concluded(request, report, events)
        finally:
            self._late.listen(request, answer)

    async def _in_doubt(self, request: AuditRequest) -> SendingReport:
        reason = KafkaRefusal(None, "A fault of this service came between.")
        results = results_of(request.entities, Outcome.UNKNOWN, reason)
        event = (utc_now(), "outcome", Outcome.UNKNOWN.value)
        return await self._concluded(request, SendingReport(results, sent=True), (event,))

    async def _concluded(
        self, request: AuditRequest, report: SendingReport, events: tuple[Event, ...]
    ) -> SendingReport:
        conclusion = AuditConclusion(request.alteration_id, report.results, events)
        with timed(self._metrics, Phase.TX2):
            written = await self._outcomes.write(conclusion)
        if not written and report.is_answered:
            raise OutcomeNotRecordedError(
                "The cluster has answered; its answer is not in the audit log yet and will be "
                "written as soon as the log takes it. Ask for the alteration instead of repeating.",
                sent=Sent.YES,
                alteration_id=request.alteration_id,
                results=tuple(report.results[ordinal] for ordinal in sorted(report.results)),
            )
        self._failpoints.reach("after_conclusion")
        return report


def send_within_s(number: int, patience: Patience, *, tables: int = 2) -> float:
    """Return how long after its transaction was begun an intent may still be handed over.

    Recovery counts from the end of this time, as the database measures it.

    Args:
        number: Of entities.
        patience: How long a transaction may take; where others shared it, it is tried again.
        tables: To how many tables the intent adds a row for each entity.
    """
    record_s = 2 * patience.database_answer_s + number * tables * RECORD_S_PER_ROW
    return record_s + SEND_BY_S + number * SEND_BY_S_PER_ENTITY


def _alterations(request: AuditRequest) -> list[ClientQuotaAlteration]:
    return [entity.alteration for entity in request.entities]


async def _judged(request: AuditRequest, answer: AlterAnswer) -> SendingReport:
    return await off_loop(len(request.entities), _judgement, request, answer)


def _judgement(request: AuditRequest, answer: AlterAnswer) -> SendingReport:
    results = {
        ordinal: result if result.outcome is not Outcome.UNKNOWN else _unjudged(result)
        for ordinal, result in answered_results(request.entities, answer).items()
    }
    return SendingReport(results, False, answer.broker_id, throttle_time_s(answer))


def _unjudged(result: AlterationResult) -> AlterationResult:
    """A validation without an answer changed nothing: it is not sent, not unknown."""
    return AlterationResult(
        result.entity,
        Outcome.NOT_SENT,
        changed=False,
        before=result.before,
        after=result.before,
        error=result.error,
        warnings=result.warnings,
    )
