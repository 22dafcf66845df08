"""Values for a time: how long, what they return to, and what their end leaves alone. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, Op, Quotas, Values, restore, same_value
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import Violation
from app.domain.validation import judge

SHORTEST: Final = timedelta(seconds=60)
LONGEST: Final = timedelta(days=90)

DURATION_PATTERN: Final = "^[0-9]{1,9}[smhd]$"

_DURATION: Final = re.compile("([0-9]{1,9})([smhd])")
_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class TemporaryValue:
    """A value that ends by itself.

    Attributes:
        alteration_id: The alteration that set it.
        value: Null: the key is removed for a time.
        returns_to: What held before the first temporary value; null: the key was not set.
        principal: Who asked for it.
    """

    alteration_id: str
    entity: ClientQuotaEntity
    key: str
    value: float | None
    returns_to: float | None
    expires_at: datetime
    principal: str
    reason: str | None = None


Expiries = Mapping[ClientQuotaEntity, Mapping[str, TemporaryValue]]
"""What is for a time, by entity and key."""

NO_EXPIRIES: Final[Expiries] = {}


def by_entity(values: Iterable[TemporaryValue]) -> Expiries:
    """Return temporary values by entity and key."""
    found: dict[ClientQuotaEntity, dict[str, TemporaryValue]] = {}
    for value in values:
        found.setdefault(value.entity, {})[value.key] = value
    return found


def temporary_of(
    entity: ClientQuotaEntity, values: Values, expiries: Expiries
) -> Mapping[str, TemporaryValue]:
    """Return those of an entity's values that are for a time, by key; what was changed is not."""
    held = expiries.get(entity, {})
    return {key: held[key] for key in sorted(held) if same_value(values.get(key), held[key].value)}


def read_duration(text: str) -> timedelta:
    """Return what ``90s``, ``30m``, ``4h`` or ``2d`` says.

    Raises:
        ValueError: It is no such text.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        message = "not a duration such as 90s, 30m, 4h or 2d"
        raise ValueError(message)
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        return timedelta.max


def broken_expiry(
    expires_in: timedelta | None, expires_at: datetime | None, now: datetime
) -> Iterator[Violation]:
    """Yield what is wrong with the end that a request asks for; null is no end."""
    if expires_in is not None and expires_at is not None:
        detail = "An alteration has either expires_in or expires_at, not both."
        yield Violation("/expires_at", "two-expiries", detail)
    if expires_in is not None and not SHORTEST <= expires_in <= LONGEST:
        detail = "expires_in is at least 60s and at most 90d."
        yield Violation("/expires_in", "out-of-range", detail)
    if expires_at is not None and expires_at <= now:
        detail = "expires_at has passed already."
        yield Violation("/expires_at", "time-has-passed", detail)
    if expires_at is not None and expires_at > now + LONGEST:
        detail = "expires_at is at most 90 days from now."
        yield Violation("/expires_at", "out-of-range", detail)


def broken_returns(
    alterations: Sequence[ClientQuotaAlteration], stored: Quotas
) -> Iterator[Violation]:
    """Yield the keys whose present values this service could not write again at the end."""
    for index, alteration in enumerate(alterations):
        before = stored.get(alteration.entity, {})
        for position, op in enumerate(alteration.ops):
            if not _can_be_restored(alteration.entity, op.key, before):
                detail = (
                    f"{op.key} has a value now that this service does not write, so it could not "
                    "return to it."
                )
                pointer = f"/alterations/{index}/ops/{position}"
                yield Violation(pointer, "cannot-be-restored", detail, index=index)


def _can_be_restored(entity: ClientQuotaEntity, key: str, before: Values) -> bool:
    if key not in before:
        return True
    try:
        back = ClientQuotaAlteration(entity, (restore(key, before[key]),))
    except ValueError:
        return False
    return not judge((back,), {}).violations


def end_of(values: Mapping[str, TemporaryValue]) -> tuple[Op, ...]:
    """Return the operations that end the temporary values of one entity."""
    return tuple(restore(key, values[key].returns_to) for key in sorted(values))


def keys_changed_since(
    before: Values, ops: Iterable[Op], expected: Mapping[str, float | None]
) -> frozenset[str]:
    """Return the keys that have neither the temporary value nor what they return to.

    Args:
        before: What holds.
        ops: The operations that end the temporary values.
        expected: The temporary values.
    """
    changed = set()
    for op in ops:
        present = before.get(op.key)
        back = None if op.value is None else float(op.value)
        if not same_value(present, expected.get(op.key)) and not same_value(present, back):
            changed.add(op.key)
    return frozenset(changed)
