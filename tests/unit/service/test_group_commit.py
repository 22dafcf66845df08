"""Group commit: who shares a batch, and whose verdict and failure is whose."""

import asyncio
import gc
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, NotSentError
from app.domain.validation import MAX_CHANGES
from app.service.alterations import pipeline
from app.service.alterations.pipeline import AlterGroup
from app.service.auth.actors import Actor
from app.service.ports.alterations import Alteration, Change, Conclusion, IdempotencyKey, Wait
from app.service.ports.brokers import Handover, Verdict
from app.service.runtime.clock import boot_time, new_alteration_id
from app.service.runtime.tasks import MAX_BATCHES, AlterationTasks, Batcher
from tests.testkit.counted_metrics import CountedMetrics
from tests.testkit.event_loops import until
from tests.testkit.fake_ports import (
    CI,
    EPOCH,
    FakeBrokers,
    FakeJournal,
    Verdicts,
    alter_pipeline,
    fake_actor,
    refused,
)

LONG_S = 30.0


class Work:
    """Records the batches; each ends when the test lets it."""

    def __init__(self, *, held: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.held = held
        self.at_once = 0
        self._running = 0

    async def __call__(self, items: Sequence[str]) -> Sequence[str | Exception]:
        self.batches.append(list(items))
        gate = asyncio.Event()
        self.gates.append(gate)
        self._running += 1
        self.at_once = max(self.at_once, self._running)
        if self.held:
            await gate.wait()
        self._running -= 1
        return [KeyError(item) if item.startswith("bad") else item.upper() for item in items]

    async def begun(self, number: int) -> None:
        await until(lambda: len(self.batches) >= number)


def at_most(number: int) -> Callable[[], Callable[[str], bool]]:
    """Takes so many items; a big item never fits."""

    def new_batch() -> Callable[[str], bool]:
        taken: list[int] = []

        def fits(item: str) -> bool:
            size = number + 1 if item == "big" else 1
            is_within = sum(taken) + size <= number
            if is_within or not taken:
                taken.append(size)
            return is_within

        return fits

    return new_batch


def batcher_of(
    work: Work, *, most: int = 100, max_batch_wait_s: float = LONG_S
) -> Batcher[str, str]:
    return Batcher(work, at_most(most), max_batch_wait_s=max_batch_wait_s)


async def test_alone_nobody_waits():
    work = Work(held=False)
    assert await batcher_of(work).submit("a") == "A"
    assert work.batches == [["a"]]


async def test_those_who_are_woken_together_share_the_first_batch():
    work = Work(held=False)
    batcher = batcher_of(work)
    assert await asyncio.gather(*map(batcher.submit, "abc")) == ["A", "B", "C"]
    assert work.batches == [["a", "b", "c"]]


async def test_who_does_not_fit_keeps_the_order_for_the_turn_after():
    work = Work()
    batcher = batcher_of(work, most=2)
    tasks = [asyncio.create_task(batcher.submit("a"))]
    await work.begun(1)
    tasks += [asyncio.create_task(batcher.submit(name)) for name in ("b", "big", "c", "d")]
    await asyncio.sleep(0)
    work.held = False
    work.gates[0].set()
    assert await asyncio.gather(*tasks) == ["A", "B", "BIG", "C", "D"]
    assert work.batches == [["a"], ["b", "c"], ["big"], ["d"]]


async def test_the_error_of_one_is_nobody_elses():
    work = Work(held=False)
    batcher = batcher_of(work)
    good, bad = await asyncio.gather(
        batcher.submit("a"), batcher.submit("bad"), return_exceptions=True
    )
    assert good == "A"
    assert isinstance(bad, KeyError)


async def test_what_the_work_raises_is_everybodys_and_each_gets_an_error_of_its_own():
    shared = NotSentError("Nobody answers.", code="cluster-unreachable")

    async def broken(_items: Sequence[str]) -> Sequence[str | Exception]:
        raise shared

    batcher: Batcher[str, str] = Batcher(broken, at_most(9), max_batch_wait_s=LONG_S)
    found = await asyncio.gather(batcher.submit("a"), batcher.submit("b"), return_exceptions=True)
    assert found[0] is not found[1]
    for error in found:
        assert isinstance(error, NotSentError)
        assert (error.code, error.detail) == ("cluster-unreachable", "Nobody answers.")
        assert error.__cause__ is shared
    with pytest.raises(NotSentError):
        await batcher.submit("c")


async def test_results_of_a_wrong_number_are_a_fault_and_nobody_waits_for_ever():
    async def short(items: Sequence[str]) -> Sequence[str | Exception]:
        return items[:1]

    batcher: Batcher[str, str] = Batcher(short, at_most(9), max_batch_wait_s=LONG_S)
    waiting = [asyncio.create_task(batcher.submit(name)) for name in ("a", "b", "c")]
    found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LONG_S)
    assert [type(result) for result in found] == [ValueError] * 3
    assert await batcher.submit("d") == "d"


async def test_who_goes_away_before_his_turn_is_not_in_it():
    work = Work()
    batcher = batcher_of(work)
    first = asyncio.create_task(batcher.submit("a"))
    await work.begun(1)
    gone, stays = asyncio.create_task(batcher.submit("b")), asyncio.create_task(batcher.submit("c"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    work.held = False
    work.gates[0].set()
    assert await asyncio.gather(first, stays) == ["A", "C"]
    assert work.batches == [["a"], ["c"]]


async def test_who_goes_away_during_his_turn_does_not_end_it():
    work = Work()
    batcher = batcher_of(work)
    gone = asyncio.create_task(batcher.submit("a"))
    await work.begun(1)
    gone.cancel()
    stays = asyncio.create_task(batcher.submit("b"))
    await asyncio.sleep(0)
    assert work.batches == [["a"]]
    work.held = False
    work.gates[0].set()
    assert await stays == "B"


async def test_a_turn_that_does_not_end_holds_up_nobody_for_long():
    work = Work()
    batcher = batcher_of(work, max_batch_wait_s=0.01)
    tasks = []
    for number in range(MAX_BATCHES):
        tasks.append(asyncio.create_task(batcher.submit(f"n{number}")))
        await work.begun(number + 1)
    tasks.append(asyncio.create_task(batcher.submit("last")))
    work.held = False
    work.gates[3].set()
    assert await asyncio.wait_for(tasks[-1], LONG_S) == "LAST"
    assert work.at_once == MAX_BATCHES
    for gate in work.gates:
        gate.set()
    assert len(await asyncio.gather(*tasks)) == MAX_BATCHES + 1


class Broker(FakeBrokers):
    """Notes who was altered together, and through which broker."""

    def __init__(self) -> None:
        super().__init__([])
        self.requests: list[tuple[int | None, list[str | None]]] = []
        self.late: asyncio.Future[Handover] | None = None
        self.slow_to_reach = False

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float = 15.0,
        send_by: float | None = None,
    ) -> Handover:
        names = [alteration.entity.entries[0][1] for alteration in alterations]
        self.requests.append((broker_id, names))
        if self.slow_to_reach and send_by is not None and send_by < boot_time() + LONG_S / 2:
            await asyncio.sleep(send_by - boot_time())
            raise NotSentError("The time was over before the request could be handed over.")
        answer = await super().alter_client_quotas(
            alterations, validate_only=validate_only, broker_id=broker_id, timeout_s=timeout_s
        )
        return Handover(answer.verdicts, broker_id or 1, EPOCH, EPOCH, self.late)


def user(name: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


@dataclass(frozen=True)
class Call:
    """What a caller alters: so many keys of each user, within so many seconds."""

    users: str
    keys: int = 1
    broker_id: int = 1
    seconds: float = LONG_S

    def ready(self, **options: Any) -> Alteration:
        ops = tuple(Op(f"key-{number}", Decimal(1)) for number in range(self.keys))
        changes = [Change(user(name), ops, n) for n, name in enumerate(self.users.split())]
        options = {"all_or_nothing": False, "wait": Wait.NONE, **options}
        alteration = Alteration(CI, "r1", (*changes,), **options)
        identified = alteration.identified(new_alteration_id(), "fake", self.broker_id)
        return identified.begun("test", self.seconds, time.monotonic())


class Sender:
    """Runs the changes of several callers, each at once."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.journal = FakeJournal(broker.log)
        self._tasks = AlterationTasks()
        self.pipeline = alter_pipeline(self.journal, self._tasks, CountedMetrics())
        self.actor = self.actor_at(broker)

    def actor_at(self, broker: Broker) -> Actor:
        return fake_actor(broker, self._tasks)

    async def run(self, call: Call) -> Conclusion:
        return await self.pipeline.run(self.actor, call.ready())

    async def meanwhile(self, *calls: Call) -> list[Conclusion]:
        """Run changes while a request is in flight; return what became of them."""
        gate = self.broker.gate = asyncio.Event()
        first = asyncio.create_task(self.run(Call("first")))
        await until(lambda: self.broker.requests)
        tasks = [asyncio.create_task(self.run(call)) for call in calls]
        await asyncio.sleep(0)
        gate.set()
        assert outcomes(await first) == {"first": Outcome.APPLIED}
        return await asyncio.gather(*tasks)


@pytest.fixture
def sender() -> Sender:
    return Sender(Broker())


def outcomes(conclusion: Conclusion) -> Mapping[str | None, Outcome]:
    results = conclusion.results.values()
    return {result.entity.entries[0][1]: result.outcome for result in results}


async def test_a_group_has_one_transaction_one_barrier_and_one_request(sender: Sender) -> None:
    together: list[int] = []
    record = sender.journal.record_intents

    async def count(intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        together.append(len(intents))
        return await record(intents)

    sender.journal.record_intents = count  # type: ignore[method-assign]
    await sender.meanwhile(*map(Call, "abc"))
    assert together == [1, 3]
    assert (sender.broker.log.count("quorum"), sender.broker.log.count("send")) == (2, 2)


async def test_who_does_not_get_a_lock_leaves_the_group(sender: Sender) -> None:
    sender.journal.locks[user("taken")] = "another"
    found = await asyncio.gather(
        *(sender.run(Call(name)) for name in ("a", "taken", "b")), return_exceptions=True
    )
    assert isinstance(found[1], EntityBusyError)
    assert sender.broker.requests == [(1, ["a", "b"])]


async def test_what_must_hold_together_is_validated_in_one_request(sender: Sender) -> None:
    sender.broker.fault = lambda alterations, validate_only: {
        alteration.entity: refused("INVALID_REQUEST")
        for alteration in alterations
        if alteration.entity == user("bad")
    }
    whole = [Call(users).ready(all_or_nothing=True) for users in ("a b", "c bad", "d")]
    found = await asyncio.gather(*(sender.pipeline.run(sender.actor, each) for each in whole))
    assert [outcomes(each) for each in found] == [
        {"a": Outcome.APPLIED, "b": Outcome.APPLIED},
        {"c": Outcome.NOT_APPLIED, "bad": Outcome.REFUSED},
        {"d": Outcome.APPLIED},
    ]
    assert sender.broker.requests == [(1, ["a", "b", "c", "bad"]), (1, ["a", "b", "d"])]


async def test_a_refused_neighbour_refuses_nobody_else(sender: Sender) -> None:
    sender.broker.fault = lambda alterations, _: {
        alteration.entity: refused("INVALID_REQUEST")
        for alteration in alterations
        if alteration.entity == user("bad")
    }
    found = await sender.meanwhile(*map(Call, ("a", "bad", "c")))
    assert [outcomes(each) for each in found] == [
        {"a": Outcome.APPLIED},
        {"bad": Outcome.REFUSED},
        {"c": Outcome.APPLIED},
    ]
    assert set(sender.broker.quotas) == {user("first"), user("a"), user("c")}


@pytest.mark.parametrize(
    ("others", "requests"),
    [
        ([Call("a"), Call("b", broker_id=2)], [["first"], ["b"], ["a"]]),
        ([Call("a", MAX_CHANGES), Call("b"), Call("c")], [["first"], ["a"], ["b", "c"]]),
        ([Call("a", MAX_CHANGES - 1), Call("b", 2), Call("c")], [["first"], ["a", "c"], ["b"]]),
    ],
    ids=["another broker", "a full request", "one change too many"],
)
async def test_what_does_not_fit_goes_with_another_group(
    sender: Sender, others: list[Call], requests: list[list[str]]
) -> None:
    await sender.meanwhile(*others)
    assert [names for _, names in sender.broker.requests] == requests


async def test_each_login_has_requests_of_its_own(sender: Sender) -> None:
    other = Broker()
    actors = [*map(sender.actor_at, (sender.broker, other, sender.broker))]
    calls = [Call(name).ready() for name in "abc"]
    await asyncio.gather(*map(sender.pipeline.run, actors, calls))
    assert sender.broker.requests == [(1, ["a", "c"])]
    assert other.requests == [(1, ["b"])]


async def test_groups_end_with_their_login(sender: Sender) -> None:
    login = Broker()
    ended = weakref.ref(login)
    await sender.pipeline.run(sender.actor_at(login), Call("a").ready())
    del login
    await until(lambda: gc.collect() >= 0 and ended() is None)


def test_no_entity_and_no_key_is_twice_in_a_group(sender: Sender):
    group, key = AlterGroup(), IdempotencyKey("k", b"f")
    first, same, other = Call("a").ready(key=key), Call("a").ready(), Call("b").ready()
    fits = [group((sender.actor, each)) for each in (first, same, replace(other, key=key), other)]
    assert fits == [True, False, False, True]


async def test_a_large_request_goes_by_itself(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_GROUP_ENTITIES", 2)
    await sender.meanwhile(Call("a b c"), Call("d"))
    assert [names for _, names in sender.broker.requests] == [["first"], ["a", "b", "c"], ["d"]]


async def test_who_would_be_too_late_is_not_sent_and_the_others_are(sender: Sender) -> None:
    late, other = await sender.meanwhile(Call("late", seconds=-1.0), Call("a"))
    assert outcomes(late) == {"late": Outcome.NOT_SENT}
    assert outcomes(other) == {"a": Outcome.APPLIED}
    assert sender.broker.requests[1:] == [(1, ["a"])]


async def test_who_runs_out_of_time_before_the_broker_is_reached_is_left_out_alone(
    sender: Sender,
) -> None:
    sender.broker.slow_to_reach = True
    short, other = await sender.meanwhile(Call("short", seconds=0.5), Call("a"))
    assert outcomes(short) == {"short": Outcome.NOT_SENT}
    assert outcomes(other) == {"a": Outcome.APPLIED}
    assert sender.broker.requests[1:] == [(1, ["short", "a"]), (1, ["a"])]
    assert set(sender.broker.quotas) == {user("first"), user("a")}


async def test_a_broker_that_cannot_be_reached_fails_everybody(sender: Sender) -> None:
    def fail(alterations: Sequence[ClientQuotaAlteration], _: bool) -> Verdicts:
        if len(alterations) == 2:
            raise NotSentError("Nobody answers.")
        return {}

    sender.broker.fault = fail
    others = await sender.meanwhile(Call("a"), Call("b"))
    assert [outcomes(other) for other in others] == [
        {"a": Outcome.NOT_SENT},
        {"b": Outcome.NOT_SENT},
    ]


async def test_each_caller_gets_the_late_answer(sender: Sender) -> None:
    sender.broker.late = asyncio.get_running_loop().create_future()
    await sender.meanwhile(Call("a"), Call("b"))
    verdicts = {user(name): Verdict(Outcome.APPLIED) for name in ("first", "a", "b")}
    sender.broker.late.set_result(Handover(verdicts, 1, EPOCH, EPOCH))
    await until(lambda: len(sender.journal.recovered) == 3)
    found = {each.result.entity.entries[0][1] for each in sender.journal.recovered}
    assert found == {"first", "a", "b"}


async def test_a_group_that_stands_still_holds_up_nobody_for_long(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MAX_BATCH_WAIT_S", 0.01)
    sender.broker.gate = asyncio.Event()
    first = asyncio.create_task(sender.run(Call("first")))
    await until(lambda: sender.broker.requests)
    second = asyncio.create_task(sender.run(Call("second")))
    await until(lambda: len(sender.broker.requests) == 2)
    assert not first.done()
    sender.broker.gate.set()
    await asyncio.gather(first, second)
