"""Alterations: values as numbers, what is to change and to hold, the inverse, what is observed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.errors import Violation
from app.domain.quota_keys import JAVASCRIPT_TWO_TO_63, LONG_MAX, TWO_TO_63

_IP: Final = EntityType.IP.value

Values = Mapping[str, float]
"""The values of one entity by key. Float64, as on the wire; NaN and infinity can be stored."""

Quotas = Mapping[ClientQuotaEntity, Values]
"""The stored values of many entities."""

DesiredValue = Decimal | float
"""A value as written; a float only for NaN and the infinities, which JSON writes as text."""

Expected = Mapping[str, DesiredValue | None]
"""The values that must hold now; null means not set."""

Precondition = Callable[[Values], bool]
"""Tells whether an entity's present values are those that the caller has seen."""

ReadSet = Mapping[ClientQuotaEntity, Mapping[str, float | None]]
"""Values that must hold, by entity and key; null: not set."""


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
    OBSERVED_OTHER = "observed_other"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Op:
    """Set a key to ``value``, or remove it.

    A caller may propose both or neither; validation refuses that. The value keeps every digit that
    the caller wrote until validation has judged it.
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
        return not [op for op in self.ops if op.value is not None or not op.remove]


def canonical_entity(alteration: ClientQuotaAlteration, stored: Quotas) -> ClientQuotaEntity:
    """Return the entity as it is sent: an address in its canonical text.

    An alteration that only removes keeps a spelling that the broker lists, so nothing that other
    tools stored is stuck.
    """
    entity = alteration.entity
    name = entity.as_dict().get(_IP)
    canonical = canonical_ip(name) if name else None
    if canonical is None or canonical == name:
        return entity
    if entity in stored and alteration.only_removes:
        return entity
    return ClientQuotaEntity.of({**entity.as_dict(), _IP: canonical})


_RECORD_OVERHEAD_BYTES: Final = 40


def encoded_bytes(alteration: ClientQuotaAlteration) -> int:
    """Return an upper bound for the bytes of this alteration's records in the metadata log.

    Source: ``ClientQuotaRecord``, one record for each key with the whole entity in it.
    """
    entries, ops = alteration.entity.entries, alteration.ops
    names = "".join([f"{kind}{name or ''}" for kind, name in entries])
    overhead = _RECORD_OVERHEAD_BYTES + 8 * len(entries)
    return len(ops) * (overhead + _size(names)) + _size("".join([op.key for op in ops]))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class KafkaRefusal:
    """Why an entity was refused: Kafka's error name (null where the rule is ours) and a text."""

    kafka_error: str | None
    message: str


@dataclass(frozen=True, slots=True)
class AlterationResult:
    """What became of one entity; ``before`` and ``after`` are the whole entity's values.

    ``before`` and ``after`` are null where they are uncertain. ``warnings`` are sentences.
    """

    entity: ClientQuotaEntity
    outcome: Outcome
    changed: bool | None = None
    before: Values | None = None
    after: Values | None = None
    error: KafkaRefusal | None = None
    warnings: tuple[str, ...] = field(default=())


JsonNumber = int | float | str

NOT_NUMBERS: Final[Mapping[str, float]] = {
    text: float(text) for text in ("NaN", "Infinity", "-Infinity")
}
"""Stored values that JSON lacks, by their text in documents."""

_TEXT_OF: Final = {str(value): text for text, value in NOT_NUMBERS.items()}


def quota_value_json(value: float) -> JsonNumber:
    """Return a stored value for JSON.

    Integral values have no fraction; 2^63 is 9223372036854775807; beyond it a float is written,
    because no 64-bit integer holds it; NaN and infinity are strings.
    """
    if value == TWO_TO_63:
        return LONG_MAX
    if abs(value) < TWO_TO_63:
        return int(value) if value.is_integer() else value
    return _TEXT_OF.get(str(value), value)


MAX_EXPONENT: Final = 9_999
"""Numbers beyond 10^±9999 are read as that power: float64 ends at 10^308, so no rule can tell
the difference, and nobody's arithmetic meets an exponent that fills the memory."""


def read_decimal(text: str) -> Decimal:
    """Return a number as JSON writes it, with every digit."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _beyond(text, shrinking="e-" in text.lower())
    if abs(number.adjusted()) <= MAX_EXPONENT:
        return number
    return _beyond(text, shrinking=number.adjusted() < 0)


def _beyond(text: str, *, shrinking: bool) -> Decimal:
    sign = "-" if text.startswith("-") else ""
    mantissa = text.lower().partition("e")[0]
    if not mantissa.strip("+-0."):
        return Decimal(f"{sign}0")
    return Decimal(f"{sign}1e{-MAX_EXPONENT if shrinking else MAX_EXPONENT}")


def normalize_unlimited(value: Decimal) -> Decimal:
    """Return the value that a spelling of 2^63 stands for; any other value as it is."""
    return Decimal(TWO_TO_63) if value in (LONG_MAX, JAVASCRIPT_TWO_TO_63) else value


def exact_float(value: Decimal) -> float | None:
    """Return the float64 for the number as written, or null for an integer that it cannot hold.

    2^63 has several spellings. A fraction is rounded to the nearest float64 as everywhere; infinity
    stands for what is too large for float64.
    """
    value = normalize_unlimited(value)
    number = float(value)
    return None if is_rounded(value, number) else number


def is_rounded(value: Decimal, number: float) -> bool:
    """Tell whether a float64 is not the integer that was written."""
    return number != value and not math.isinf(number) and value == value.to_integral_value()


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


OVERTAKEN = (Outcome.SUPERSEDED, Outcome.OBSERVED_OTHER)
"""Definite outcomes of alterations that were sent and that nobody saw applied."""


def overall_outcome(outcomes: list[Outcome]) -> Overall:
    """Return the one word for a request, from the words for its entities.

    A request about no entity is a plan without changes, which counts as applied.
    """
    kinds = set(outcomes)
    if not kinds:
        return Overall.APPLIED
    if Outcome.UNKNOWN in kinds:
        return Overall.UNKNOWN
    for overtaken in OVERTAKEN:
        if overtaken in kinds:
            return Overall.PARTIAL if Outcome.APPLIED in kinds else Overall(overtaken.value)
    if len(kinds) == 1:
        only = kinds.pop()
        return Overall.REFUSED if only is Outcome.NOT_APPLIED else Overall(only.value)
    if kinds <= {Outcome.REFUSED, Outcome.NOT_APPLIED}:
        return Overall.REFUSED
    if Outcome.NOT_SENT in kinds and Outcome.APPLIED not in kinds:
        return Overall.NOT_SENT
    return Overall.PARTIAL


def inverse(
    entity: ClientQuotaEntity, before: Values, after: Values
) -> ClientQuotaAlteration | None:
    """Return the alteration from ``after`` to ``before``; null where they are equal.

    Raises:
        ValueError: A value of ``before`` cannot be written by anybody but the tool that stored
            it, such as NaN.
    """
    ops = [
        restore(key, before.get(key))
        for key in sorted(before.keys() | after.keys())
        if not same_value(before.get(key), after.get(key))
    ]
    return ClientQuotaAlteration(entity, tuple(ops)) if ops else None


def expected_after(before: Values, after: Values) -> Expected:
    """Return what must hold for an alteration to be taken back: its ``after``, key by key."""
    return {key: after.get(key) for key in sorted(before.keys() | after.keys())}


def restore(key: str, value: float | None) -> Op:
    """Return the operation that gives a key a stored value again; null removes it.

    Raises:
        ValueError: Nobody but the tool that stored the value can write it, such as NaN.
    """
    if value is None:
        return Op(key, remove=True)
    if not math.isfinite(value):
        written = "NaN" if math.isnan(value) else "Infinity"
        message = f"{key} was {written} before, which this service does not write"
        raise ValueError(message)
    return Op(key, Decimal(value))


@dataclass(frozen=True, slots=True)
class Observation:
    """A verdict from what was seen.

    Attributes:
        outcome: ``applied``, ``not_applied`` or ``observed_other``.
        indistinguishable: The intended values held before, or may have: applied and not applied
            look alike.
    """

    outcome: Outcome
    indistinguishable: bool = False


def observe(alteration: ClientQuotaAlteration, before: Values | None, seen: Values) -> Observation:
    """Judge by the keys that the alteration names; ``before`` is null where nobody knows it."""
    intended = apply_ops({}, alteration.ops)
    keys = [op.key for op in alteration.ops]
    holds = all(same_value(seen.get(key), intended.get(key)) for key in keys)
    held = before is not None and all(same_value(seen.get(key), before.get(key)) for key in keys)
    if holds:
        return Observation(Outcome.APPLIED, indistinguishable=held or before is None)
    return Observation(Outcome.NOT_APPLIED if held else Outcome.OBSERVED_OTHER)


def find_differences(
    audited: Quotas, seen: Quotas
) -> Mapping[ClientQuotaEntity, tuple[Values, Values]]:
    """Return before and after of each entity that differs; empty values stand for no entity."""
    changed = {}
    for entity in audited.keys() | seen.keys():
        before, after = audited.get(entity, {}), seen.get(entity, {})
        if not same_values(before, after):
            changed[entity] = (before, after)
    return changed


def late_apply(
    before: Values, after: Values, doubtful: Mapping[str, ClientQuotaAlteration]
) -> str | None:
    """Return the id of the alteration that explains a change if it was applied late, or null.

    It does where everything that it intended holds now, and some of it did not before.

    Args:
        before: The last audited values.
        after: What was seen.
        doubtful: Alterations of the entity by id, newest first.
    """
    for alteration_id, alteration in doubtful.items():
        intended = apply_ops(before, alteration.ops)
        keys = [op.key for op in alteration.ops]
        holds = all(same_value(after.get(key), intended.get(key)) for key in keys)
        held = all(same_value(before.get(key), intended.get(key)) for key in keys)
        if holds and not held:
            return alteration_id
    return None


def failed_expectations(
    expected: Mapping[int, Expected],
    present: Mapping[int, Values],
    precondition: Precondition | None = None,
) -> list[Violation]:
    """Return an entry for each entity whose expectations do not hold; both are by ordinal."""
    failed = []
    for ordinal, before in present.items():
        wrong = [
            key
            for key, value in expected.get(ordinal, {}).items()
            if not _holds(before.get(key), value)
        ]
        if wrong:
            detail = f"Not as expected: {', '.join(wrong)}."
            failed.append(failed_expectation(ordinal, detail, before))
        elif precondition is not None and not precondition(before):
            detail = "The entity is not as the request's precondition wants it; read it again."
            failed.append(failed_expectation(ordinal, detail, before))
    return failed


def failed_read_set(beside: ReadSet, values: Quotas) -> list[Violation]:
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


def failed_expectation(ordinal: int, detail: str, present: Values) -> Violation:
    """Return the entry of one entity, with its present values."""
    return Violation(
        f"/alterations/{ordinal}/expected",
        "expectation-failed",
        detail,
        index=ordinal,
        values={"current": dict(present)},
    )


def _holds(present: float | None, expected: DesiredValue | None) -> bool:
    if isinstance(expected, Decimal):
        exact = exact_float(expected)
        return exact is not None and present == exact
    return same_value(present, expected)
