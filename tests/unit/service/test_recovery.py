"""What becomes certain later: what recovery observes and when it is final, late answers, drift."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Op, Outcome, Quotas, Values
from app.domain.budgets import Budget
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import BrokerError
from app.service.alterations import write_ahead
from app.service.alterations.barrier import Barrier, CurrentValues
from app.service.alterations.write_ahead import record_late_answer
from app.service.drift import DriftWatch
from app.service.ports.alterations import Alteration, Change
from app.service.ports.audit_log import (
    AuditedState,
    Drift,
    OpenAlteration,
)
from app.service.ports.brokers import Handover, Verdict
from app.service.recovery import Recovery
from app.service.runtime.tasks import AlterationTasks
from tests.testkit.counted_metrics import CountedMetrics
from tests.testkit.fake_ports import EPOCH, FakeBrokers, FakeJournal, refused
from tests.testkit.virtual_time import in_virtual_time

ALICE = ClientQuotaEntity.of({"user": "alice"})
KEY = "producer_byte_rate"
TO_FIVE = ClientQuotaAlteration(ALICE, (Op(KEY, Decimal(5)),))


def change(before: Values | None) -> Change:
    return Change(ALICE, TO_FIVE.ops, before=before)


@dataclass
class World:
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.brokers = FakeBrokers(self.log)
        self.journal = FakeJournal(self.log)
        barrier = Barrier(self.brokers, CurrentValues(self.brokers))
        self.metrics = CountedMetrics()
        self.recovery = Recovery(
            self.brokers, self.brokers, barrier, self.journal, self.metrics, "test", 95
        )

    def leave_open(self, *, age_s: float = 1.0, before: float | None = None) -> None:
        values = {} if before is None else {KEY: before}
        self.leave(change(values), age_s)

    def leave(
        self,
        left: Change,
        age_s: float,
        *,
        alteration_id: str = "a1",
        broker_id: int | None = 1,
        last_audited: Values | None = None,
    ) -> None:
        self.journal.open.append(
            OpenAlteration(alteration_id, left, broker_id, age_s, last_audited)
        )

    def leave_many(self, number: int, **options: Any) -> None:
        for ordinal in range(number):
            entity = ClientQuotaEntity.of({"user": f"user-{ordinal}"})
            self.brokers.quotas[entity] = {KEY: 5.0} if ordinal % 2 else {}
            self.leave(Change(entity, TO_FIVE.ops, ordinal, before={}), 94.0 + ordinal, **options)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        (None, 5.0, Outcome.APPLIED),
        (3.0, 5.0, Outcome.APPLIED),
        (3.0, 3.0, Outcome.NOT_APPLIED),
        (None, None, Outcome.NOT_APPLIED),
        (3.0, 4.0, Outcome.OBSERVED_OTHER),
        (3.0, None, Outcome.OBSERVED_OTHER),
    ],
)
@in_virtual_time
async def test_the_verdict_is_what_a_fenced_read_shows(
    world: World, before: float | None, now: float | None, outcome: Outcome
) -> None:
    if now is not None:
        world.brokers.quotas[ALICE] = {KEY: now, "consumer_byte_rate": 9.0}
    world.leave_open(before=before)
    assert await world.recovery.round() == 1
    (recovered,) = world.journal.recovered
    assert (recovered.result.outcome, recovered.final) == (outcome, False)
    assert recovered.evidence["verified"] is True


@pytest.mark.parametrize(
    ("last_audited", "now", "outcome"),
    [
        (4.0, 4.0, Outcome.NOT_APPLIED),
        (4.0, 5.0, Outcome.APPLIED),
        (4.0, 3.0, Outcome.OBSERVED_OTHER),
        (None, 5.0, Outcome.APPLIED),
        (None, 4.0, Outcome.OBSERVED_OTHER),
    ],
)
@in_virtual_time
async def test_what_the_log_has_last_tells_what_is_new_and_proves_nothing_of_before(
    world: World, last_audited: float | None, now: float, outcome: Outcome
) -> None:
    world.brokers.quotas[ALICE] = {KEY: now}
    state = None if last_audited is None else {KEY: last_audited}
    world.leave(change(None), 1.0, last_audited=state)
    assert await world.recovery.round() == 1
    (recovered,) = world.journal.recovered
    assert recovered.result.outcome is outcome
    assert (recovered.result.before, recovered.result.changed) == (None, None)
    assert recovered.evidence["before_is_proven"] is False


@in_virtual_time
async def test_what_the_owner_read_under_its_lock_is_what_held_before(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    world.leave(change({KEY: 3.0}), 1.0, last_audited={KEY: 4.0})
    await world.recovery.round()
    (recovered,) = world.journal.recovered
    assert (recovered.result.before, recovered.result.changed) == ({KEY: 3.0}, True)
    assert recovered.evidence["before_is_proven"] is True


@in_virtual_time
async def test_a_pair_of_fences_comes_before_the_read_and_nothing_is_sent(world: World) -> None:
    world.leave_open()
    await world.recovery.round()
    assert [item for item in world.log if item != "quorum"] == [
        "claim_open",
        "validate",
        "validate",
        "record_recovery",
    ]
    assert "send" not in world.log


@in_virtual_time
async def test_a_verdict_is_final_after_95_seconds_and_not_before(world: World) -> None:
    for age_s, final in ((94.9, False), (95.0, True)):
        world.leave_open(age_s=age_s)
        await world.recovery.round()
        assert world.journal.recovered[-1].final is final


@in_virtual_time
async def test_what_held_before_and_is_intended_is_reported_as_indistinguishable(
    world: World,
) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    world.leave_open(before=5.0)
    await world.recovery.round()
    (recovered,) = world.journal.recovered
    assert recovered.result.outcome is Outcome.APPLIED
    assert recovered.evidence["indistinguishable"] is True


def answer_no_fence(brokers: FakeBrokers) -> None:
    brokers.fault = lambda alterations, _: {
        alteration.entity: Verdict(Outcome.UNKNOWN, KafkaRefusal(None, "silence"))
        for alteration in alterations
    }


def elect_between_the_fences(brokers: FakeBrokers) -> None:
    def elect(alterations: object, validate_only: bool) -> None:
        brokers.leader_epoch += 1

    brokers.fault = elect


def be_unreachable(brokers: FakeBrokers) -> None:
    brokers.reachable = False


@pytest.mark.parametrize("fail", [answer_no_fence, elect_between_the_fences, be_unreachable])
@in_virtual_time
async def test_without_a_pair_of_fences_nothing_is_concluded(
    world: World, fail: Callable[[FakeBrokers], None]
) -> None:
    fail(world.brokers)
    world.leave_open()
    await world.recovery.round()
    assert world.journal.recovered == []


@in_virtual_time
async def test_without_the_right_to_describe_the_quorum_the_verdict_is_not_verified(
    world: World,
) -> None:
    world.brokers.permits_quorum = False
    world.leave_open()
    await world.recovery.round()
    (recovered,) = world.journal.recovered
    assert recovered.evidence["verified"] is False
    assert recovered.evidence["leader_epoch"] is None


@in_virtual_time
async def test_a_batch_is_observed_behind_one_pair_of_fences_and_recorded_in_portions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead, "PORTION", 200)
    world.leave_many(500)
    assert await world.recovery.round() == 500
    assert world.log.count("validate") == 2
    assert world.log.count("record_recovery") == 3
    found = world.journal.recovered
    assert [result.key for result in found] == [("a1", ordinal) for ordinal in range(500)]
    assert [result.final for result in found] == [False, *[True] * 499]
    outcomes = (Outcome.NOT_APPLIED, Outcome.APPLIED)
    assert [result.result.outcome for result in found] == [outcomes[n % 2] for n in range(500)]
    assert found[0].evidence["fences"] == found[1].evidence["fences"]
    assert world.metrics.counts["quota_recovery applied fences"] == 250


@in_virtual_time
async def test_each_broker_that_something_was_sent_through_is_fenced(world: World) -> None:
    for broker_id in (1, 2, None, 99):
        world.leave(change({}), 1.0, alteration_id="b", broker_id=broker_id)
    assert await world.recovery.round() == 4
    assert world.log.count("validate") == 4
    through = sorted(item.evidence["broker_id"] for item in world.journal.recovered)
    assert through == [1, 1, 1, 2]


@pytest.mark.parametrize("fault", [BrokerError("An odd answer."), RuntimeError("not thought of")])
@in_virtual_time
async def test_a_broker_that_answers_oddly_does_not_hold_up_what_was_sent_through_others(
    world: World, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Recovery.fence_pair

    async def odd(self: Recovery, alteration: ClientQuotaAlteration, broker_id: int) -> Any:
        if broker_id == 1:
            raise fault
        return await pair(self, alteration, broker_id)

    monkeypatch.setattr(Recovery, "fence_pair", odd)
    for broker_id in (1, 2):
        arguments = {"alteration_id": f"a{broker_id}", "broker_id": broker_id}
        world.leave(change({}), 1.0, **arguments)  # type: ignore[arg-type]
    await world.recovery.round()
    assert [item.alteration_id for item in world.journal.recovered] == ["a2"]


@in_virtual_time
async def test_what_another_process_has_concluded_is_not_counted(world: World) -> None:
    world.leave_many(3)
    world.journal.concluded = {("a1", 2)}
    await world.recovery.round()
    assert [item.key for item in world.journal.recovered] == [("a1", 0), ("a1", 1)]
    assert world.metrics.counts["quota_recovery applied fences"] == 1
    assert "quota_recovery not_applied fences" not in world.metrics.counts


NUMBER = 2500


def request_of(number: int) -> Alteration:
    ops = (Op("producer_byte_rate", Decimal(5)),)
    entities = (ClientQuotaEntity.of({"user": f"user-{each}"}) for each in range(number))
    changes = tuple(
        Change(entity, ops, ordinal, before={}) for ordinal, entity in enumerate(entities)
    )
    caller = Caller("User:ci", "127.0.0.1", "bearer")
    return Alteration(caller, "r1", changes, alteration_id="a1", cluster_id="fake")


def answered(request: Alteration, *verdicts: Verdict) -> Handover:
    by_entity = {each.entity: verdicts[each.ordinal % len(verdicts)] for each in request.changes}
    return Handover(by_entity, 1, EPOCH, EPOCH)


async def listened(journal: FakeJournal, request: Alteration, late: Handover) -> CountedMetrics:
    metrics, tasks = CountedMetrics(), AlterationTasks()
    coming: asyncio.Future[Handover] = asyncio.get_running_loop().create_future()
    tasks.watch(record_late_answer(request, coming, journal, metrics))
    coming.set_result(late)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    async with asyncio.timeout(30):
        await asyncio.wait(others)
    return metrics


async def test_the_verdicts_on_many_entities_are_recorded_in_portions():
    log: list[str] = []
    journal, request = FakeJournal(log), request_of(NUMBER)
    verdicts = (Verdict(Outcome.APPLIED), refused("INVALID_REQUEST"))
    metrics = await listened(journal, request, answered(request, *verdicts))
    assert log == ["record_recovery"] * 3
    assert [item.ordinal for item in journal.recovered] == list(range(NUMBER))
    assert all(item.final for item in journal.recovered)
    first, second, *_ = journal.recovered
    assert (first.result.outcome, first.result.after) == (
        Outcome.APPLIED,
        {"producer_byte_rate": 5.0},
    )
    assert second.result.outcome is Outcome.REFUSED
    assert second.evidence["late_answer"] == "refused"
    assert metrics.counts == {
        "quota_late_outcomes": NUMBER,
        "quota_recovery applied late_answer": NUMBER / 2,
        "quota_recovery refused late_answer": NUMBER / 2,
        "quota_recovery_seconds late_answer": NUMBER,
    }


async def test_a_late_silence_is_no_verdict():
    log: list[str] = []
    journal, request = FakeJournal(log), request_of(3)
    metrics = await listened(journal, request, answered(request, Verdict(Outcome.UNKNOWN)))
    assert (log, journal.recovered, metrics.counts) == ([], [], {})


async def test_a_late_answer_that_is_recorded_already_is_not_counted_as_recovered():
    journal, request = FakeJournal([]), request_of(2)
    journal.concluded = {("a1", 0)}
    metrics = await listened(journal, request, answered(request, Verdict(Outcome.APPLIED)))
    assert metrics.counts == {
        "quota_late_outcomes": 2,
        "quota_recovery applied late_answer": 1,
        "quota_recovery_seconds late_answer": 1,
    }


async def test_a_late_answer_that_cannot_be_recorded_is_left_to_recovery(
    caplog: pytest.LogCaptureFixture,
):
    journal, request = FakeJournal([]), request_of(2)
    journal.broken = {"record_recovery"}
    metrics = await listened(journal, request, answered(request, Verdict(Outcome.APPLIED)))
    assert metrics.counts == {"quota_late_outcomes": 2}
    assert "the late answer to a1 was not recorded: Postgres is down." in caplog.text


@dataclass
class DriftLog:
    leads: bool = True
    states: dict[ClientQuotaEntity, AuditedState] | None = None
    doubtful: Mapping[ClientQuotaEntity, Mapping[str, ClientQuotaAlteration]] = field(
        default_factory=dict
    )
    recorded: list[Drift] = field(default_factory=list)

    async def try_lead(self, cluster_id: str) -> bool:
        return self.leads

    async def let_others_lead(self, _cluster_id: str) -> None:
        self.leads = False

    async def baseline(self, cluster_id: str) -> Mapping[ClientQuotaEntity, AuditedState] | None:
        return self.states

    async def keep_baseline(self, cluster_id: str, quotas: Quotas) -> None:
        self.states = {key: AuditedState(dict(v), 1) for key, v in quotas.items()}

    async def record_drift(
        self, cluster_id: str, changes: Sequence[Drift]
    ) -> Sequence[ClientQuotaEntity]:
        self.recorded += changes
        assert self.states is not None
        for change in changes:
            self.states[change.entity] = AuditedState(change.after, change.version + 1)
        return [change.entity for change in changes]

    async def recent_doubtful(
        self, cluster_id: str, entities: Iterable[ClientQuotaEntity]
    ) -> Mapping[ClientQuotaEntity, Mapping[str, ClientQuotaAlteration]]:
        return self.doubtful


@dataclass
class Watched:
    log: DriftLog = field(default_factory=DriftLog)

    def __post_init__(self) -> None:
        self.brokers = FakeBrokers([])
        barrier = Barrier(self.brokers, CurrentValues(self.brokers))
        self.metrics = CountedMetrics()
        self.watch = DriftWatch(self.brokers, barrier, self.log, self.metrics)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@in_virtual_time
async def test_what_the_first_scan_finds_is_no_drift(watched: Watched) -> None:
    watched.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await watched.watch.round() == ()
    assert await watched.watch.round() == ()
    assert watched.log.recorded == []


@in_virtual_time
async def test_whoever_watches_says_how_full_budgets_are(watched: Watched) -> None:
    half = Budget("half", {KEY: Decimal(20)}, users="ali", overbooking=Decimal(2))
    over = Budget("over", {KEY: Decimal(10)}, users=frozenset({"alice"}))
    watched.watch.budgets = lambda: [half, over]
    watched.brokers.quotas[ALICE] = {KEY: 20.0}
    registry = watched.metrics.make.registry

    def filled() -> list[float | None]:
        name = "quota_budget_filled_ratio"
        labels = ({"budget": budget.name, "key": KEY} for budget in (half, over))
        return [registry.get_sample_value(name, each) for each in labels]

    await watched.watch.round()
    assert filled() == [0.5, 2.0]
    watched.watch.budgets = lambda: [half]
    await watched.watch.round()
    assert filled() == [0.5, None]
    watched.log.leads = False
    await watched.watch.round()
    assert filled() == [None, None]


@pytest.mark.parametrize(
    ("before", "after"), [({}, {KEY: 5.0}), ({KEY: 5.0}, {KEY: 6.0}), ({KEY: 5.0}, {})]
)
@in_virtual_time
async def test_a_change_by_others_is_recorded_once_with_before_and_after(
    watched: Watched, before: dict[str, float], after: dict[str, float]
) -> None:
    watched.brokers.quotas = {ALICE: before} if before else {}
    await watched.watch.round()
    watched.brokers.quotas = {ALICE: after} if after else {}
    assert await watched.watch.round() == [ALICE]
    assert await watched.watch.round() == ()
    (drift,) = watched.log.recorded
    assert (drift.before, drift.after, drift.linked_alteration_id) == (before, after, None)


@in_virtual_time
async def test_without_a_barrier_a_difference_must_be_seen_twice(watched: Watched) -> None:
    watched.brokers.permits_quorum = False
    await watched.watch.round()
    watched.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await watched.watch.round() == ()
    assert await watched.watch.round() == [ALICE]


@in_virtual_time
async def test_without_a_barrier_a_stale_broker_is_no_drift(watched: Watched) -> None:
    watched.brokers.permits_quorum = False
    await watched.watch.round()
    watched.log.states = {ALICE: AuditedState({KEY: 5.0}, 2)}
    assert await watched.watch.round() == ()
    watched.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await watched.watch.round() == ()
    assert watched.log.recorded == []


@pytest.mark.parametrize(("value", "linked"), [(5.0, "a1"), (6.0, None)])
@in_virtual_time
async def test_a_late_apply_of_our_own_is_linked_to_its_alteration_and_another_value_is_not(
    watched: Watched, value: float, linked: str | None
) -> None:
    await watched.watch.round()
    watched.log.doubtful = {ALICE: {"a1": TO_FIVE}}
    watched.brokers.quotas[ALICE] = {KEY: value}
    await watched.watch.round()
    assert watched.log.recorded[0].linked_alteration_id == linked


@in_virtual_time
async def test_only_one_process_watches(watched: Watched) -> None:
    watched.log.leads = False
    watched.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await watched.watch.round() == ()
    assert watched.log.states is None
