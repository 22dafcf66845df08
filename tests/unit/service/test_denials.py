"""Refused callers: which denied attempts have a row."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import ClusterAuthorizationError
from app.service.auth.denials import (
    MAX_ADDRESSES,
    MAX_FIRST_ENTITIES,
    MAX_PRINCIPALS,
    OTHER_ADDRESSES,
    DeniedAttempt,
    DeniedAttempts,
    requested_change,
)
from tests.testkit.fake_ports import EPOCH, FakeJournal

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
            (request.caller.host, request.request_id, request.evidence["denied"]["attempts"])
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
    assert request.changes == ()
    assert request.evidence["route"] == "GET /quotas"
    assert request.evidence["rule"] == "x"
    assert request.evidence["denied"] == {"entities": None, "first": None, "attempts": 1}
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
    denied = request.evidence["denied"]
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


async def test_what_the_log_did_not_take_has_a_row_once_it_does(world: World) -> None:
    world.journal.broken = {"record_final"}
    for number in range(3):
        await world.deny(request_id=f"a{number}")
    await world.deny(replace(MALLORY, host="192.0.2.8"), request_id="b")
    await world.next_minute()
    await world.deny(request_id="c")
    assert world.rows() == []
    world.journal.broken = set()
    await world.next_minute()
    assert world.rows() == [("192.0.2.7", "c", 4), ("192.0.2.8", "b", 1)]
    await world.next_minute()
    assert len(world.rows()) == 2


async def test_a_log_that_takes_nothing_is_asked_once_for_all_that_is_left(world: World) -> None:
    world.journal.broken = {"record_final"}
    for number in range(5):
        await world.deny(replace(MALLORY, host=f"192.0.2.{number}"))
    world.journal.log.clear()
    await world.next_minute()
    assert world.journal.log == ["record_final"]
