"""What our own rules refuse: the whole request, or an entity of it."""

from app.domain.alterations import AlterationResult, KafkaRefusal, Outcome, Quotas
from app.domain.errors import InvalidRequestError
from app.domain.validation import Judgement


def raise_violations(judgement: Judgement, *, all_or_nothing: bool) -> None:
    """Refuse the request as a whole where it must be.

    Raises:
        InvalidRequestError: With every violation.
    """
    violations = judgement.violations
    if not violations:
        return
    whole = any(one.index is None for one in violations)
    refused = {one.index for one in violations}
    if not (all_or_nothing or whole or len(refused) == len(judgement.alterations)):
        return
    kafka_error = next((one.kafka_error for one in violations if one.kafka_error), None)
    raise InvalidRequestError(
        "The request breaks rules of Kafka or of this service; nothing was sent. Every violation "
        "is listed in errors.",
        kafka_error=kafka_error,
        violations=violations,
    )


def refused_locally(judgement: Judgement, stored: Quotas) -> dict[int, AlterationResult]:
    """Return the results of the entities that break a rule, each with its first violation.

    Args:
        judgement: With the violations.
        stored: The present values, which stay as they are.
    """
    refused: dict[int, AlterationResult] = {}
    for violation in judgement.violations:
        if violation.index is not None and violation.index not in refused:
            entity = judgement.alterations[violation.index].entity
            error = KafkaRefusal(violation.kafka_error, violation.detail)
            values = stored.get(entity, {})
            refused[violation.index] = AlterationResult(
                entity, Outcome.REFUSED, changed=False, before=values, after=values, error=error
            )
    return refused
