"""From an intent and a verdict to a result."""

from collections.abc import Iterable, Mapping

from app.domain.alterations import (
    AlterationResult,
    KafkaRefusal,
    Outcome,
    Quotas,
    apply_ops,
    same_values,
)
from app.domain.errors import QuotaError
from app.service.audit_records import AuditConclusion, AuditEntity, AuditRequest
from app.service.clock import utc_now
from app.service.cluster_ports import AlterAnswer

_CHANGING = frozenset({Outcome.APPLIED, Outcome.VALIDATED})
_OPEN = frozenset({Outcome.UNKNOWN, Outcome.OBSERVED_OTHER, Outcome.SUPERSEDED})


def result_of(
    entity: AuditEntity, outcome: Outcome, error: KafkaRefusal | None = None
) -> AlterationResult:
    """Return the result of one entity.

    ``after`` is null where the outcome is unknown; after ``validated`` it is what would hold.
    """
    before = entity.before or {}
    after = before
    if outcome in _CHANGING:
        after = apply_ops(before, entity.alteration.ops)
    uncertain = outcome in _OPEN
    return AlterationResult(
        entity=entity.alteration.entity,
        outcome=outcome,
        changed=None if uncertain else not same_values(before, after),
        before=before,
        after=None if uncertain else after,
        error=error,
        warnings=entity.warnings,
    )


def results_of(
    entities: Iterable[AuditEntity], outcome: Outcome, error: KafkaRefusal | None = None
) -> dict[int, AlterationResult]:
    """Return the same outcome for each entity, by ordinal."""
    return {entity.ordinal: result_of(entity, outcome, error) for entity in entities}


def answered_results(
    entities: Iterable[AuditEntity], answer: AlterAnswer
) -> dict[int, AlterationResult]:
    """Return the broker's verdicts as results, by ordinal."""
    results = {}
    for entity in entities:
        verdict = answer.verdicts[entity.alteration.entity]
        results[entity.ordinal] = result_of(entity, verdict.outcome, verdict.error)
    return results


def held_back(
    results: Mapping[int, AlterationResult], entities: Iterable[AuditEntity]
) -> dict[int, AlterationResult]:
    """Return the results of a refused whole: what was valid is ``not_applied``."""
    return {
        entity.ordinal: results[entity.ordinal]
        if results[entity.ordinal].outcome is not Outcome.VALIDATED
        else result_of(entity, Outcome.NOT_APPLIED)
        for entity in entities
    }


def throttle_time_s(answer: AlterAnswer) -> float | None:
    """Return how long the broker asks to stay away, in seconds; null if it does not."""
    longest = max((verdict.throttle_time_ms for verdict in answer.verdicts.values()), default=0)
    return longest / 1000 if longest else None


def unexpected_results(
    entities: Iterable[AuditEntity], failed: Mapping[int, str]
) -> dict[int, AlterationResult]:
    """Return the results where expectations do not hold: refused, and held back the others.

    Args:
        entities: Of the request.
        failed: What does not hold, by ordinal.
    """
    return {
        entity.ordinal: result_of(
            entity, Outcome.REFUSED, KafkaRefusal(None, failed[entity.ordinal])
        )
        if entity.ordinal in failed
        else result_of(entity, Outcome.NOT_APPLIED)
        for entity in entities
    }


def in_order(results: Mapping[int, AlterationResult]) -> tuple[AlterationResult, ...]:
    """Return the results in the order of the request."""
    return tuple(results[ordinal] for ordinal in sorted(results))


def applied_quotas(results: Mapping[int, AlterationResult]) -> Quotas:
    """Return the values of what was applied."""
    return {
        one.entity: one.after
        for one in results.values()
        if one.outcome is Outcome.APPLIED and one.after is not None
    }


def conclusion_not_sent(request: AuditRequest, error: QuotaError) -> AuditConclusion:
    """Return the conclusion of an intent of which nothing was sent."""
    refusal = KafkaRefusal(error.kafka_error, error.detail)
    results = results_of(request.entities, Outcome.NOT_SENT, refusal)
    event = (utc_now(), "outcome", f"not sent: {error.detail}")
    return AuditConclusion(request.alteration_id, results, (event,))
