"""The watch for drift: what is recorded, when, and what it is linked to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Quotas
from app.domain.entities import ClientQuotaEntity
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.ports.audit_log import AuditedState, Drift
from app.service.recovery import DriftWatch
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.virtual_time import in_virtual_time

ALICE = ClientQuotaEntity.of({"user": "alice"})
KEY = "producer_byte_rate"


@dataclass
class Log:
    leads: bool = True
    states: dict[ClientQuotaEntity, AuditedState] | None = None
    doubtful: Mapping[ClientQuotaEntity, Mapping[str, ClientQuotaAlteration]] = field(
        default_factory=dict
    )
    recorded: list[Drift] = field(default_factory=list)

    async def try_lead(self, cluster_id: str) -> bool:
        return self.leads

    async def let_others_lead(self) -> None:
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
class World:
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        self.brokers = FakeBrokers([])
        barrier = Barrier(self.brokers, CurrentValues(self.brokers))
        self.watch = DriftWatch(self.brokers, barrier, self.log, CountedMetrics())


@pytest.fixture
def world() -> World:
    return World()


@in_virtual_time
async def test_what_the_first_scan_finds_is_no_drift(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await world.watch.round() == ()
    assert await world.watch.round() == ()
    assert world.log.recorded == []


@pytest.mark.parametrize(
    ("before", "after"), [({}, {KEY: 5.0}), ({KEY: 5.0}, {KEY: 6.0}), ({KEY: 5.0}, {})]
)
@in_virtual_time
async def test_a_change_by_others_is_recorded_once_with_before_and_after(
    world: World, before: dict[str, float], after: dict[str, float]
) -> None:
    world.brokers.quotas = {ALICE: before} if before else {}
    await world.watch.round()
    world.brokers.quotas = {ALICE: after} if after else {}
    assert await world.watch.round() == [ALICE]
    assert await world.watch.round() == ()
    (drift,) = world.log.recorded
    assert (drift.before, drift.after, drift.linked_alteration_id) == (before, after, None)


@in_virtual_time
async def test_without_a_barrier_a_difference_must_be_seen_twice(world: World) -> None:
    world.brokers.permits_quorum = False
    await world.watch.round()
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await world.watch.round() == ()
    assert await world.watch.round() == [ALICE]


@in_virtual_time
async def test_without_a_barrier_a_stale_broker_is_no_drift(world: World) -> None:
    world.brokers.permits_quorum = False
    await world.watch.round()
    world.log.states = {ALICE: AuditedState({KEY: 5.0}, 2)}
    assert await world.watch.round() == ()
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await world.watch.round() == ()
    assert world.log.recorded == []


@pytest.mark.parametrize(("value", "linked"), [(5.0, "a1"), (6.0, None)])
@in_virtual_time
async def test_a_late_apply_of_our_own_is_linked_to_its_alteration_and_another_value_is_not(
    world: World, value: float, linked: str | None
) -> None:
    await world.watch.round()
    alteration = ClientQuotaAlteration(ALICE, (Op(KEY, Decimal(5)),))
    world.log.doubtful = {ALICE: {"a1": alteration}}
    world.brokers.quotas[ALICE] = {KEY: value}
    await world.watch.round()
    assert world.log.recorded[0].linked_alteration_id == linked


@in_virtual_time
async def test_only_one_process_watches(world: World) -> None:
    world.log.leads = False
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    assert await world.watch.round() == ()
    assert world.log.states is None
