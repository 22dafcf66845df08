"""What an alteration asks for, the request as it is audited, and what is reported of it."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from app.domain.alterations import (
    OVERTAKEN,
    AlterationResult,
    ClientQuotaAlteration,
    Expected,
    KafkaRefusal,
    Outcome,
    Overall,
    Precondition,
    Quotas,
    apply_ops,
    failed_expectation,
    overall_outcome,
    same_values,
)
from app.domain.entities import Caller
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotSentError,
    OutcomeSupersededError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnknownOutcomeError,
    UnsupportedVersionError,
    Violation,
)
from app.domain.validation import Judgement
from app.service.ports.audit_log import (
    AlterationRecord,
    AuditEntity,
    AuditRequest,
    Conclusion,
    KeyClaim,
    StoredKey,
)
from app.service.ports.brokers import Handover, Verdict
from app.service.ports.plans import PlanApplication

Confirm = Callable[[Sequence[ClientQuotaAlteration], str | None], Awaitable[Mapping[str, Any]]]
"""Returns the evidence, decided again where it is old; takes what is asked for. See ``Grant``."""


class Wait(StrEnum):
    """When an alteration answers, once it is acknowledged."""

    READABLE = "readable"
    ALL_BROKERS = "all_brokers"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key as the caller gave it, and the SHA-256 of what is asked, equal as JSON."""

    text: str
    fingerprint: bytes

    def claim(self, principal: str, cluster_id: str) -> KeyClaim:
        """Return what the log keeps: a key belongs to one principal on one cluster."""
        scope = json.dumps([principal, cluster_id, self.text]).encode()
        return KeyClaim(hashlib.sha256(scope).digest(), self.fingerprint)


@dataclass(frozen=True, slots=True)
class AlterCommand:
    """A request to alter, as read and authorized.

    Attributes:
        evidence: How authorization decided.
        confirm: Decides again right before the act, where the evidence has become old; null for
            what nobody asked for.
        expected: By ordinal; an alteration without expectations is absent.
        precondition: Whether an entity's present values are those that the caller has seen; null
            where the caller did not say.
        violations: Broken rules of the request's own fields, found while it was read.
        key: The idempotency key with the fingerprint of what is asked, or null.
        supersedes: The alteration of unknown outcome whose locks are taken over, or null.
        wait_ms: How long to wait for the change to be readable, in milliseconds.
    """

    caller: Caller
    evidence: Mapping[str, Any]
    request_id: str
    alterations: tuple[ClientQuotaAlteration, ...]
    validate_only: bool = False
    all_or_nothing: bool = True
    wait: Wait = Wait.READABLE
    wait_ms: int = 5000
    reason: str | None = None
    action: str = "alter"
    expected: Mapping[int, Expected] = field(default_factory=dict)
    precondition: Precondition | None = None
    violations: tuple[Violation, ...] = ()
    key: IdempotencyKey | None = None
    supersedes: str | None = None
    plan: PlanApplication | None = None
    confirm: Confirm | None = None

    async def confirmed_evidence(self) -> Mapping[str, Any]:
        """Return how authorization decides now, with what the policy said; raise its refusal."""
        if self.confirm is None:
            return self.evidence
        return {**self.evidence, **await self.confirm(self.alterations, self.reason)}

    def refuse_if_broken(self) -> None:
        """Refuse what the request alone shows to be wrong, before anything is looked up.

        Raises:
            InvalidRequestError: With every violation.
        """
        Judgement((), self.violations, (), needs_stored=False).raise_violations()

    @property
    def options(self) -> dict[str, Any]:
        """The options as the audit log has them."""
        options = {
            "validate_only": self.validate_only,
            "all_or_nothing": self.all_or_nothing,
            "wait": self.wait.value,
            "wait_ms": self.wait_ms,
        }
        return options if self.plan is None else {**options, "plan": self.plan.record}


@dataclass(frozen=True, slots=True)
class AlterationReport:
    """What became of a request; results in request order.

    ``readable`` is null where nobody waited; ``replayed`` tells that an idempotency key found it.
    """

    alteration_id: str
    cluster_id: str
    validate_only: bool
    results: tuple[AlterationResult, ...]
    readable: bool | None = None
    replayed: bool = False

    @property
    def overall(self) -> Overall:
        """The one word for all results."""
        return overall_outcome([result.outcome for result in self.results])


NOT_AS_EXPECTED: Final = "The present values are not the expected ones; nothing was applied."


def failed_before(record: AlterationRecord) -> list[Violation]:
    """Return what ``failed_expectations`` returned when the alteration was concluded.

    A refusal that has no Kafka error and that was not found before the intent is of this kind.
    """
    return [
        failed_expectation(ordinal, result.error.message, result.before or {})
        for ordinal, result in sorted(record.results.items())
        if result.outcome is Outcome.REFUSED
        and result.error is not None
        and result.error.kafka_error is None
        and ordinal not in record.request.local_refusals
    ]


def expectation_failed(
    failed: Sequence[Violation], request: AuditRequest
) -> ExpectationFailedError:
    """Return the error for the caller."""
    return ExpectationFailedError(
        NOT_AS_EXPECTED, violations=failed, alteration_id=request.alteration_id
    )


_CHANGING = frozenset({Outcome.APPLIED, Outcome.VALIDATED})
_OPEN = frozenset({Outcome.UNKNOWN, Outcome.OBSERVED_OTHER, Outcome.SUPERSEDED})


def result_of(entity: AuditEntity, verdict: Verdict) -> AlterationResult:
    """Return the result of one entity.

    ``after`` is null where the outcome is unknown, and where nobody has read what held before;
    after ``validated`` it is what would hold.
    """
    outcome, before = verdict.outcome, entity.before
    after = None if outcome in _OPEN else before
    changed = None if outcome in _OPEN else False
    if outcome in _CHANGING:
        after = apply_ops(before or {}, entity.alteration.ops)
        changed = not same_values(before or {}, after)
    return AlterationResult(
        entity=entity.alteration.entity,
        outcome=outcome,
        changed=changed,
        before=before,
        after=after,
        error=verdict.error,
        warnings=entity.warnings,
    )


def results_of(
    entities: Iterable[AuditEntity], outcome: Outcome, error: KafkaRefusal
) -> dict[int, AlterationResult]:
    """Return the same outcome for each entity, by ordinal."""
    verdict = Verdict(outcome, error)
    return {entity.ordinal: result_of(entity, verdict) for entity in entities}


def answered_results(
    entities: Iterable[AuditEntity], answer: Handover
) -> dict[int, AlterationResult]:
    """Return the broker's verdicts as results, by ordinal."""
    return {
        entity.ordinal: result_of(entity, answer.verdicts[entity.alteration.entity])
        for entity in entities
    }


def as_unchanged(
    results: Mapping[int, AlterationResult], judged: Outcome, outcome: Outcome
) -> dict[int, AlterationResult]:
    """Return results with another outcome for what was only judged so: nothing was changed."""
    return {
        ordinal: replace(result, outcome=outcome, changed=False, after=result.before)
        if result.outcome is judged
        else result
        for ordinal, result in results.items()
    }


def unexpected_results(
    entities: Sequence[AuditEntity], failed: Sequence[Violation]
) -> dict[int, AlterationResult]:
    """Return the results where expectations do not hold: refused, and not applied the others.

    Where no entity is to blame every one is refused.
    """
    why = {each.index: each.detail for each in failed if each.index is not None}
    why = why or {entity.ordinal: failed[0].detail for entity in entities}
    refused = {
        ordinal: Verdict(Outcome.REFUSED, KafkaRefusal(None, detail))
        for ordinal, detail in why.items()
    }
    others = Verdict(Outcome.NOT_APPLIED)
    return {
        entity.ordinal: result_of(entity, refused.get(entity.ordinal, others))
        for entity in entities
    }


def throttle_time_s(answer: Handover) -> float | None:
    """Return how long the broker asks to stay away, in seconds; null if it does not."""
    longest = max((verdict.throttle_time_ms for verdict in answer.verdicts.values()), default=0)
    return longest / 1000 if longest else None


def in_order(results: Mapping[int, AlterationResult]) -> tuple[AlterationResult, ...]:
    """Return the results in the order of the request."""
    return tuple(results[ordinal] for ordinal in sorted(results))


def applied_quotas(results: Iterable[AlterationResult]) -> Quotas:
    """Return the values of what was applied."""
    return {
        result.entity: result.after
        for result in results
        if result.outcome is Outcome.APPLIED and result.after is not None
    }


_REFUSED: Final = "refused-by-broker"

_REFUSALS: Final[dict[str | None, tuple[type[QuotaError], str]]] = {
    "CLUSTER_AUTHORIZATION_FAILED": (BrokerError, "service-account-not-authorized"),
    "SECURITY_DISABLED": (BrokerError, "service-account-not-authorized"),
    "THROTTLING_QUOTA_EXCEEDED": (TooManyRequestsError, "throttled-by-broker"),
    "UNSUPPORTED_VERSION": (UnsupportedVersionError, "unsupported-broker-version"),
}
"""A broker's refusal of a whole request, by Kafka's error; any other is an invalid request."""


def raise_unless_done(
    report: AlterationReport, sending: Conclusion, *, all_or_nothing: bool
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
    if sending.error is not None:
        is_not_sent = isinstance(sending.error, NotSentError)
        raise replace(sending.error, **common) if is_not_sent else sending.error
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


def _refusal(report: AlterationReport, sending: Conclusion, common: dict[str, Any]) -> QuotaError:
    violations = [
        Violation(f"/alterations/{n}", _REFUSED, each.error.message, each.error.kafka_error, n)
        for n, each in enumerate(report.results)
        if each.outcome is Outcome.REFUSED and each.error is not None
    ]
    kafka_error = next(filter(None, (violation.kafka_error for violation in violations)), None)
    error, code = _REFUSALS.get(kafka_error, (InvalidRequestError, _REFUSED))
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
    messages = (
        result.error.message
        for result in report.results
        if result.outcome is outcome and result.error
    )
    return next(messages, outcome.value)


def replayed_report(
    command: AlterCommand, stored: StoredKey, record: AlterationRecord | None
) -> AlterationReport:
    """Answer a repeated request with the same idempotency key from the log: its present truth.

    Raises:
        InvalidRequestError: The key was used for another request.
        EntityBusyError: The alteration is still running.
        ExpectationFailedError: An expectation did not hold.
        UnknownOutcomeError: Its outcome is still unknown.
        OutcomeSupersededError: Something else was found than what was asked for.
    """
    if command.key is None or stored.fingerprint != command.key.fingerprint:
        detail = "This idempotency key was used for another request; choose a new one."
        code = "idempotency-key-reused"
        violation = Violation("Idempotency-Key", code, detail)
        raise InvalidRequestError(detail, code=code, violations=[violation])
    if record is None or not record.concluded:
        raise EntityBusyError(
            "The request with this idempotency key is still running; ask again.",
            code="idempotency-key-running",
            retry=Retry.SAME_KEY_ONLY,
            alteration_id=stored.alteration_id,
            retry_after_s=1,
        )
    request = record.request
    report = AlterationReport(
        request.alteration_id,
        request.cluster_id,
        validate_only=False,
        results=in_order(record.results),
        replayed=True,
    )
    sent = any(event == "sent" for _, event, _ in record.history)
    conclusion = Conclusion(request.alteration_id, record.results, sent=sent)
    try:
        if failed := failed_before(record):
            raise expectation_failed(failed, request)
        raise_unless_done(report, conclusion, all_or_nothing=command.all_or_nothing)
    except QuotaError as error:
        error.replayed = True
        raise
    return report
