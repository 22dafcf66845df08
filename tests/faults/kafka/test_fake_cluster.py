"""The fake cluster does what its controls say, so that tests can rely on it."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from app.domain.errors import NotSentError
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.service.ports.brokers import Handover
from tests.faults.kafka.conftest import ALICE, BOB, SHORT_S
from tests.testkit import kafka
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import (
    DROP_AFTER_APPLYING,
    DROP_BEFORE_APPLYING,
    HELD,
    NEVER_ANSWER,
    FakeCluster,
    Fault,
    apply_late,
    fake_cluster,
    time_out_and_apply_late,
)
from tests.testkit.fake_kafka.messages import Alteration
from tests.testkit.kafka import DEADLINE_S, barrier_of, entity, outcomes_of, setting, values_of
from tests.testkit.patience import PATIENT

BROKERS = (1, 2)
KEY = "producer_byte_rate"
CAROL = entity(user="carol")


async def alter(
    admin: KafkaClientQuotaAdmin, of: ClientQuotaEntity, value: float, **options: object
) -> Handover:
    asked = {"broker_id": 1, "timeout_s": DEADLINE_S, **options}
    return await kafka.alter(admin, of, value=value, **asked)


def outcome(answer: Handover, of: ClientQuotaEntity = ALICE) -> tuple[Outcome, str | None]:
    verdict = answer.verdicts[of]
    return verdict.outcome, verdict.error and verdict.error.kafka_error


def log(cluster: FakeCluster) -> list[tuple[ClientQuotaEntity, float | None]]:
    writes = [record.write for record in cluster.apply_log]
    assert {write.key for write in writes} <= {KEY}
    return [(write.entity, write.value) for write in writes]


async def test_a_healthy_cluster_applies_and_logs_what_changes(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    assert outcome(await alter(admin, ALICE, 1)) == (Outcome.APPLIED, None)
    assert outcome(await alter(admin, ALICE, 1)) == (Outcome.APPLIED, None)
    assert outcome(await alter(admin, ALICE, 2, validate_only=True)) == (Outcome.VALIDATED, None)
    await admin.alter_client_quotas([setting(ALICE, producer_byte_rate=None)], validate_only=False)
    assert log(cluster) == [(ALICE, 1.0), (ALICE, None)]
    assert cluster.quotas == {}
    assert [each.validate_only for each in cluster.alterations] == [False, False, True, False]
    times = [each.at for each in cluster.apply_log]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("fault", "answered", "applied"),
    [
        (DROP_BEFORE_APPLYING, (Outcome.UNKNOWN, None), False),
        (DROP_AFTER_APPLYING, (Outcome.UNKNOWN, None), True),
        (Fault(error_code=-1), (Outcome.UNKNOWN, "UNKNOWN_SERVER_ERROR"), True),
        (Fault(refused=89), (Outcome.REFUSED, "THROTTLING_QUOTA_EXCEEDED"), False),
    ],
)
async def test_a_fault_happens_once(
    cluster: FakeCluster,
    admin: KafkaClientQuotaAdmin,
    fault: Fault,
    answered: tuple[Outcome, str | None],
    *,
    applied: bool,
):
    cluster.fail_next(fault)
    answer = await alter(admin, ALICE, 1)
    assert (outcome(answer), answer.late) == (answered, None)
    assert bool(log(cluster)) is applied
    assert outcome(await alter(admin, ALICE, 2)) == (Outcome.APPLIED, None)


async def test_an_answer_never_comes(cluster: FakeCluster, admin: KafkaClientQuotaAdmin):
    await admin.live_brokers()
    cluster.fail_next(NEVER_ANSWER)
    answer = await alter(admin, ALICE, 1, timeout_s=SHORT_S)
    assert answer.late is not None
    assert log(cluster) == [(ALICE, 1.0)]


async def test_what_is_held_is_applied_when_the_test_says_so(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    await admin.live_brokers()
    cluster.fail_next(Fault(applies=(HELD,)))
    answer = await alter(admin, ALICE, 1, timeout_s=SHORT_S)
    assert answer.late is not None
    assert log(cluster) == []
    cluster.apply_held()
    late = await asyncio.wait_for(answer.late, DEADLINE_S)
    assert outcome(late) == (Outcome.APPLIED, None)
    assert log(cluster) == [(ALICE, 1.0)]


async def test_what_is_applied_late_comes_after_its_connection_is_gone(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    cluster.fail_next(apply_late(SHORT_S))
    assert outcome(await alter(admin, ALICE, 1)) == (Outcome.UNKNOWN, None)
    await until(lambda: log(cluster) == [(ALICE, 1.0)])


async def test_what_timed_out_is_applied_all_the_same(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    cluster.fail_next(time_out_and_apply_late(HELD))
    assert outcome(await alter(admin, ALICE, 1)) == (Outcome.UNKNOWN, "REQUEST_TIMED_OUT")
    assert log(cluster) == []
    cluster.apply_held()
    assert log(cluster) == [(ALICE, 1.0)]


async def test_a_function_decides_what_happens_to_each(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin
):
    numbers = count(1)

    def every_second(_: Alteration) -> Fault | None:
        return Fault(error_code=7) if next(numbers) % 2 == 0 else None

    cluster.schedule = every_second
    seen = [outcome(await alter(admin, ALICE, value))[1] for value in range(1, 5)]
    assert seen == [None, "REQUEST_TIMED_OUT"] * 2
    cluster.schedule = None
    assert outcome(await alter(admin, ALICE, 9)) == (Outcome.APPLIED, None)


async def test_a_broker_that_publishes_late_shows_the_past_and_reports_its_offset(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    cluster.lag(1, 3600.0)
    await alter(admin, ALICE, 1)
    assert await values_of_at(admin, 1) == {}
    assert await values_of_at(admin, 2) == {KEY: 1.0}
    quorum = KafkaMetadataQuorum(brokers)
    last = (await quorum.quorum(broker_id=1)).high_watermark - 1
    offsets = [await quorum.published_offset(broker_id=n, timeout_s=DEADLINE_S) for n in (1, 2)]
    assert offsets[0] < offsets[1] == last
    cluster.lag(1, 0.0)
    assert await values_of_at(admin, 1) == {KEY: 1.0}


async def values_of_at(admin: KafkaClientQuotaAdmin, broker_id: int) -> dict[str, float]:
    described = await admin.describe_client_quotas(ALL_ENTITIES, broker_id=broker_id)
    return dict(described.quotas.get(ALICE, {}))


async def test_a_barrier_waits_for_a_broker_that_publishes_late(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    barrier = barrier_of(brokers, admin)
    cluster.lag(1, 0.1)
    value, stale = 0, 0
    async with asyncio.timeout(DEADLINE_S):
        while stale < 5:  # what is looked at too late is not stale any more
            value += 1
            await alter(admin, ALICE, value)
            stale += await values_of_at(admin, 1) != {KEY: float(value)}
            read = await barrier.read([ALICE], broker_id=1)
            assert read.values == {ALICE: {KEY: float(value)}}


async def test_another_tool_changes_quotas(cluster: FakeCluster, admin: KafkaClientQuotaAdmin):
    cluster.store(ALICE, {KEY: 5.0})
    assert await values_of(admin, ALICE) == {KEY: 5.0}
    assert log(cluster) == [(ALICE, 5.0)]


class Caller:
    """Alters through one broker at a time, without waiting."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.brokers = Brokers(KafkaSettings(cluster.bootstrap_servers), patience=PATIENT)
        self.admin = KafkaClientQuotaAdmin(self.brokers)

    async def send(
        self, of: ClientQuotaEntity, value: float, *, through: int = 1, validate_only: bool = False
    ) -> "asyncio.Task[Handover]":
        """Send, and return when the request waits at the broker or has been answered."""
        number = len(self.cluster.alterations) + 1
        options = {"validate_only": validate_only, "broker_id": through}
        asked = kafka.alter(self.admin, of, value=value, timeout_s=DEADLINE_S, **options)
        task = asyncio.create_task(asked)
        await until(lambda: len(self.cluster.alterations) == number)
        return task

    def log(self) -> list[tuple[ClientQuotaEntity, float | None]]:
        return log(self.cluster)


async def outcomes(*tasks: "asyncio.Task[Handover]") -> list[Outcome]:
    answers = await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)
    return [outcome for answer in answers for outcome in outcomes_of(answer)]


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with fake_cluster(2) as cluster:
        calling = Caller(cluster)
        yield calling
        await calling.admin.close()


async def test_one_request_is_forwarded_at_a_time_first_in_first_out(caller: Caller):
    caller.cluster.hold_requests(1)
    sent = [await caller.send(of, 1) for of in (ALICE, BOB, CAROL)]
    assert await outcomes(await caller.send(ALICE, 2, through=2)) == [Outcome.APPLIED]
    caller.cluster.let_go(1)
    assert await outcomes(*sent) == [Outcome.APPLIED] * 3
    assert caller.log() == [(ALICE, 2.0), (ALICE, 1.0), (BOB, 1.0), (CAROL, 1.0)]


async def test_after_a_lost_connection_what_came_last_goes_first(caller: Caller):
    caller.cluster.hold_requests(1)
    sent = [await caller.send(of, 1) for of in (ALICE, BOB, CAROL)]
    caller.cluster.cut(1)
    caller.cluster.let_go(1)
    assert await outcomes(*sent) == [Outcome.APPLIED] * 3
    assert caller.log() == [(CAROL, 1.0), (BOB, 1.0), (ALICE, 1.0)]


async def test_a_fence_is_overtaken_only_when_the_connection_is_lost(caller: Caller):
    for cut, expected in ((False, [(ALICE, 1.0)]), (True, [(ALICE, 1.0)])):
        caller.cluster.hold_requests(1)
        old = await caller.send(ALICE, 2 if cut else 1)
        fence = await caller.send(ALICE, 9, validate_only=True)
        if cut:
            caller.cluster.cut(1)
        caller.cluster.let_go(1)
        await asyncio.wait({fence, old}, return_when=asyncio.FIRST_COMPLETED)
        assert fence.done() is cut
        assert caller.log()[: len(expected)] == expected
        assert await outcomes(old, fence) == [Outcome.APPLIED, Outcome.VALIDATED]


async def test_a_short_pause_of_the_controller_only_delays(caller: Caller):
    caller.cluster.pause_controller()
    sent = [await caller.send(of, 1) for of in (ALICE, BOB)]
    with pytest.raises(NotSentError):
        await KafkaMetadataQuorum(caller.brokers).quorum(broker_id=1, timeout_s=SHORT_S)
    assert caller.log() == []
    await caller.admin.describe_client_quotas(ALL_ENTITIES)
    caller.cluster.resume_controller()
    assert await outcomes(*sent) == [Outcome.APPLIED] * 2
    assert caller.log() == [(ALICE, 1.0), (BOB, 1.0)]


async def test_what_a_frozen_controller_has_got_is_applied_and_sent_again(caller: Caller):
    caller.cluster.pause_controller()
    old = await caller.send(ALICE, 1)
    caller.cluster.cut(1)
    new = await caller.send(ALICE, 2, through=2)
    caller.cluster.resume_controller()
    assert await outcomes(old, new) == [Outcome.APPLIED] * 2
    # The copy of the old one in the controller's buffers, the copy that was sent again, the new.
    assert caller.log()[0] == (ALICE, 1.0)
    assert caller.log()[-1] == (ALICE, 2.0)


async def test_an_answer_that_is_lost_lets_the_broker_undo_a_later_change(caller: Caller):
    caller.cluster.hold_answers(1)
    old = await caller.send(ALICE, 1)
    await until(lambda: caller.log() == [(ALICE, 1.0)])
    assert await outcomes(await caller.send(ALICE, 2, through=2)) == [Outcome.APPLIED]
    caller.cluster.cut(1)
    caller.cluster.let_go(1)
    assert await outcomes(old) == [Outcome.APPLIED]
    assert caller.log() == [(ALICE, 1.0), (ALICE, 2.0), (ALICE, 1.0)]


async def test_a_broker_loses_patience_with_the_controller_and_turns_the_order_round():
    async with fake_cluster(1, socket_patience_s=1.0) as cluster:
        caller = Caller(cluster)
        cluster.hold_requests(1)
        sent = [await caller.send(of, 1) for of in (ALICE, BOB, CAROL)]
        await until(lambda: cluster.losses(1) >= 1)
        cluster.let_go(1)
        assert await outcomes(*sent) == [Outcome.APPLIED] * 3
        assert caller.log() == [(CAROL, 1.0), (BOB, 1.0), (ALICE, 1.0)]
        await caller.admin.close()


async def test_what_waited_too_long_times_out_and_is_applied_where_the_controller_has_it():
    async with fake_cluster(1, socket_patience_s=SHORT_S, queue_patience_s=2 * SHORT_S) as cluster:
        caller = Caller(cluster)
        cluster.pause_controller()
        sent = [await caller.send(of, 1) for of in (ALICE, BOB)]
        assert await outcomes(*sent) == [Outcome.UNKNOWN] * 2
        answers = [(await task).verdicts for task in sent]
        errors = [verdict.error for verdicts in answers for verdict in verdicts.values()]
        assert {error and error.kafka_error for error in errors} == {"REQUEST_TIMED_OUT"}
        assert caller.log() == []
        cluster.resume_controller()
        assert (ALICE, 1.0) in caller.log()
        await caller.admin.close()


async def test_another_controller_has_another_epoch_and_gets_what_the_old_one_had_not_done(
    caller: Caller,
):
    quorum = KafkaMetadataQuorum(caller.brokers)
    epoch = (await quorum.quorum()).leader_epoch
    caller.cluster.pause_controller()
    sent = [await caller.send(of, 1) for of in (ALICE, BOB)]
    caller.cluster.change_controller()
    assert await outcomes(*sent) == [Outcome.APPLIED] * 2
    assert caller.log() == [(BOB, 1.0), (ALICE, 1.0)]
    assert (await quorum.quorum()).leader_epoch == epoch + 1


async def test_of_a_killed_broker_only_what_was_delivered_is_applied(caller: Caller):
    caller.cluster.pause_controller()
    sent = [await caller.send(of, 1) for of in (ALICE, BOB)]
    caller.cluster.kill(1)
    assert await outcomes(*sent) == [Outcome.UNKNOWN] * 2
    assert await caller.admin.live_brokers() == [2]
    caller.cluster.resume_controller()
    assert caller.log() == [(ALICE, 1.0)]
    caller.cluster.start(1)
    assert await outcomes(await caller.send(BOB, 2)) == [Outcome.APPLIED]
