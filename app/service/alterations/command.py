"""What an alteration asks for and expects, what it reports, and the request as it is audited."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Outcome,
    Overall,
    Quotas,
    Values,
    overall_outcome,
    same_value,
)
from app.domain.entities import Caller
from app.domain.errors import ExpectationFailedError, InvalidRequestError, Violation
from app.domain.plans import ReadSet
from app.domain.validation import Judgement, exact_float
from app.service.ports.audit_log import AlterationRecord, AuditEntity, AuditRequest, KeyClaim
from app.service.ports.plans import PlanApplication
from app.service.runtime.clock import new_alteration_id


class Wait(StrEnum):
    """When an alteration answers, once it is acknowledged."""

    READABLE = "readable"
    ALL_BROKERS = "all_brokers"
    NONE = "none"


Expected = Mapping[str, Decimal | float | None]
"""The values that must hold now: as written, NaN or infinity; null means not set."""


Precondition = Callable[[Values], bool]


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


def refusal_violations(results: Mapping[int, AlterationResult]) -> tuple[Violation, ...]:
    """Return the refused results as violations, each with its position in the request."""
    return tuple(
        Violation(
            f"/alterations/{ordinal}",
            "refused-by-broker",
            result.error.message,
            result.error.kafka_error,
            ordinal,
        )
        for ordinal, result in sorted(results.items())
        if result.outcome is Outcome.REFUSED and result.error is not None
    )


def raise_violations(judgement: Judgement, *, all_or_nothing: bool) -> None:
    """Refuse the request as a whole where it must be.

    Raises:
        InvalidRequestError: With every violation.
    """
    violations = judgement.violations
    if not violations:
        return
    whole = any(violation.index is None for violation in violations)
    refused = {violation.index for violation in violations}
    if not (all_or_nothing or whole or len(refused) == len(judgement.alterations)):
        return
    kafka_error = next(filter(None, (violation.kafka_error for violation in violations)), None)
    raise InvalidRequestError(
        "The request breaks rules of Kafka or of this service; nothing was sent. Every violation "
        "is listed in errors.",
        kafka_error=kafka_error,
        violations=violations,
    )


def refused_locally(judgement: Judgement, stored: Quotas) -> dict[int, AlterationResult]:
    """Return the results of the entities that break a rule, each with its first violation."""
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


def audit_request(
    command: AlterCommand, judgement: Judgement, stored: Quotas, cluster_id: str, broker_id: int
) -> AuditRequest:
    """Return what may be sent under a new id, and what our own rules refuse of it."""
    refused = {violation.index for violation in judgement.violations}
    return AuditRequest(
        alteration_id=new_alteration_id(),
        cluster_id=cluster_id,
        caller=command.caller,
        action="validate" if command.validate_only else command.action,
        request_id=command.request_id,
        entities=tuple(
            AuditEntity(
                ordinal, alteration, stored.get(alteration.entity, {}), judgement.warnings[ordinal]
            )
            for ordinal, alteration in enumerate(judgement.alterations)
            if ordinal not in refused
        ),
        local_refusals=refused_locally(judgement, stored),
        reason=command.reason,
        decision=command.evidence,
        options=command.options,
        broker_id=broker_id,
    )


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
    """Return an entry for each entity that a plan rests on and that does not hold its values."""
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


def reasons(failed: Sequence[Violation], entities: Iterable[AuditEntity]) -> dict[int, str]:
    """Return why expectations do not hold, by ordinal; of every entity where none is to blame."""
    own = {each.index: each.detail for each in failed if each.index is not None}
    return own or {entity.ordinal: failed[0].detail for entity in entities}


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
