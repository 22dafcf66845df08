"""``expected``: the values that a caller believes to hold now."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from app.domain.alterations import Outcome, Quotas, Values, same_value
from app.domain.errors import ExpectationFailedError, Violation
from app.domain.validation import exact_float
from app.service.alterations.command import Expected, Precondition
from app.service.ports.audit_log import AlterationRecord, AuditEntity, AuditRequest
from app.service.ports.plans import ReadSet

NOT_AS_EXPECTED: Final = "The present values are not the expected ones; nothing was applied."


def failed_expectations(
    expected: Mapping[int, Expected],
    entities: Iterable[AuditEntity],
    precondition: Precondition | None = None,
) -> list[Violation]:
    """Return an entry for each entity whose expectations do not hold, with its present values."""
    failed = []
    for entity in entities:
        before = entity.before or {}
        wrong = [
            key
            for key, value in expected.get(entity.ordinal, {}).items()
            if not _holds(before.get(key), value)
        ]
        if wrong:
            detail = f"Not as expected: {', '.join(wrong)}."
            failed.append(_failure(entity.ordinal, detail, before))
        elif precondition is not None and not precondition(before):
            detail = "The entity is not as the request's precondition wants it; read it again."
            failed.append(_failure(entity.ordinal, detail, before))
    return failed


def failed_before(record: AlterationRecord) -> list[Violation]:
    """Return what ``failed_expectations`` returned when the alteration was concluded.

    A refusal that has no Kafka error and that was not found before the intent is of this kind.
    """
    return [
        _failure(ordinal, result.error.message, result.before or {})
        for ordinal, result in sorted(record.results.items())
        if result.outcome is Outcome.REFUSED
        and result.error is not None
        and result.error.kafka_error is None
        and ordinal not in record.request.local_refusals
    ]


def moved_beside(beside: ReadSet, values: Quotas) -> list[Violation]:
    """Return an entry for each entity that a plan rests on and that does not hold its values.

    Args:
        beside: What the plan rests on and does not touch.
        values: What a barrier read shows.
    """
    moved = []
    for entity, expected in beside.items():
        present = values.get(entity, {})
        wrong = [key for key, value in expected.items() if not same_value(present.get(key), value)]
        if wrong:
            named = f"{', '.join(wrong)} of {entity}"
            moved.append(
                Violation(
                    "plan_id",
                    "expectation-failed",
                    f"Not as expected: {named}.",
                    values={"entity": entity.as_dict(), "current": dict(present)},
                )
            )
    return moved


def whole_reasons(failed: Sequence[Violation], entities: Iterable[AuditEntity]) -> dict[int, str]:
    """Return the first failure as the reason of every entity, by ordinal: none is to blame."""
    return {one.ordinal: failed[0].detail for one in entities}


def reasons(failed: Iterable[Violation]) -> dict[int, str]:
    """Return why each entity's expectations do not hold, by ordinal."""
    return {one.index: one.detail for one in failed if one.index is not None}


def expectation_failed(
    failed: Sequence[Violation], request: AuditRequest
) -> ExpectationFailedError:
    """Return the error for the caller."""
    return ExpectationFailedError(
        NOT_AS_EXPECTED, violations=failed, alteration_id=request.alteration_id
    )


def _failure(ordinal: int, detail: str, present: Values) -> Violation:
    return Violation(
        f"/alterations/{ordinal}/expected",
        "expectation-failed",
        detail,
        index=ordinal,
        values={"current": dict(present)},
    )


def _holds(present: float | None, expected: Decimal | float | None) -> bool:
    if isinstance(expected, Decimal):
        exact = exact_float(expected)
        return exact is not None and present == exact
    return same_value(present, expected)
