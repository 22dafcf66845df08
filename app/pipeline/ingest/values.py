"""Times and numbers, as the many writers of metrics spell them."""

import math
from datetime import UTC, datetime
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALES: Final = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))
FIRST_US: Final = 0
END_US: Final = 253_402_214_400_000_000
"""Times are from 1970 on and before the last day of the year 9999: the end of each day is a time,
and what lies outside comes from a clock that was never set, or means "never"."""


def time_of(value: object) -> int | None:
    """Return a time in microseconds of the epoch, or null where it is none.

    Args:
        value: RFC 3339 (without an offset it is UTC), or a number of seconds, milliseconds,
            microseconds or nanoseconds of the epoch, distinguished by their size.
    """
    if isinstance(value, str):
        number = number_of(value)
        return _time_of_text(value) if number is None else _time_of_number(number)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _time_of_number(value)
    return None


def seconds_of(value: object) -> int | None:
    """Return a number of seconds in microseconds, or null where it is none."""
    number = number_of(value)
    return None if number is None else _within(number, 1_000_000)


def milliseconds_of(value: object) -> int | None:
    """Return a number of milliseconds in microseconds, or null where it is none."""
    number = number_of(value)
    return None if number is None else _within(number, 1_000)


def number_of(value: object) -> float | None:
    """Return a number, also one written as text the way Prometheus does, or null."""
    if isinstance(value, str):
        try:
            return None if "_" in value else float(value)
        except ValueError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None


def _time_of_text(text: str) -> int | None:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    past = zoned - _EPOCH
    return within((past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds)


def _time_of_number(number: float) -> int | None:
    for below, scale in _SCALES:
        if abs(number) < below:
            return _within(number, scale)
    return None if not math.isfinite(number) else _within(number / 1_000, 1)


def _within(number: float, scale: int) -> int | None:
    if not math.isfinite(number):
        return None
    return within(round(number * scale))


def within(time: int) -> int | None:
    """Return a time in microseconds of the epoch; null where it is out of range."""
    return time if FIRST_US <= time < END_US else None
