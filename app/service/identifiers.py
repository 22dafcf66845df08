"""Identifiers that sort by time."""

import secrets
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def new_alteration_id(now_ms: int | None = None) -> str:
    """Return a UUIDv7. Source: RFC 9562, section 5.7."""
    milliseconds = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    value = (milliseconds & ((1 << 48) - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def time_of(alteration_id: str) -> datetime:
    """Return the time inside a UUIDv7, in UTC, to the millisecond.

    Raises:
        ValueError: Not a UUID, or one of a time after the year 9999.
    """
    milliseconds = uuid.UUID(alteration_id).int >> 80
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        message = f"{alteration_id} is of a time after the year 9999"
        raise ValueError(message) from error
