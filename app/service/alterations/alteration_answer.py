"""Which reports are answers, and which are errors that carry the report."""

from typing import Any, Final

from app.domain.alterations import OVERTAKEN, Outcome, Overall
from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    NotSentError,
    OutcomeSupersededError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnknownOutcomeError,
    UnsupportedVersionError,
)
from app.service.alterations.alteration_command import AlterationReport, refusal_violations
from app.service.alterations.alteration_sending import SendingReport

_REFUSALS: Final[dict[str | None, tuple[type[QuotaError], str]]] = {
    "CLUSTER_AUTHORIZATION_FAILED": (BrokerError, "service-account-not-authorized"),
    "SECURITY_DISABLED": (BrokerError, "service-account-not-authorized"),
    "THROTTLING_QUOTA_EXCEEDED": (TooManyRequestsError, "throttled-by-broker"),
    "UNSUPPORTED_VERSION": (UnsupportedVersionError, "unsupported-broker-version"),
}
"""A broker's refusal of a whole request, by Kafka's error; any other is an invalid request."""


def raise_unless_done(
    report: AlterationReport, sending: SendingReport, *, all_or_nothing: bool
) -> None:
    """Let a report pass that is an answer: applied, validated, or partial where that was asked.

    Raises:
        UnknownOutcomeError: For at least one entity nobody knows.
        NotSentError: Nothing was sent.
        OutcomeSupersededError: Recovery found that an entity was not applied, or something else.
        InvalidRequestError: Everything was refused, or held back because something was.
        TooManyRequestsError: The broker throttles.
    """
    outcomes = {result.outcome for result in report.results}
    common: dict[str, Any] = {"alteration_id": report.alteration_id, "results": report.results}
    if Outcome.UNKNOWN in outcomes:
        detail = "The request was sent and no definite answer came; it may have been applied."
        raise UnknownOutcomeError(detail, **common)
    if Outcome.NOT_SENT in outcomes and Outcome.APPLIED not in outcomes:
        raise NotSentError(_first_message(report, Outcome.NOT_SENT), **common)
    if _is_overtaken(outcomes):
        detail = "Not everything was applied as asked for: see results for what was found."
        raise OutcomeSupersededError(detail, **common)
    whole = report.overall is Overall.REFUSED or (report.validate_only and all_or_nothing)
    if Outcome.REFUSED in outcomes and whole:
        raise _refusal(report, sending, common)


def _is_overtaken(outcomes: set[Outcome]) -> bool:
    """Tell whether something was sent and not applied; what is held back was not sent."""
    held_back = Outcome.REFUSED in outcomes and Outcome.APPLIED not in outcomes
    found_not_applied = Outcome.NOT_APPLIED in outcomes and not held_back
    return found_not_applied or not outcomes.isdisjoint(OVERTAKEN)


def _refusal(
    report: AlterationReport, sending: SendingReport, common: dict[str, Any]
) -> QuotaError:
    violations = refusal_violations(dict(enumerate(report.results)))
    kafka_error = next((one.kafka_error for one in violations if one.kafka_error), None)
    error, code = _REFUSALS.get(kafka_error, (InvalidRequestError, "refused-by-broker"))
    throttled = error is TooManyRequestsError
    return error(
        "Nothing was applied: " + _first_message(report, Outcome.REFUSED),
        code=code,
        kafka_error=kafka_error,
        sent=Sent.YES if sending.sent else Sent.NO,
        retry=Retry.SAFE if throttled else Retry.NEVER,
        violations=violations,
        retry_after_s=(sending.retry_after_s or 1) if throttled else None,
        **common,
    )


def _first_message(report: AlterationReport, outcome: Outcome) -> str:
    messages = (one.error.message for one in report.results if one.outcome is outcome and one.error)
    return next(messages, outcome.value)
