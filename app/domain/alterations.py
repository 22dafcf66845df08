"""Alterations: what is to change, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from app.domain.entities import ClientQuotaEntity

Values = Mapping[str, float]
"""The values of one entity by key. Float64, as on the wire; NaN and infinity can be stored."""

Quotas = Mapping[ClientQuotaEntity, Values]
"""The stored values of many entities."""


class Outcome(StrEnum):
    """What became of one entity's alteration."""

    APPLIED = "applied"
    VALIDATED = "validated"
    REFUSED = "refused"
    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"
    NOT_SENT = "not_sent"
    OBSERVED_OTHER = "observed_other"
    SUPERSEDED = "superseded"


class Overall(StrEnum):
    """What became of a whole request."""

    APPLIED = "applied"
    VALIDATED = "validated"
    PARTIAL = "partial"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True)
class Op:
    """Set a key to ``value``, or remove it.

    As proposed, both or neither of value and ``remove`` may be given; validation tells. The value
    keeps every digit that the caller wrote until validation has judged it.
    """

    key: str
    value: Decimal | None = None
    remove: bool = False


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """The operations on one entity. Source: ``ClientQuotaAlteration``."""

    entity: ClientQuotaEntity
    ops: tuple[Op, ...]

    @property
    def only_removes(self) -> bool:
        """Whether nothing is set."""
        return all(op.remove and op.value is None for op in self.ops)


@dataclass(frozen=True, slots=True)
class KafkaRefusal:
    """Why an entity was refused: Kafka's error name (null where the rule is ours) and a text."""

    kafka_error: str | None
    message: str


@dataclass(frozen=True, slots=True)
class AlterationResult:
    """What became of one entity; ``before`` and ``after`` are the whole entity's values.

    ``before`` and ``after`` are null where they are not known. ``warnings`` are sentences.
    """

    entity: ClientQuotaEntity
    outcome: Outcome
    changed: bool | None = None
    before: Values | None = None
    after: Values | None = None
    error: KafkaRefusal | None = None
    warnings: tuple[str, ...] = field(default=())


def same_value(left: float | None, right: float | None) -> bool:
    """Compare two stored values as a broker does: NaN equals NaN, null means not set."""
    return left == right or (left != left and right != right)  # noqa: PLR0124 - NaN


def same_values(left: Values, right: Values) -> bool:
    """Compare the values of two states of one entity."""
    return left.keys() == right.keys() and all(same_value(left[key], right[key]) for key in left)


def apply_ops(before: Values, ops: tuple[Op, ...]) -> dict[str, float]:
    """Return the values after the operations; a removed key is absent."""
    after = dict(before)
    for op in ops:
        if op.remove:
            after.pop(op.key, None)
        elif op.value is not None:
            after[op.key] = float(op.value)
    return after


_NOT_CERTAIN = frozenset({Outcome.UNKNOWN, Outcome.OBSERVED_OTHER, Outcome.SUPERSEDED})


def overall_outcome(outcomes: list[Outcome]) -> Overall:
    """Return the one word for a request, from the words for its entities.

    A request about no entity is a plan without changes: there was nothing to do, and that is done.
    """
    kinds = set(outcomes)
    if not kinds:
        return Overall.APPLIED
    if kinds & _NOT_CERTAIN:
        return Overall.UNKNOWN
    if len(kinds) == 1:
        only = kinds.pop()
        return Overall.REFUSED if only is Outcome.NOT_APPLIED else Overall(only.value)
    if kinds <= {Outcome.REFUSED, Outcome.NOT_APPLIED}:
        return Overall.REFUSED
    if Outcome.NOT_SENT in kinds and Outcome.APPLIED not in kinds:
        return Overall.NOT_SENT
    return Overall.PARTIAL
