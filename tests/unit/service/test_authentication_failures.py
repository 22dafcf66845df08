"""Refused credentials are counted exactly, in bounded memory, and written once a minute."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import NotSentError
from app.service.auth import denials
from app.service.auth.denials import (
    MAX_SOURCES,
    AuthenticationFailures,
    FailureCount,
    FailureWriter,
    source_of,
)
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.virtual_time import in_virtual_time

MINUTE = datetime(2026, 11, 21, 1, 2, tzinfo=UTC)
BAD = ("bearer-token", "invalid-token")
HOUR_S = 3600.0


class Clock:
    def __init__(self) -> None:
        self.time = MINUTE + timedelta(seconds=3)

    def __call__(self) -> datetime:
        return self.time

    def next_minute(self) -> None:
        self.time += timedelta(minutes=1)


class Journal:
    """Keeps rows by their id; ``broken`` fails after keeping, as a commit in doubt may."""

    def __init__(self) -> None:
        self.rows: dict[str, FailureCount] = {}
        self.broken = False
        self.fault: Exception | None = None
        self.largest = 0

    async def record_authentication_failures(self, counts: Sequence[FailureCount]) -> None:
        self.largest = max(self.largest, len(counts))
        for count in counts:
            self.rows.setdefault(count.row_id, count)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        if self.broken:
            raise NotSentError("Down.")

    @property
    def total(self) -> int:
        return sum(row.number for row in self.rows.values())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock: Clock) -> AuthenticationFailures:
    return AuthenticationFailures(now=clock)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def writer(failures: AuthenticationFailures, journal: Journal) -> FailureWriter:
    return FailureWriter(failures, journal.record_authentication_failures, CountedMetrics())


def test_a_source_is_a_network(subtests: pytest.Subtests):
    for address, source in [
        ("203.0.113.77", "203.0.113.0/24"),
        ("::ffff:203.0.113.77", "203.0.113.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", None),
        ("unix:", None),
        ("203.0.113.7, 10.0.0.1", None),
    ]:
        with subtests.test(address=address, source=source):
            assert source_of(address) == source


def test_a_flood_of_one_network_is_one_row(failures: AuthenticationFailures, clock: Clock):
    for last in range(5000):
        failures.count(f"203.0.113.{last % 256}", *BAD)
    assert failures.take() == []
    clock.next_minute()
    (row,) = failures.take()
    assert (row.minute, row.source, row.number) == (MINUTE, "203.0.113.0/24", 5000)
    assert (row.method, row.reason) == BAD
    assert failures.take(with_present=True) == []


def test_minutes_methods_and_reasons_are_counted_separately(
    failures: AuthenticationFailures, clock: Clock
):
    failures.count("10.0.0.1", *BAD)
    failures.count("10.0.0.1", "basic", "login-failed")
    failures.count("10.0.0.1", "none", "unauthenticated")
    clock.next_minute()
    failures.count("10.0.0.1", *BAD)
    rows = failures.take(with_present=True)
    assert Counter(row.minute for row in rows) == {MINUTE: 3, MINUTE + timedelta(minutes=1): 1}


def test_more_networks_than_fit_are_counted_together(
    failures: AuthenticationFailures, clock: Clock
):
    for number in range(MAX_SOURCES + 500):
        failures.count(f"10.{number // 256}.{number % 256}.1", *BAD)
    failures.count("10.0.0.9", *BAD)
    clock.next_minute()
    rows = failures.take()
    assert len(rows) == MAX_SOURCES + 1
    assert [row.number for row in rows if row.source is None] == [500]
    assert sum(row.number for row in rows) == MAX_SOURCES + 501


async def test_everything_is_written_once_in_batches(
    failures: AuthenticationFailures, writer: FailureWriter, journal: Journal
):
    for number in range(2500):
        failures.count(f"10.{number // 256}.{number % 256}.1", *BAD)
    await writer.close()
    assert (journal.total, journal.largest) == (2500, 1000)


async def test_what_may_have_been_written_is_repeated_unchanged(
    failures: AuthenticationFailures,
    writer: FailureWriter,
    journal: Journal,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(denials, "MAX_WAITING", 5)
    journal.broken = True
    for _ in range(4):
        for number in range(10):
            failures.count(f"10.0.{number}.1", *BAD)
        clock.next_minute()
        assert not await writer.write()
    journal.broken = False
    assert await writer.write()
    assert journal.total == 40
    by_minute = Counter[datetime]()
    for row in journal.rows.values():
        by_minute[row.minute] += row.number
    assert set(by_minute.values()) == {10}


async def test_what_is_lost_at_the_end_is_logged(
    failures: AuthenticationFailures,
    writer: FailureWriter,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
):
    journal.broken = True
    failures.count("10.0.0.1", *BAD)
    failures.count("10.0.0.1", *BAD)
    await writer.close()
    assert "2 refused credentials were counted and could not be recorded" in caplog.text


@in_virtual_time
async def test_a_minute_is_written_soon_after_its_end(
    failures: AuthenticationFailures, writer: FailureWriter, journal: Journal, clock: Clock
):
    failures.count("10.0.0.1", *BAD)
    clock.next_minute()
    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(HOUR_S):
        while not journal.rows:
            await asyncio.sleep(1)
    running.cancel()
    assert journal.total == 1


@in_virtual_time
async def test_it_goes_on_after_a_fault_of_our_own(
    failures: AuthenticationFailures, writer: FailureWriter, journal: Journal, clock: Clock
):
    journal.fault = RuntimeError("nobody has thought of that")
    failures.count("10.0.0.1", *BAD)
    clock.next_minute()
    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(HOUR_S):
        while journal.fault is not None:
            await asyncio.sleep(1)
        failures.count("10.0.0.1", *BAD)
        clock.next_minute()
        while journal.total < 2:
            await asyncio.sleep(1)
    running.cancel()
    assert journal.total == 2
