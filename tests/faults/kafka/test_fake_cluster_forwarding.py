"""What happens to requests between a broker and the controller, as measured on real clusters."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.domain.filters import ALL_ENTITIES
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quorum import KafkaMetadataQuorum
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.ports.brokers import AlterAnswer
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.kafka import DEADLINE_S, entity, eventually, setting, until
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.raw_quotas import setting as raw_setting

SHORT_S = 0.3
KEY = "producer_byte_rate"
ALICE, BOB, CAROL = (entity(user=name) for name in ("alice", "bob", "carol"))


class Caller:
    """Alters through one broker at a time, without waiting."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.brokers = Brokers(KafkaSettings(cluster.bootstrap_servers))
        self.admin = KafkaClientQuotaAdmin(self.brokers)

    async def send(
        self, of: ClientQuotaEntity, value: float, *, through: int = 1, validate_only: bool = False
    ) -> "asyncio.Task[AlterAnswer]":
        """Send, and return when the request waits at the broker or has been answered."""
        number = len(self.cluster.alterations) + 1
        asked = self.admin.alter_client_quotas(
            [setting(of, producer_byte_rate=value)],
            validate_only=validate_only,
            broker_id=through,
            timeout_s=DEADLINE_S,
        )
        task = asyncio.create_task(asked)
        await until(lambda: len(self.cluster.alterations) == number)
        return task

    def log(self) -> list[tuple[ClientQuotaEntity, float | None]]:
        return [(record.entity, record.value) for record in self.cluster.apply_log]


async def outcomes(*tasks: "asyncio.Task[AlterAnswer]") -> list[Outcome]:
    answers = await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)
    return [verdict.outcome for answer in answers for verdict in answer.verdicts.values()]


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with fake_cluster(2) as cluster:
        calling = Caller(cluster)
        yield calling
        await calling.admin.close()


async def test_one_request_is_forwarded_at_a_time_first_in_first_out(caller: Caller):
    caller.cluster.hold_requests(1)
    sent = [await caller.send(of, 1) for of in (ALICE, BOB, CAROL)]
    assert caller.cluster.forwarding(1) == 3
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
    assert [record.request for record in caller.cluster.apply_log] == [1, 2, 1]


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
    assert caller.cluster.change_controller() == epoch + 1
    assert await outcomes(*sent) == [Outcome.APPLIED] * 2
    assert caller.log() == [(BOB, 1.0), (ALICE, 1.0)]
    assert (await quorum.quorum()).leader_epoch == epoch + 1


async def test_an_isolated_broker_is_silently_stale_and_has_no_quorum(caller: Caller):
    caller.cluster.isolate(1)
    assert await outcomes(await caller.send(ALICE, 1, through=2)) == [Outcome.APPLIED]

    async def shown() -> object:
        described = await caller.admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)
        return dict(described.quotas)

    assert await shown() == {}
    quorum = KafkaMetadataQuorum(caller.brokers)
    with pytest.raises(NotSentError):
        await quorum.quorum(broker_id=1, timeout_s=SHORT_S)
    state = await quorum.quorum(broker_id=2)
    assert state.log_ends[1] < state.high_watermark
    caller.cluster.rejoin(1)
    await eventually(shown, {ALICE: {KEY: 1.0}})
    assert (await quorum.quorum(broker_id=1)).log_ends[1] == state.high_watermark


async def test_what_is_not_committed_is_not_shown(caller: Caller):
    before = await KafkaMetadataQuorum(caller.brokers).quorum(broker_id=2)
    caller.cluster.commit_within(1.0)
    sent = await caller.send(ALICE, 1)
    await until(lambda: caller.log() == [(ALICE, 1.0)])
    assert not sent.done()
    described = await caller.admin.describe_client_quotas(ALL_ENTITIES)
    assert described.quotas == {}
    assert await outcomes(sent) == [Outcome.APPLIED]
    caller.cluster.commit_within(0.0)
    after = await KafkaMetadataQuorum(caller.brokers).quorum(broker_id=2)
    assert after.high_watermark == before.high_watermark + 1


async def test_a_frozen_broker_does_nothing_and_goes_on(caller: Caller):
    await caller.admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)
    caller.cluster.freeze(1)
    with pytest.raises(NotSentError):
        await caller.admin.describe_client_quotas(ALL_ENTITIES, broker_id=1, timeout_s=SHORT_S)
    caller.cluster.thaw(1)
    await caller.admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)


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


def test_a_cluster_in_a_thread_is_told_what_to_do_from_another():
    with (
        in_a_thread(fake_cluster) as cluster,
        RawQuotas(cluster.bootstrap_servers) as raw,
    ):
        raw.store({"user": "alice"}, {KEY: 1.0})
        cluster.store(BOB, {KEY: 2.0})
        assert raw.stored({"user": "bob"}) == {KEY: 2.0}
        cluster.hang_up(1)
        with pytest.raises((AssertionError, ConnectionError), match=r"closed|reset|pipe"):
            raw.alter(raw_setting({"user": "alice"}, {KEY: 3.0}))
        with pytest.raises(KeyError):
            cluster.freeze(99)
        assert cluster.quotas == {ALICE: {KEY: 1.0}, BOB: {KEY: 2.0}}
