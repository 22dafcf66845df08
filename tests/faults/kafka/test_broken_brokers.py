"""Brokers that answer nonsense, half, nothing, too much, or too little."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from kafka.protocol.admin import (
    AlterClientQuotasResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
    DescribeConfigsResponse,
)
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from app.domain.alterations import Outcome
from app.domain.errors import BrokerError, NotSentError, UnsupportedVersionError
from app.domain.filters import ALL_ENTITIES
from app.kafka.brokers import Brokers
from app.kafka.cluster import KafkaCluster
from app.kafka.cluster_acls import KafkaClusterAclSource
from app.kafka.configuration import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.cluster_ports import AlterAnswer, EntityVerdict
from tests.support.fake_broker import (
    ALTER,
    API_VERSIONS,
    DESCRIBE,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    HEALTHY_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    FakeBroker,
    Reply,
    answering,
    closing,
    fake_broker,
    framed,
    raw,
    sending,
    silent,
)
from tests.support.kafka import entity, setting

SHORT_S = 0.3

TWO_GIGABYTES = struct.pack(">i", 2**31 - 1)
NO_QUOTAS = DescribeClientQuotasResponse(
    throttle_time_ms=0, error_code=0, error_message=None, entries=[]
)
ALICE = entity(user="alice")
BOB = entity(user="bob", client_id=None)


@asynccontextmanager
async def admin_of(broker: FakeBroker) -> AsyncIterator[KafkaClientQuotaAdmin]:
    admin = KafkaClientQuotaAdmin(Brokers(KafkaSettings(broker.bootstrap_servers)))
    try:
        yield admin
    finally:
        await admin.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)


async def another_correlation_id(
    writer: asyncio.StreamWriter, correlation_id: int, request: bytes
) -> None:
    writer.write(framed(correlation_id + 1, b"\0" + bytes(NO_QUOTAS.encode(version=1))))


async def two_answers(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
    writer.write(framed(correlation_id, b"\0" + bytes(NO_QUOTAS.encode(version=1))) * 2)


async def one_byte_at_a_time(
    writer: asyncio.StreamWriter, correlation_id: int, request: bytes
) -> None:
    for byte in framed(correlation_id, b"\0" + bytes(NO_QUOTAS.encode(version=1))):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)


def verdicts(*answers: tuple[str, str | None, int]) -> AlterClientQuotasResponse:
    entry = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        throttle_time_ms=250,
        entries=[
            entry(
                error_code=code,
                error_message=None,
                entity=[entry.EntityData(entity_type=kind, entity_name=name)],
            )
            for kind, name, code in answers
        ],
    )


HANDSHAKE_FAULTS = {
    "nonsense": raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "zeros": raw(bytes(64)),
    "an answer without content": sending(b""),
    "noise in the frame": sending(bytes(range(256))),
    "two gigabytes": raw(TWO_GIGABYTES + b"x" * 100_000),
    "closed": closing,
    "silent": silent,
}


@pytest.mark.parametrize("api", [API_VERSIONS, METADATA])
@pytest.mark.parametrize("fault", HANDSHAKE_FAULTS)
async def test_a_server_that_is_no_broker_gets_nothing_sent(api: int, fault: str):
    async with (
        fake_broker({api: HANDSHAKE_FAULTS[fault]}) as broker,
        admin_of(broker) as admin,
    ):
        with pytest.raises(NotSentError) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
        assert caught.value.code == "cluster-unreachable"
        with pytest.raises(NotSentError):
            await admin.alter_client_quotas(
                [setting(ALICE, producer_byte_rate=1)], validate_only=False, timeout_s=SHORT_S
            )
        assert DESCRIBE not in broker.received
        assert ALTER not in broker.received


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


@pytest.mark.parametrize("fault", ANSWER_FAULTS)
async def test_a_describe_that_is_answered_with_nonsense_is_a_broker_error(fault: str):
    reply, code = ANSWER_FAULTS[fault]
    async with fake_broker({DESCRIBE: reply}) as broker, admin_of(broker) as admin:
        with pytest.raises(BrokerError) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES)
        assert caught.value.code == code
        assert broker.received[DESCRIBE] == 1


@pytest.mark.parametrize("fault", [*ANSWER_FAULTS, "closed", "silent"])
async def test_an_alteration_without_a_readable_answer_is_unknown_and_sent_once(fault: str):
    replies: dict[str, Reply] = {name: reply for name, (reply, _) in ANSWER_FAULTS.items()}
    reply = {**replies, "closed": closing, "silent": silent}[fault]
    async with fake_broker({ALTER: reply}) as broker, admin_of(broker) as admin:
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1), setting(BOB, producer_byte_rate=1)],
            validate_only=False,
            timeout_s=SHORT_S,
        )
        assert outcomes(answer.verdicts.values()) == [Outcome.UNKNOWN] * 2
        assert broker.received[ALTER] == 1


def outcomes(verdicts: Sequence[EntityVerdict]) -> list[Outcome]:
    return [verdict.outcome for verdict in verdicts]


async def alter_alice(admin: KafkaClientQuotaAdmin, timeout_s: float) -> AlterAnswer:
    return await admin.alter_client_quotas(
        [setting(ALICE, producer_byte_rate=1)], validate_only=False, timeout_s=timeout_s
    )


async def test_alterations_that_are_waited_for_leave_no_place_and_the_surplus_is_not_sent():
    replies = {ALTER: silent, DESCRIBE: answering(NO_QUOTAS, 1)}
    async with fake_broker(replies) as broker, admin_of(broker) as admin:
        waiting = [asyncio.create_task(alter_alice(admin, 30.0)) for _ in range(16)]
        await until(lambda: broker.received.get(ALTER) == 16)
        with pytest.raises(NotSentError, match="Too many requests wait"):
            await alter_alice(admin, SHORT_S)
        await admin.describe_client_quotas(ALL_ENTITIES)
        assert broker.received[ALTER] == 16
    answers = await asyncio.gather(*waiting)
    assert [answer.verdicts[ALICE].outcome for answer in answers] == [Outcome.UNKNOWN] * 16


async def test_alterations_that_are_only_listened_for_leave_their_places_up_to_a_bound():
    async with fake_broker({ALTER: silent}) as broker, admin_of(broker) as admin:
        async with asyncio.timeout(60):
            while broker.received.get(ALTER, 0) < 64 + 16:
                surplus = (alter_alice(admin, SHORT_S) for _ in range(16))
                await asyncio.gather(*surplus, return_exceptions=True)
        with pytest.raises(NotSentError, match="Too many requests wait"):
            await alter_alice(admin, SHORT_S)
        assert broker.received[ALTER] == 64 + 16


async def test_a_describe_whose_connection_breaks_is_asked_three_times():
    async with fake_broker({DESCRIBE: closing}) as broker, admin_of(broker) as admin:
        with pytest.raises(NotSentError) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES)
        assert caught.value.code == "cluster-unreachable"
        assert broker.received[DESCRIBE] == 3


async def test_a_describe_that_is_not_answered_ends_at_its_deadline():
    async with fake_broker({DESCRIBE: silent}) as broker, admin_of(broker) as admin:
        with pytest.raises(NotSentError, match="did not answer within"):
            await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
        assert broker.received[DESCRIBE] == 1


async def test_an_answer_may_come_one_byte_at_a_time():
    async with fake_broker({DESCRIBE: one_byte_at_a_time}) as broker, admin_of(broker) as admin:
        described = await admin.describe_client_quotas(ALL_ENTITIES)
    assert described.quotas == {}
    assert described.cluster_id == "fake"
    assert described.broker_id == 7


async def test_an_entity_that_the_broker_leaves_out_is_unknown():
    reply = answering(verdicts(("user", "alice", 0), ("user", "carol", 0)), 1)
    async with fake_broker({ALTER: reply}) as broker, admin_of(broker) as admin:
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1), setting(BOB, producer_byte_rate=1)],
            validate_only=False,
        )
    assert set(answer.verdicts) == {ALICE, BOB}
    assert answer.verdicts[ALICE] == EntityVerdict(Outcome.APPLIED, None, 250)
    assert answer.verdicts[BOB].outcome is Outcome.UNKNOWN


async def test_a_time_out_that_the_broker_tells_of_is_unknown():
    reply = answering(verdicts(("user", "alice", 7)), 1)
    async with fake_broker({ALTER: reply}) as broker, admin_of(broker) as admin:
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
    verdict = answer.verdicts[ALICE]
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.error is not None
    assert verdict.error.kafka_error == "REQUEST_TIMED_OUT"


async def test_a_broker_older_than_2_6_is_told_apart_and_gets_nothing_sent():
    versions = {key: HEALTHY_VERSIONS[key] for key in (METADATA, API_VERSIONS)}
    async with fake_broker(versions=versions) as broker, admin_of(broker) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.6"):
            await admin.describe_client_quotas(ALL_ENTITIES)
        with pytest.raises(UnsupportedVersionError):
            await admin.alter_client_quotas(
                [setting(ALICE, producer_byte_rate=1)], validate_only=False
            )
        assert set(broker.received) == {METADATA, API_VERSIONS}


async def test_a_broker_that_knows_only_the_first_versions_is_spoken_to_in_those():
    versions = {**HEALTHY_VERSIONS, API_VERSIONS: (0, 0), DESCRIBE: (0, 0), ALTER: (0, 0)}
    replies = {
        DESCRIBE: answering(NO_QUOTAS, 0, flexible=False),
        ALTER: answering(verdicts(("user", "alice", 0)), 0, flexible=False),
    }
    async with fake_broker(replies, versions) as broker, admin_of(broker) as admin:
        assert (await admin.describe_client_quotas(ALL_ENTITIES)).quotas == {}
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
    assert answer.verdicts[ALICE].outcome is Outcome.APPLIED


async def test_a_connection_that_was_closed_while_idle_is_not_used_for_an_alteration():
    replies = {
        DESCRIBE: answering(NO_QUOTAS, 1),
        ALTER: answering(verdicts(("user", "alice", 0)), 1),
    }
    async with fake_broker(replies) as broker, admin_of(broker) as admin:
        await admin.describe_client_quotas(ALL_ENTITIES)
        broker.hang_up()
        await until(lambda: not broker.connected)
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
    assert answer.verdicts[ALICE].outcome is Outcome.APPLIED


async def test_a_session_that_is_about_to_end_is_not_used_again():
    replies = {
        SASL_HANDSHAKE: answering(
            SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, flexible=False
        ),
        SASL_AUTHENTICATE: answering(
            SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=1000
            ),
            2,
        ),
        DESCRIBE: answering(NO_QUOTAS, 1),
    }
    async with fake_broker(replies) as broker:
        settings = KafkaSettings(
            broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="me",
            sasl_password="secret",
        )
        admin = KafkaClientQuotaAdmin(Brokers(settings))
        for _ in range(3):
            await admin.describe_client_quotas(ALL_ENTITIES)
        assert broker.received[SASL_AUTHENTICATE] == broker.received[API_VERSIONS] == 4
        await admin.close()


@pytest.mark.parametrize("reply", [closing, silent, sending(b"\0" * 5), raw(TWO_GIGABYTES)])
async def test_acls_that_cannot_be_read_are_never_no_acls(reply: Reply):
    async with fake_broker({DESCRIBE_ACLS: reply}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        with pytest.raises(NotSentError) as caught:
            await KafkaClusterAclSource(brokers, timeout_s=SHORT_S).cluster_acls(max_age_s=1.0)
        assert caught.value.code == "acl-source-unreachable"
        await brokers.close()


async def test_an_acl_error_of_another_kind_names_it():
    answer = DescribeAclsResponse(
        throttle_time_ms=0, error_code=-1, error_message="not loaded", resources=[]
    )
    async with fake_broker({DESCRIBE_ACLS: answering(answer, 3)}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        with pytest.raises(NotSentError, match=r"UNKNOWN_SERVER_ERROR\. not loaded"):
            await KafkaClusterAclSource(brokers).cluster_acls(max_age_s=1.0)
        await brokers.close()


def configurations(value: str | None) -> DescribeConfigsResponse:
    result = DescribeConfigsResponse.DescribeConfigsResult
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            result(
                error_code=0,
                error_message=None,
                resource_type=4,
                resource_name="7",
                configs=[
                    result.DescribeConfigsResourceResult(
                        name="client.quota.callback.class", value=value
                    )
                ],
            )
        ],
    )


@pytest.mark.parametrize("value", ["com.example.GroupQuotas", None])
async def test_the_class_of_a_quota_callback_is_told(value: str | None):
    async with fake_broker({DESCRIBE_CONFIGS: answering(configurations(value), 4)}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        cluster = KafkaCluster(brokers)
        assert await cluster.custom_callback() == value
        assert await cluster.custom_callback() == value
        assert broker.received[DESCRIBE_CONFIGS] == 1
        await cluster.close()
        await brokers.close()


async def test_without_a_broker_nothing_is_known_of_a_callback():
    async with fake_broker({API_VERSIONS: closing}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        assert await KafkaCluster(brokers).custom_callback() is None
        await brokers.close()
