"""Refused callers: which denied attempts have a row, and credentials counted in bounded memory."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import ClusterAuthorizationError, NotSentError
from app.service.auth import denials
from app.service.auth.denials import (
    MAX_ADDRESSES,
    MAX_FIRST_ENTITIES,
    MAX_PRINCIPALS,
    MAX_SOURCES,
    OTHER_ADDRESSES,
    AuthenticationFailures,
    DeniedAttempt,
    DeniedAttempts,
    FailureCount,
    FailureWriter,
    requested_change,
    source_of,
)
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import EPOCH, FakeJournal
from tests.testkit.virtual_time import in_virtual_time

MALLORY = Caller("User:mallory", "192.0.2.7", "bearer")
DENIED = ClusterAuthorizationError("no", kafka_error="CLUSTER_AUTHORIZATION_FAILED")
MANY = [ClientQuotaAlteration(ClientQuotaEntity.of({"user": f"u{n}"}), ()) for n in range(30)]


@dataclass
class World:
    journal: FakeJournal = field(default_factory=lambda: FakeJournal([]))
    at: datetime = EPOCH

    def __post_init__(self) -> None:
        self.denials = DeniedAttempts(self._cluster_id, self.journal, now=lambda: self.at)

    async def _cluster_id(self) -> str:
        return "the-cluster"

    async def deny(
        self, caller: Caller = MALLORY, action: str = "GET /quotas", request_id: str = "r"
    ) -> None:
        await self.denials.record(caller, DENIED, DeniedAttempt(request_id, action, {"rule": "x"}))

    async def next_minute(self) -> None:
        self.at += timedelta(minutes=1)
        await self.denials.write()

    def rows(self) -> list[tuple[str, str, int]]:
        """Return address, request id and number of attempts of each row."""
        return [
            (request.caller.host, request.request_id, request.decision["denied"]["attempts"])
            for request, _ in self.journal.finals
        ]


@pytest.fixture
def world() -> World:
    return World()


async def test_the_first_attempt_is_a_row_at_once(world: World) -> None:
    await world.deny()
    ((request, results),) = world.journal.finals
    assert (request.cluster_id, request.action, request.caller) == (
        "the-cluster",
        "denied",
        MALLORY,
    )
    assert request.entities == ()
    assert request.decision["route"] == "GET /quotas"
    assert request.decision["rule"] == "x"
    assert request.decision["denied"] == {"entities": None, "first": None, "attempts": 1}
    assert [(result.outcome, result.error) for result in results.values()] == [
        (Outcome.REFUSED, KafkaRefusal("CLUSTER_AUTHORIZATION_FAILED", "no"))
    ]


async def test_further_attempts_of_a_minute_are_one_row_at_its_end(world: World) -> None:
    for number in range(1000):
        await world.deny(request_id=f"r{number}")
    assert world.rows() == [("192.0.2.7", "r0", 1)]
    await world.next_minute()
    assert world.rows()[1:] == [("192.0.2.7", "r999", 999)]


async def test_a_single_attempt_is_one_row_only(world: World) -> None:
    await world.deny()
    await world.next_minute()
    await world.next_minute()
    assert len(world.rows()) == 1


async def test_the_next_minute_begins_with_a_row_again(world: World) -> None:
    await world.deny(request_id="a")
    await world.deny(request_id="b")
    world.at += timedelta(minutes=1)
    await world.deny(request_id="c")
    assert world.rows() == [("192.0.2.7", "a", 1), ("192.0.2.7", "b", 1), ("192.0.2.7", "c", 1)]


async def test_principals_actions_and_addresses_have_rows_of_their_own(world: World) -> None:
    await world.deny(request_id="a")
    await world.deny(action="POST /quotas/alterations", request_id="b")
    await world.deny(replace(MALLORY, host="192.0.2.8"), request_id="c")
    await world.deny(replace(MALLORY, principal="User:eve"), request_id="d")
    assert [request_id for _, request_id, _ in world.rows()] == ["a", "b", "c", "d"]


async def test_a_principal_with_many_addresses_has_a_bounded_number_of_rows(world: World) -> None:
    for number in range(500):
        await world.deny(replace(MALLORY, host=f"192.0.{number // 250}.{number % 250}"))
    assert len(world.rows()) == MAX_ADDRESSES + 1
    await world.next_minute()
    assert len(world.rows()) == MAX_ADDRESSES + 2
    assert world.rows()[-1] == (OTHER_ADDRESSES, "r", 500 - MAX_ADDRESSES - 1)


async def test_principals_without_number_have_a_bounded_number_of_rows(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_PRINCIPALS + 50):
        await world.deny(replace(MALLORY, principal=f"User:{number}"))
    await world.next_minute()
    assert len(world.rows()) <= MAX_PRINCIPALS + 1
    assert "denied attempts of further principals have no row" in caplog.text


async def test_a_row_names_the_number_of_entities_and_the_first_of_them(world: World) -> None:
    read = requested_change(MANY, "let me in")
    await world.denials.record(MALLORY, DENIED, DeniedAttempt("r", "alter", {}, read))
    ((request, _),) = world.journal.finals
    denied = request.decision["denied"]
    assert (denied["entities"], request.reason) == (30, "let me in")
    assert denied["first"] == [{"user": f"u{n}"} for n in range(MAX_FIRST_ENTITIES)]


async def test_what_a_further_attempt_asked_for_is_not_read(world: World) -> None:
    async def read() -> object:
        raise AssertionError("this costs time")

    await world.deny(action="alter")
    attempt = DeniedAttempt("r", "alter", {}, read)  # type: ignore[arg-type]
    await world.denials.record(MALLORY, DENIED, attempt)
    await world.next_minute()
    assert [attempts for *_, attempts in world.rows()] == [1, 1]


async def test_a_refusal_stands_when_it_cannot_be_recorded(world: World) -> None:
    world.journal.broken = {"record_final"}
    await world.deny()
    assert world.journal.finals == []


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
        self.largest = self.calls = 0

    async def record_authentication_failures(self, counts: Sequence[FailureCount]) -> None:
        self.largest, self.calls = max(self.largest, len(counts)), self.calls + 1
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
    assert (journal.total, journal.largest, journal.calls) == (2500, 1000, 3)


async def test_what_may_have_been_written_is_repeated_unchanged(
    failures: AuthenticationFailures,
    writer: FailureWriter,
    journal: Journal,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(denials, "MAX_WAITING", 5)
    monkeypatch.setattr(denials, "ROWS_AT_ONCE", 3)
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
