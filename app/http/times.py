"""Times as text: RFC 3339, UTC, milliseconds."""

import re
from datetime import UTC, datetime
from typing import Final

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_BEYOND_MICROSECONDS: Final = re.compile(r"(\.[0-9]{6})[0-9]+")


def rfc3339(time: datetime) -> str:
    """Return a time with a zone as ``2026-11-21T01:02:03.456Z``; finer digits are cut off."""
    return f"{time.astimezone(UTC).isoformat(timespec='milliseconds')[: -len('+00:00')]}Z"


def read_time(text: str) -> datetime:
    """Read an RFC 3339 time with any offset and any number of digits; return it in UTC.

    Raises:
        ValueError: Not such a time, or outside the years 1 to 9999.
    """
    if not _RFC3339.fullmatch(text):
        message = "not a time such as 2026-11-21T01:02:03.456Z"
        raise ValueError(message)
    try:
        time = datetime.fromisoformat(_BEYOND_MICROSECONDS.sub(r"\1", text.upper()))
        return time.astimezone(UTC)
    except OverflowError as error:
        message = "a time outside the years 1 to 9999"
        raise ValueError(message) from error
