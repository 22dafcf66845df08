"""The two clocks: UTC for records, monotonic for deadlines."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)
