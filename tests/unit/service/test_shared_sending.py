"""Group commit: who shares a request, and that everybody keeps his own verdict."""

import asyncio
import time
from collections.abc import Mapping, Sequence

import pytest

from app.domain.alteration_rules import MAX_CHANGES
from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.service.alterations import shared_sending
from app.service.alterations.shared_sending import SharedSending
from app.service.cluster_ports import AlterAnswer, EntityVerdict
from tests.testkit.fake_ports import EPOCH, FakeBrokers, refused

LONG_S = 30.0


class Broker(FakeBrokers):
    """Notes who was altered together, and through which broker."""

    def __init__(self) -> None:
        super().__init__([])
        self.requests: list[tuple[int | None, list[str | None]]] = []
        self.late: asyncio.Future[AlterAnswer] | None = None

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float = 15.0,
        send_by: float | None = None,
    ) -> AlterAnswer:
        names = [one.entity.entries[0][1] for one in alterations]
        self.requests.append((broker_id, names))
        answer = await super().alter_client_quotas(
            alterations, validate_only=validate_only, broker_id=broker_id, timeout_s=timeout_s
        )
        return AlterAnswer(answer.verdicts, broker_id or 1, EPOCH, EPOCH, self.late)


def user(name: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


def change(name: str, keys: int = 1) -> list[ClientQuotaAlteration]:
    ops = tuple(Op(f"key-{number}", 1.0) for number in range(keys))
    return [ClientQuotaAlteration(user(name), ops)]


class Sender:
    """Sends the changes of several callers, each at once."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.sending = SharedSending(broker)
        self.tasks: list[asyncio.Task[AlterAnswer]] = []

    def start(
        self, changes: list[ClientQuotaAlteration], broker_id: int = 1, seconds: float = LONG_S
    ) -> None:
        send_by = time.monotonic() + seconds
        work = self.sending.send(changes, broker_id=broker_id, send_by=send_by)
        self.tasks.append(asyncio.create_task(work))

    async def held(self) -> asyncio.Event:
        """Let a request be in flight until the event is set."""
        gate = self.broker.gate = asyncio.Event()
        self.start(change("first"))
        async with asyncio.timeout(LONG_S):
            while not self.broker.requests:
                await asyncio.sleep(0)
        return gate

    async def answers(self) -> list[AlterAnswer | BaseException]:
        return await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
def sender() -> Sender:
    return Sender(Broker())


def outcomes(answer: AlterAnswer | BaseException) -> Mapping[str | None, Outcome]:
    assert isinstance(answer, AlterAnswer)
    return {one.entries[0][1]: verdict.outcome for one, verdict in answer.verdicts.items()}


async def test_alone_an_alteration_never_waits(sender: Sender) -> None:
    sender.start(change("alice"))
    (answer,) = await sender.answers()
    assert outcomes(answer) == {"alice": Outcome.APPLIED}


async def test_what_arrives_meanwhile_shares_the_next_request(sender: Sender) -> None:
    gate = await sender.held()
    for name in ("a", "b", "c"):
        sender.start(change(name))
    await asyncio.sleep(0)
    gate.set()
    answers = await sender.answers()
    assert sender.broker.requests == [(1, ["first"]), (1, ["a", "b", "c"])]
    assert [outcomes(one) for one in answers] == [
        {name: Outcome.APPLIED} for name in ("first", "a", "b", "c")
    ]


async def test_a_refused_neighbour_refuses_nobody_else(sender: Sender) -> None:
    sender.broker.fault = lambda alterations, _: {
        one.entity: refused("INVALID_REQUEST") for one in alterations if one.entity == user("bad")
    }
    gate = await sender.held()
    for name in ("a", "bad", "c"):
        sender.start(change(name))
    await asyncio.sleep(0)
    gate.set()
    _, *answers = await sender.answers()
    assert [outcomes(one) for one in answers] == [
        {"a": Outcome.APPLIED},
        {"bad": Outcome.REFUSED},
        {"c": Outcome.APPLIED},
    ]
    assert set(sender.broker.quotas) == {user("first"), user("a"), user("c")}


@pytest.mark.parametrize(
    ("others", "requests"),
    [
        ([(change("a"), 1), (change("b"), 2)], [["first"], ["a"], ["b"]]),
        ([(change("a"), 1), (change("a"), 1)], [["first"], ["a"], ["a"]]),
        (
            [(change("a", MAX_CHANGES), 1), (change("b"), 1), (change("c"), 1)],
            [["first"], ["a"], ["b", "c"]],
        ),
        (
            [(change("a", MAX_CHANGES - 1), 1), (change("b", 2), 1), (change("c"), 1)],
            [["first"], ["a", "c"], ["b"]],
        ),
    ],
    ids=["another broker", "the same entity", "a full request", "one change too many"],
)
async def test_what_does_not_fit_goes_with_another_request(
    sender: Sender,
    others: list[tuple[list[ClientQuotaAlteration], int]],
    requests: list[list[str]],
) -> None:
    gate = await sender.held()
    for changes, broker_id in others:
        sender.start(changes, broker_id)
    await asyncio.sleep(0)
    gate.set()
    await sender.answers()
    assert [names for _, names in sender.broker.requests] == requests


async def test_a_large_request_goes_by_itself(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_sending, "LARGEST_SHARING", 2)
    gate = await sender.held()
    sender.start([*change("a"), *change("b"), *change("c")])
    sender.start(change("d"))
    await asyncio.sleep(0)
    gate.set()
    await sender.answers()
    assert [names for _, names in sender.broker.requests] == [["first"], ["a", "b", "c"], ["d"]]


async def test_who_would_be_too_late_is_not_sent_and_the_others_are(sender: Sender) -> None:
    gate = await sender.held()
    sender.start(change("late"), seconds=-1.0)
    sender.start(change("a"))
    await asyncio.sleep(0)
    gate.set()
    _, late, other = await sender.answers()
    assert isinstance(late, NotSentError)
    assert outcomes(other) == {"a": Outcome.APPLIED}
    assert sender.broker.requests[1:] == [(1, ["a"])]


async def test_a_broker_that_cannot_be_reached_is_told_to_everybody(sender: Sender) -> None:
    gate = await sender.held()
    sender.start(change("a"))
    sender.start(change("b"))
    await asyncio.sleep(0)
    sender.broker.reachable = False
    gate.set()
    _, *others = await sender.answers()
    assert [type(one) for one in others] == [NotSentError, NotSentError]


async def test_each_hears_his_own_part_of_a_late_answer(sender: Sender) -> None:
    sender.broker.late = asyncio.get_running_loop().create_future()
    gate = await sender.held()
    sender.start(change("a"))
    sender.start(change("b"))
    await asyncio.sleep(0)
    gate.set()
    _, *answers = await sender.answers()
    verdicts = {user(name): EntityVerdict(Outcome.APPLIED) for name in ("first", "a", "b")}
    sender.broker.late.set_result(AlterAnswer(verdicts, 1, EPOCH, EPOCH))
    for name, answer in zip(("a", "b"), answers, strict=True):
        assert isinstance(answer, AlterAnswer)
        assert answer.late is not None
        assert outcomes(await answer.late) == {name: Outcome.APPLIED}
