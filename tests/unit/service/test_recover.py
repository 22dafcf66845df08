"""Recovery: what is observed, when it is final, and that nothing is ever sent again."""

from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.service import barrier as barriers
from app.service.barrier import Barrier
from app.service.breaker import CircuitBreaker
from app.service.failpoints import Failpoints
from app.service.fences import Fences
from app.service.life_context import LifeContext
from app.service.ports import AuditEntity, EntityVerdict, OpenAlteration
from app.service.present_values import PresentValues
from app.service.recover import Recovery, RecoveryParts
from tests.support.fake_metrics import CountedMetrics
from tests.support.fake_ports import FakeBrokers, FakeJournal

ALICE = ClientQuotaEntity.of({"user": "alice"})
KEY = "producer_byte_rate"
TO_FIVE = ClientQuotaAlteration(ALICE, (Op(KEY, Decimal(5)),))


@dataclass
class World:
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.brokers = FakeBrokers(self.log)
        self.journal = FakeJournal(self.log)
        fences = Fences(self.brokers, self.brokers, between_s=0)
        barrier = Barrier(self.brokers, PresentValues(self.brokers))
        self.metrics = CountedMetrics()
        breaker = CircuitBreaker("audit-log-unavailable", "Down.")
        context = LifeContext("test", self.metrics, breaker, Failpoints())
        parts = RecoveryParts(self.brokers, self.journal, fences, barrier, context)
        self.recovery = Recovery(parts, final_after_s=95)

    def leave_open(self, *, age_s: float = 1.0, before: float | None = None) -> None:
        values = {} if before is None else {KEY: before}
        audited = AuditEntity(0, TO_FIVE, values)
        self.journal.open.append(
            OpenAlteration("a1", audited, "fake", 1, age_s, quarantined=True, observed=False)
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(barriers, "PUBLISHING_S", 0)
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


async def test_a_pair_of_fences_comes_before_the_read_and_nothing_is_sent(world: World) -> None:
    world.leave_open()
    await world.recovery.round()
    assert [one for one in world.log if one != "quorum"] == [
        "claim_open",
        "validate",
        "validate",
        "record_recovery",
    ]
    assert "send" not in world.log


async def test_a_verdict_is_final_after_95_seconds_and_not_before(world: World) -> None:
    for age_s, final in ((94.9, False), (95.0, True)):
        world.leave_open(age_s=age_s)
        await world.recovery.round()
        assert world.journal.recovered[-1].final is final


async def test_what_held_before_and_is_intended_is_told_as_indistinguishable(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    world.leave_open(before=5.0)
    await world.recovery.round()
    (recovered,) = world.journal.recovered
    assert recovered.result.outcome is Outcome.APPLIED
    assert recovered.evidence["indistinguishable"] is True


async def test_a_fence_without_an_answer_proves_nothing(world: World) -> None:
    world.brokers.fault = lambda alterations, _: {
        one.entity: EntityVerdict(Outcome.UNKNOWN, KafkaRefusal(None, "silence"))
        for one in alterations
    }
    world.leave_open()
    await world.recovery.round()
    assert world.journal.recovered == []


async def test_a_new_controller_between_the_fences_breaks_the_pair(world: World) -> None:
    def elect(alterations: object, validate_only: bool) -> None:
        world.brokers.leader_epoch += 1

    world.brokers.fault = elect
    world.leave_open()
    await world.recovery.round()
    assert world.journal.recovered == []


async def test_without_the_right_to_describe_the_quorum_the_verdict_is_not_verified(
    world: World,
) -> None:
    world.brokers.permits_quorum = False
    world.leave_open()
    await world.recovery.round()
    (recovered,) = world.journal.recovered
    assert recovered.evidence["verified"] is False
    assert recovered.evidence["leader_epoch"] is None


async def test_an_unreachable_cluster_leaves_everything_open(world: World) -> None:
    world.brokers.reachable = False
    world.leave_open()
    await world.recovery.round()
    assert world.journal.recovered == []
