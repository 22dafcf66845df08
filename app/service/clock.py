"""The clocks: UTC for records, and what the age of an intent is measured by.

Deadlines of waits are by ``time.monotonic``, which may stand still while the machine sleeps.
"""

import time
from datetime import UTC, datetime
from typing import Final

_COUNTS_SLEEP: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def boot_time() -> float:
    """Return seconds of a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(_COUNTS_SLEEP)
