"""What became of an alteration: results of its entities, its conclusion, the caller's answer."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from app.domain.alterations import (
    OVERTAKEN,
    AlterationResult,
    KafkaRefusal,
    Outcome,
    Overall,
    Quotas,
    apply_ops,
    failed_expectation,
    failed_expectations,
    failed_read_set,
    same_values,
)
from app.domain.drastic import drastic_warnings
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotSentError,
    OutcomeSupersededError,
    PolicyViolationError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnknownOutcomeError,
    UnsupportedVersionError,
    Violation,
)
from app.service.ports.alterations import Alteration, AlterationRecord, Change, Conclusion
from app.service.ports.audit_log import StoredKey
from app.service.ports.brokers import Handover, Verdict
from app.service.runtime.clock import utc_now

logger = logging.getLogger(__name__)

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
        and ordinal not in record.alteration.local_refusals
    ]


def expectation_failed(failed: Sequence[Violation], alteration_id: str) -> ExpectationFailedError:
    """Return the error for the caller."""
    return ExpectationFailedError(NOT_AS_EXPECTED, violations=failed, alteration_id=alteration_id)


_CHANGING = frozenset({Outcome.APPLIED, Outcome.VALIDATED})
_OPEN = frozenset({Outcome.UNKNOWN, Outcome.OBSERVED_OTHER, Outcome.SUPERSEDED})


def result_of(change: Change, verdict: Verdict) -> AlterationResult:
    """Return the result of one entity.

    ``after`` is null where the outcome is unknown, and where nobody has read what held before;
    after ``validated`` it is what would hold.
    """
    outcome, before = verdict.outcome, change.before
    after = None if outcome in _OPEN else before
    changed = None if outcome in _OPEN else False
    warnings = change.warnings
    if outcome in _CHANGING:
        after = apply_ops(before or {}, change.ops)
        changed = not same_values(before or {}, after)
        if before is not None:
            warnings += drastic_warnings(before, change.ops)
    return AlterationResult(
        entity=change.entity,
        outcome=outcome,
        changed=changed,
        before=before,
        after=after,
        error=verdict.error,
        warnings=warnings,
    )


def results_of(
    alteration: Alteration, verdict_of: Callable[[Change], Verdict]
) -> dict[int, AlterationResult]:
    """Return the result of each entity, by ordinal."""
    return {change.ordinal: result_of(change, verdict_of(change)) for change in alteration.changes}


def _of_all(
    alteration: Alteration, outcome: Outcome, error: KafkaRefusal | None = None
) -> dict[int, AlterationResult]:
    return results_of(alteration, lambda _: Verdict(outcome, error))


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


def throttle_time_s(answer: Handover) -> float | None:
    """Return how long the broker asks to stay away, in seconds; null if it does not."""
    longest = max((verdict.throttle_time_ms for verdict in answer.verdicts.values()), default=0)
    return longest / 1000 if longest else None


def fault_before_sending(alteration: Alteration, fault: Exception) -> QuotaError:
    """Log a fault of ours for which an alteration was not sent; return the error to answer."""
    logger.error("%s is not sent for a fault", alteration.alteration_id, exc_info=fault)
    detail = "A fault of this service; report the request id. Nothing was sent."
    return QuotaError(detail, retry=Retry.SAFE, alteration_id=alteration.alteration_id)


def not_sent(alteration: Alteration, error: Exception) -> Conclusion:
    """Conclude an intent of which nothing was sent; the error says why."""
    if not isinstance(error, QuotaError):
        error = fault_before_sending(alteration, error)
    refusal = KafkaRefusal(error.kafka_error, error.detail)
    results = _of_all(alteration, Outcome.NOT_SENT, refusal)
    event = (utc_now(), "outcome", f"not sent: {error.detail}")
    # a copy: others who shared the request have the same error
    own = replace(error, alteration_id=alteration.alteration_id)
    own.__cause__ = error
    return Conclusion(alteration.alteration_id, results, (event,), error=own)


class Present(NamedTuple):
    """An alteration beside what holds.

    Attributes:
        alteration: With what truly held before, without what breaks a rule.
        refusal: Why all of it is refused, by what is stored; or null.
        failed: What was not to be expected.
        over_budget: An entry for each budget that it would exceed.
        too_drastic: An entry for each value that it would lower by more than the policy lets it.
    """

    alteration: Alteration
    refusal: InvalidRequestError | None
    failed: Sequence[Violation] = ()
    over_budget: Sequence[Violation] = ()
    too_drastic: Sequence[Violation] = ()


def beside_values(alteration: Alteration, values: Quotas, *, with_plan: bool) -> Present:
    """Judge an alteration by what holds.

    Args:
        alteration: Without values. One that ends another leaves what is not as expected.
        values: As they were read behind a barrier.
        with_plan: Whether what a plan rests on is locked, and is to be judged.
    """
    judged, refusal = alteration.judged_late(values)
    judged = judged.with_values(values)
    if judged.expires is not None:
        left = judged.without_changed()
        return Present(left.with_warnings(left.over_budget(values)), refusal)
    beside = judged.plan.beside if judged.plan and with_plan else {}
    failed = [*_failed_expectations(judged), *failed_read_set(beside, values)]
    return Present(judged, refusal, failed, judged.over_budget(values), judged.too_drastic())


def _failed_expectations(alteration: Alteration) -> Sequence[Violation]:
    expected = {each.ordinal: each.expected for each in alteration.changes if each.expected}
    if not expected and alteration.precondition is None:
        return ()
    before = {each.ordinal: each.before or {} for each in alteration.changes}
    return failed_expectations(expected, before, alteration.precondition)


def nothing_to_end(alteration: Alteration) -> Conclusion:
    """Conclude an expiry whose keys have all been changed since; nothing is sent."""
    event = (utc_now(), "outcome", "not sent: every key has another value now")
    return Conclusion(alteration.alteration_id, {}, (event,))


def breaking_rules(alteration: Alteration, error: InvalidRequestError) -> Conclusion:
    """Conclude an intent that is refused as a whole, by what is stored; nothing is sent.

    Where no entity is to blame every one is refused.
    """
    if alteration.refused_late:
        results = _of_all(alteration, Outcome.NOT_APPLIED)
    else:
        why = KafkaRefusal(error.kafka_error, error.violations[0].detail)
        results = _of_all(alteration, Outcome.REFUSED, why)
    event = (utc_now(), "outcome", "a rule is broken; nothing was sent")
    return Conclusion(alteration.alteration_id, results, (event,), error=error, is_repeatable=True)


def unexpected(alteration: Alteration, failed: Sequence[Violation]) -> Conclusion:
    """Conclude an intent whose expectations do not hold: refused, and not applied the others.

    Where no entity is to blame every one is refused; nothing is sent.
    """
    why = {each.index: each.detail for each in failed if each.index is not None}
    why = why or {change.ordinal: failed[0].detail for change in alteration.changes}
    refused = {n: Verdict(Outcome.REFUSED, KafkaRefusal(None, detail)) for n, detail in why.items()}
    others = Verdict(Outcome.NOT_APPLIED)
    results = results_of(alteration, lambda change: refused.get(change.ordinal, others))
    event = (utc_now(), "outcome", "an expectation does not hold; nothing was sent")
    error = expectation_failed(failed, alteration.alteration_id)
    return Conclusion(alteration.alteration_id, results, (event,), error=error)


def against_policy(
    alteration: Alteration, over_budget: Sequence[Violation], too_drastic: Sequence[Violation]
) -> Conclusion:
    """Conclude an intent that would exceed budgets, or change too much at once for the policy.

    What does so, or raises a sum first, is refused; the others are not applied; nothing is sent.
    It may pass in a minute, so the idempotency key is free again.
    """
    why: dict[int | None, Verdict] = {}
    for each in (*over_budget, *too_drastic):
        why.setdefault(each.index, Verdict(Outcome.REFUSED, KafkaRefusal(None, each.detail)))
    others = Verdict(Outcome.NOT_APPLIED)
    results = results_of(alteration, lambda change: why.get(change.ordinal, others))
    what, detail = _OVER_BUDGET if over_budget else _TOO_DRASTIC
    event = (utc_now(), "outcome", f"{what}; nothing was sent")
    error = PolicyViolationError(
        detail, violations=[*over_budget, *too_drastic], alteration_id=alteration.alteration_id
    )
    return Conclusion(alteration.alteration_id, results, (event,), error=error, is_repeatable=True)


_OVER_BUDGET: Final = (
    "a budget would be exceeded",
    (
        "A budget of this service's policy would be exceeded; nothing was sent. Each is listed in "
        "errors, with those who hold most of it."
    ),
)
_TOO_DRASTIC: Final = (
    "the policy refuses drastic changes",
    (
        "This service's policy refuses to lower a value so much at once; nothing was sent. Each is "
        "listed in errors. Lower it in steps, or remove the value."
    ),
)
"""Each in the history of the alteration, and for the caller."""


def not_to_be_sent(judged: Present) -> Conclusion | None:
    """Conclude what is not to be sent, by what was read; null for what is."""
    alteration, refusal, failed, over_budget, too_drastic = judged
    if refusal is not None:
        return breaking_rules(alteration, refusal)
    if failed:
        return unexpected(alteration, failed)
    if over_budget or too_drastic:
        return against_policy(alteration, over_budget, too_drastic)
    if alteration.expires is not None and not alteration.changes:
        return nothing_to_end(alteration)
    return None


def judgement(alteration: Alteration, answer: Handover) -> Conclusion:
    """A validation without an answer changed nothing: it is not sent, not unknown."""
    results = results_of(alteration, lambda change: answer.verdicts[change.entity])
    return Conclusion(
        alteration.alteration_id,
        as_unchanged(results, Outcome.UNKNOWN, Outcome.NOT_SENT),
        broker_id=answer.broker_id,
        retry_after_s=throttle_time_s(answer),
    )


def held_back(judged: Conclusion) -> Conclusion:
    """Conclude an intent of which the broker's own validation refuses something."""
    results = as_unchanged(judged.results, Outcome.VALIDATED, Outcome.NOT_APPLIED)
    event = (utc_now(), "outcome", "refused by the broker's own validation; nothing was sent")
    return replace(judged, results=results, events=(event,))


def if_applied(group: Iterable[Alteration]) -> list[Mapping[int, AlterationResult]]:
    """Return for each alteration the results that it has where all of it is applied."""
    return [_of_all(alteration, Outcome.APPLIED) for alteration in group]


def answered(
    alteration: Alteration, answer: Handover, if_applied: Mapping[int, AlterationResult]
) -> Conclusion:
    """Conclude an intent that was handed over and answered, or not answered in time."""
    verdicts = [(change, answer.verdicts[change.entity]) for change in alteration.changes]
    results = {
        change.ordinal: if_applied[change.ordinal]
        if verdict.outcome is Outcome.APPLIED
        else result_of(change, verdict)
        for change, verdict in verdicts
    }
    words = ", ".join(sorted({result.outcome.value for result in results.values()}))
    events = (
        (answer.sent_at, "sent", f"handed to broker {answer.broker_id}"),
        (answer.answered_at, "outcome", words),
    )
    return Conclusion(
        alteration.alteration_id,
        results,
        events,
        sent=True,
        broker_id=answer.broker_id,
        retry_after_s=throttle_time_s(answer),
        late=answer.late,
    )


def in_doubt(alteration: Alteration) -> Conclusion:
    """Conclude an intent of which a fault leaves open whether it was sent."""
    reason = KafkaRefusal(None, "A fault of this service came between.")
    results = _of_all(alteration, Outcome.UNKNOWN, reason)
    event = (utc_now(), "outcome", Outcome.UNKNOWN.value)
    return Conclusion(alteration.alteration_id, results, (event,), sent=True)


def in_order(results: Mapping[int, AlterationResult]) -> dict[int, AlterationResult]:
    """Return the results in the order of the request."""
    return dict(sorted(results.items()))


def applied_quotas(results: Iterable[AlterationResult]) -> Quotas:
    """Return the values of what was applied."""
    return {
        result.entity: result.after
        for result in results
        if result.outcome is Outcome.APPLIED and result.after is not None
    }


_THROTTLED: Final = "THROTTLING_QUOTA_EXCEEDED"


def may_be_repeated(results: Iterable[AlterationResult], *, found: bool = False) -> bool:
    """Tell whether the answer to these results asks for a repeat: the key is free again then.

    That is so where nothing was sent, all was throttled, or recovery found that nothing was
    applied. Where anything was applied, or may have been, the log keeps the key all the same.

    Args:
        results: What an alteration was concluded with.
        found: Whether recovery found them, so that what is not applied was not held back.
    """
    outcomes = list(results)
    undone = {Outcome.NOT_SENT, Outcome.NOT_APPLIED} if found else {Outcome.NOT_SENT}
    refusals = [result.error for result in outcomes if result.outcome is Outcome.REFUSED]
    throttled = all(error is not None and error.kafka_error == _THROTTLED for error in refusals)
    return any(result.outcome in undone for result in outcomes) or (bool(refusals) and throttled)


_REFUSED: Final = "refused-by-broker"

_REFUSALS: Final[dict[str | None, tuple[type[QuotaError], str]]] = {
    "CLUSTER_AUTHORIZATION_FAILED": (BrokerError, "service-account-not-authorized"),
    "SECURITY_DISABLED": (BrokerError, "service-account-not-authorized"),
    _THROTTLED: (TooManyRequestsError, "throttled-by-broker"),
    "UNSUPPORTED_VERSION": (UnsupportedVersionError, "unsupported-broker-version"),
}
"""A broker's refusal of a whole request, by Kafka's error; any other is an invalid request."""


def raise_unless_done(
    record: AlterationRecord, sending: Conclusion, *, all_or_nothing: bool
) -> None:
    """Let a record pass that is an answer: applied, validated, or partial where that was asked.

    Raises:
        UnknownOutcomeError: For at least one entity nobody knows.
        NotSentError: Nothing was sent.
        OutcomeSupersededError: Recovery found that an entity was not applied, or something else.
        InvalidRequestError: Everything was refused, or held back because something was.
        TooManyRequestsError: The broker throttles.
    """
    outcomes = {result.outcome for result in record.results.values()}
    common: dict[str, Any] = {
        "alteration_id": record.alteration.alteration_id,
        "results": tuple(record.results.values()),
    }
    if sending.error is not None:
        is_not_sent = isinstance(sending.error, NotSentError)
        raise replace(sending.error, **common) if is_not_sent else sending.error
    if Outcome.UNKNOWN in outcomes:
        detail = "The request was sent and no definite answer came; it may have been applied."
        raise UnknownOutcomeError(detail, **common)
    if Outcome.NOT_SENT in outcomes and Outcome.APPLIED not in outcomes:
        raise NotSentError(_first_message(record, Outcome.NOT_SENT), **common)
    if _is_overtaken(outcomes):
        detail = "Not everything was applied as asked for: see results for what was found."
        raise OutcomeSupersededError(detail, **common)
    judged = record.alteration.validate_only and all_or_nothing
    whole = record.overall is Overall.REFUSED or judged
    if Outcome.REFUSED in outcomes and whole:
        raise _refusal(record, sending, common)


def _is_overtaken(outcomes: set[Outcome]) -> bool:
    """Tell whether something was sent and not applied; what is held back was not sent."""
    held_back = Outcome.REFUSED in outcomes and Outcome.APPLIED not in outcomes
    found_not_applied = Outcome.NOT_APPLIED in outcomes and not held_back
    return found_not_applied or not outcomes.isdisjoint(OVERTAKEN)


def _refusal(record: AlterationRecord, sending: Conclusion, common: dict[str, Any]) -> QuotaError:
    violations = [
        Violation(f"/alterations/{n}", _REFUSED, each.error.message, each.error.kafka_error, n)
        for n, each in record.results.items()
        if each.outcome is Outcome.REFUSED and each.error is not None
    ]
    kafka_error = next(filter(None, (violation.kafka_error for violation in violations)), None)
    error, code = _REFUSALS.get(kafka_error, (InvalidRequestError, _REFUSED))
    throttled = error is TooManyRequestsError
    return error(
        "Nothing was applied: " + _first_message(record, Outcome.REFUSED),
        code=code,
        kafka_error=kafka_error,
        sent=Sent.YES if sending.sent else Sent.NO,
        retry=Retry.SAFE if throttled else Retry.NEVER,
        violations=violations,
        retry_after_s=(sending.retry_after_s or 1) if throttled else None,
        **common,
    )


def _first_message(record: AlterationRecord, outcome: Outcome) -> str:
    messages = (
        result.error.message
        for result in record.results.values()
        if result.outcome is outcome and result.error
    )
    return next(messages, outcome.value)


def replayed(
    alteration: Alteration, stored: StoredKey, record: AlterationRecord | None
) -> AlterationRecord:
    """Answer a repeated request with the same idempotency key from the log: its present truth.

    Raises:
        InvalidRequestError: The key was used for another request.
        EntityBusyError: The alteration is still running.
        ExpectationFailedError: An expectation did not hold.
        UnknownOutcomeError: Its outcome is still unknown.
        OutcomeSupersededError: Something else was found than what was asked for.
    """
    if alteration.key is None or stored.fingerprint != alteration.key.fingerprint:
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
    sent = any(event == "sent" for _, event, _ in record.history)
    conclusion = Conclusion(stored.alteration_id, record.results, sent=sent)
    try:
        if failed := failed_before(record):
            raise expectation_failed(failed, stored.alteration_id)
        raise_unless_done(record, conclusion, all_or_nothing=alteration.all_or_nothing)
    except QuotaError as error:
        error.replayed = True
        raise
    return replace(record, replayed=True)
