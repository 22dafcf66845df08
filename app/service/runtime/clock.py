"""Time: the clock of records, identifiers that sort by it, and how long the service waits.

No proof rests on a figure of ``Patience``. Those that recovery rests on are constants where they
are used: ``SEND_BY_S``, ``FENCE_TIMEOUT_S``, ``FINAL_AFTER_S``.
"""

import secrets
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_COUNTS_SLEEP: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def boot_time() -> float:
    """Return seconds of a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(_COUNTS_SLEEP)


MOST_APART_S: Final = 5.0
"""How far Postgres's clock and this machine's may differ: tokens and deadlines rest on both."""


class DatabaseClock:
    """The time of Postgres, by which the log is ordered, whatever this machine's clock says.

    Between two readings of it the boot clock goes on, which nobody sets. Before the first reading
    it is this machine's time.
    """

    def __init__(self) -> None:
        self._at_boot_s: float | None = None

    def set(self, now_s: float, boot_s: float) -> None:
        """Take over a reading: seconds since 1970, and ``boot_time`` then."""
        self._at_boot_s = now_s - boot_s

    def now_s(self) -> float:
        """Return seconds since 1970."""
        return time.time() if self._at_boot_s is None else self._at_boot_s + boot_time()

    def ahead_s(self) -> float:
        """Return how far it is ahead of this machine's clock, in seconds."""
        return self.now_s() - time.time()


DATABASE_CLOCK: Final = DatabaseClock()
"""Of this process, which has one database."""


def database_now() -> datetime:
    """Return Postgres's time, to the millisecond: what ends at a time ends by it."""
    now = datetime.fromtimestamp(DATABASE_CLOCK.now_s(), UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def new_alteration_id() -> str:
    """Return a UUIDv7 of Postgres's time. Source: RFC 9562, section 5.7."""
    milliseconds = int(DATABASE_CLOCK.now_s() * 1000)
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


_LONGER_S: Final = 0.6
"""Whoever needs the end of a transaction waits so much longer than it may take."""

_LOCKS: Final = 3
"""A transaction may wait for so many locks, one after the other."""

_CHECK_SHARE, _FACT_SHARE = 0.4, 0.6
"""Of what a broker may take for a read: usually 2 s for a check, which a probe waits for, and 3 s
for a fact, which a request needs before it can begin."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time-outs in seconds; the others are computed from those that are set.

    Attributes:
        database_connect_s: Until Postgres accepts a connection.
        database_answer_s: Until a transaction of a few statements is committed.
        broker_answer_s: Until a broker has answered a read, connecting included.
    """

    database_connect_s: float = 1.0
    database_answer_s: float = 1.4
    broker_answer_s: float = 5.0

    @property
    def conclusion_s(self) -> float:
        """Until an outcome is written: no other alteration waits for it, so it may take longer."""
        return self.database_answer_s * 2

    @property
    def record_s(self) -> float:
        """Until an answer is sent without waiting any longer for the record of its outcome."""
        return self.conclusion_s + _LONGER_S

    @property
    def entity_wait_s(self) -> float:
        """Until another alteration of the same entity has ended.

        By then its intent is in the log, or has failed.
        """
        return self.database_answer_s + _LONGER_S

    @property
    def statement_s(self) -> float:
        """Postgres's own limit for a statement that writes: nobody waits for it any longer."""
        return self.database_answer_s + _LONGER_S

    @property
    def lock_s(self) -> float:
        """Postgres's own limit for the wait for one lock."""
        return self.database_answer_s / _LOCKS

    @property
    def shared_lock_s(self) -> float:
        """The same for a transaction that many share: who waits is tried again alone."""
        return self.lock_s / 9

    @property
    def idle_s(self) -> float:
        """Postgres's own limit for a transaction whose client is silent: it frees its locks."""
        return max(5.0, self.database_answer_s)

    @property
    def look_up_s(self) -> float:
        """Until one alteration is read from the log."""
        return max(5.0, self.database_answer_s)

    @property
    def list_s(self) -> float:
        """Until a page of the log, or what a plan rests on, is read."""
        return max(10.0, self.database_answer_s)

    @property
    def report_s(self) -> float:
        """Until a large table is read; Postgres's own limit for any statement that reads."""
        return max(30.0, self.database_answer_s)

    @property
    def check_s(self) -> float:
        """Until a probe of readiness is answered; a check that takes longer goes on beside it."""
        return self.broker_answer_s * _CHECK_SHARE

    @property
    def fact_s(self) -> float:
        """Until a broker has returned its ACLs, its configuration, or what a caller may do."""
        return self.broker_answer_s * _FACT_SHARE

    @property
    def entities_s(self) -> float:
        """Until the values of many entities are read behind a barrier."""
        return max(6.0, self.broker_answer_s)

    @property
    def image_s(self) -> float:
        """Until every quota of the cluster is described for a caller."""
        return max(10.0, self.broker_answer_s)

    @property
    def alter_s(self) -> float:
        """Until an alteration is answered; its answer is listened for longer."""
        return max(15.0, self.broker_answer_s)


USUAL: Final = Patience()


LATELY_S: Final = 60.0
"""How long a measured time counts."""

FACTOR: Final = 3.0
"""How much longer than the slowest of late work may take."""

LONGEST_S: Final = 20.0
"""What a deadline grows to at most, in seconds, unless the least is more already."""


class AdaptiveDeadline:
    """A deadline for work that grows with the cluster: it follows what that has lately taken.

    Args:
        least_s: The deadline where nothing was slow, in seconds.
        now: A clock in seconds that never goes back.
    """

    def __init__(
        self,
        least_s: float = USUAL.broker_answer_s,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._least_s = least_s
        self._now = now
        self._slowest: deque[tuple[float, float]] = deque()

    def note(self, took_s: float) -> None:
        """Note what work has taken, in seconds; of a broker that was silent, nothing."""
        while self._slowest and self._slowest[-1][1] <= took_s:
            self._slowest.pop()
        self._slowest.append((self._now(), took_s))

    @property
    def seconds(self) -> float:
        """Return the slowest of a minute, times three, within bounds."""
        while self._slowest and self._slowest[0][0] < self._now() - LATELY_S:
            self._slowest.popleft()
        slowest_s = self._slowest[0][1] if self._slowest else 0.0
        return max(self._least_s, min(FACTOR * slowest_s, LONGEST_S))
