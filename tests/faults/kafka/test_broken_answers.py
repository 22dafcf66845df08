"""Brokers that answer describes and alterations with nonsense, half, nothing, or too much."""

import asyncio
import struct
from collections.abc import Sequence

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import BrokerError, NotSentError
from app.service.ports.brokers import EntityVerdict
from tests.faults.kafka.single_broker import ALICE, BOB, NO_QUOTAS, SHORT_S, TWO_GIGABYTES, verdicts
from tests.testkit.fake_kafka.cluster import fake_cluster
from tests.testkit.fake_kafka.messages import encoded
from tests.testkit.fake_kafka.server import (
    ALTER,
    DESCRIBE,
    Reply,
    answering,
    closing,
    fake_broker,
    raw,
    sending,
    silent,
)
from tests.testkit.kafka import DEADLINE_S, admin_of, setting
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, Direction, kafka_proxy


async def another_correlation_id(writer: asyncio.StreamWriter, request: bytes) -> None:
    another = request[:4] + bytes([request[4] ^ 1]) + request[5:]
    writer.write(encoded(NO_QUOTAS, another))


async def two_answers(writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(encoded(NO_QUOTAS, request) * 2)


async def one_byte_at_a_time(writer: asyncio.StreamWriter, request: bytes) -> None:
    for byte in encoded(NO_QUOTAS, request):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)


ANSWER_FAULTS: dict[str, tuple[Reply, str]] = {
    "nonsense": (raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "broker-answer-too-large"),
    "noise in the frame": (sending(bytes(range(1, 200))), "broker-answer-unreadable"),
    "zeros in the frame": (sending(bytes(100)), "broker-answer-unreadable"),
    "an empty frame": (raw(struct.pack(">i", 0)), "broker-answer-unreadable"),
    "a negative length": (raw(struct.pack(">i", -1)), "broker-answer-unreadable"),
    "two gigabytes": (raw(TWO_GIGABYTES + b"x" * 1_000_000), "broker-answer-too-large"),
    "the answer to another request": (another_correlation_id, "broker-answer-unreadable"),
    "two answers": (two_answers, "broker-answer-unreadable"),
}


async def test_a_describe_that_is_answered_with_nonsense_is_a_broker_error(
    subtests: pytest.Subtests,
):
    for fault, (reply, code) in ANSWER_FAULTS.items():
        with subtests.test(fault):
            async with (
                fake_broker({DESCRIBE: reply}) as broker,
                admin_of(broker.bootstrap_servers) as admin,
            ):
                with pytest.raises(BrokerError) as caught:
                    await admin.describe_client_quotas(ALL_ENTITIES)
                assert caught.value.code == code
                assert broker.received[DESCRIBE] == 1


async def test_an_alteration_without_a_readable_answer_is_unknown_and_sent_once(
    subtests: pytest.Subtests,
):
    for fault in [*ANSWER_FAULTS, "closed", "silent"]:
        with subtests.test(fault=fault):
            replies: dict[str, Reply] = {name: reply for name, (reply, _) in ANSWER_FAULTS.items()}
            reply = {**replies, "closed": closing, "silent": silent}[fault]
            async with (
                fake_broker({ALTER: reply}) as broker,
                admin_of(broker.bootstrap_servers) as admin,
            ):
                await admin.live_brokers()
                answer = await admin.alter_client_quotas(
                    [setting(ALICE, producer_byte_rate=1), setting(BOB, producer_byte_rate=1)],
                    validate_only=False,
                    timeout_s=SHORT_S if reply is silent else DEADLINE_S,
                )
                assert outcomes(answer.verdicts.values()) == [Outcome.UNKNOWN] * 2
                assert broker.received[ALTER] == 1


def outcomes(verdicts: Sequence[EntityVerdict]) -> list[Outcome]:
    return [verdict.outcome for verdict in verdicts]


async def test_a_describe_whose_connection_breaks_is_asked_three_times():
    async with (
        fake_broker({DESCRIBE: closing}) as broker,
        admin_of(broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(NotSentError) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES)
        assert caught.value.code == "cluster-unreachable"
        assert broker.received[DESCRIBE] == 3


async def test_a_describe_that_is_not_answered_ends_at_its_deadline():
    async with (
        fake_broker({DESCRIBE: silent}) as broker,
        admin_of(broker.bootstrap_servers) as admin,
    ):
        await admin.live_brokers()
        with pytest.raises(NotSentError, match="did not answer within"):
            await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
        assert broker.received[DESCRIBE] == 1


async def test_an_answer_may_come_one_byte_at_a_time():
    async with (
        fake_broker({DESCRIBE: one_byte_at_a_time}) as broker,
        admin_of(broker.bootstrap_servers) as admin,
    ):
        described = await admin.describe_client_quotas(ALL_ENTITIES)
    assert described.quotas == {}
    assert described.cluster_id == "fake"
    assert described.broker_id == 7


async def test_an_entity_that_the_broker_leaves_out_is_unknown():
    reply = answering(verdicts(alice=0, carol=0))
    async with fake_broker({ALTER: reply}) as broker, admin_of(broker.bootstrap_servers) as admin:
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1), setting(BOB, producer_byte_rate=1)],
            validate_only=False,
        )
    assert set(answer.verdicts) == {ALICE, BOB}
    assert answer.verdicts[ALICE] == EntityVerdict(Outcome.APPLIED, None, 250)
    assert answer.verdicts[BOB].outcome is Outcome.UNKNOWN


async def test_a_time_out_that_the_broker_tells_of_is_unknown():
    reply = answering(verdicts(alice=7))
    async with fake_broker({ALTER: reply}) as broker, admin_of(broker.bootstrap_servers) as admin:
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
    verdict = answer.verdicts[ALICE]
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.error is not None
    assert verdict.error.kafka_error == "REQUEST_TIMED_OUT"


@pytest.mark.parametrize("direction", [TO_BROKER, TO_CLIENT])
@pytest.mark.parametrize("size", [0, 3, 4, 11, 20])
async def test_a_connection_that_is_cut_after_some_bytes_is_unknown_and_sent_once(
    direction: Direction, size: int
):
    async with (
        fake_cluster() as cluster,
        kafka_proxy(cluster.bootstrap_servers) as proxy,
        admin_of(proxy.bootstrap_servers) as admin,
    ):
        proxy.cut_after(size, direction, ALTER, times=1)
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
        assert outcomes(answer.verdicts.values()) == [Outcome.UNKNOWN]
        assert answer.late is None
        assert len(cluster.apply_log) == (direction is TO_CLIENT)
        again = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=2)], validate_only=False
        )
        assert outcomes(again.verdicts.values()) == [Outcome.APPLIED]


async def test_an_answer_that_is_delayed_comes_late():
    async with (
        fake_cluster() as cluster,
        kafka_proxy(cluster.bootstrap_servers) as proxy,
        admin_of(proxy.bootstrap_servers) as admin,
    ):
        await admin.live_brokers()
        proxy.delay(2 * SHORT_S, TO_CLIENT, ALTER)
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False, timeout_s=SHORT_S
        )
        assert outcomes(answer.verdicts.values()) == [Outcome.UNKNOWN]
        assert answer.late is not None
        late = await asyncio.wait_for(answer.late, DEADLINE_S)
        assert outcomes(late.verdicts.values()) == [Outcome.APPLIED]
