"""A broker that is none, is too old, hangs up, or answers nonsense, half, nothing, or too much."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import BrokerError, NotSentError, UnsupportedVersionError
from app.kafka.acls import cluster_acls
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings, SecurityProtocol
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.service.ports.brokers import BarrierUnavailableError, QuorumState, Verdict
from app.service.runtime.clock import Patience
from tests.faults.kafka.conftest import ALICE, BOB, NO_QUOTAS, SHORT_S, verdicts
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import fake_cluster
from tests.testkit.fake_kafka.messages import acls_answer, encoded, quorum_answer, versions_answer
from tests.testkit.fake_kafka.server import (
    ALTER,
    API_VERSIONS,
    BEFORE_2_6,
    DESCRIBE,
    DESCRIBE_ACLS,
    DESCRIBE_QUORUM,
    HEALTHY_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    FakeBroker,
    Reply,
    answering,
    closing,
    fake_broker,
    raw,
    sending,
    silent,
)
from tests.testkit.kafka import (
    DEADLINE_S,
    admin_of,
    alter,
    barrier_of,
    brokers_of,
    outcomes_of,
)
from tests.testkit.patience import PATIENT
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, Direction, kafka_proxy

TWO_GIGABYTES = struct.pack(">i", 2**31 - 1)


class Single(NamedTuple):
    """A fake broker, and the adapter on it."""

    broker: FakeBroker
    brokers: Brokers
    admin: KafkaClientQuotaAdmin


@asynccontextmanager
async def single(
    replies: dict[int, Reply] | None = None,
    versions: dict[int, tuple[int, int]] = HEALTHY_VERSIONS,
    patience: Patience = PATIENT,
    **settings: str,
) -> AsyncIterator[Single]:
    async with fake_broker(replies, versions) as broker:
        reached = KafkaSettings(broker.bootstrap_servers, **settings)
        async with brokers_of(reached, patience=patience) as brokers:
            admin = KafkaClientQuotaAdmin(brokers)
            yield Single(broker, brokers, admin)
            await asyncio.wait_for(admin.close(), DEADLINE_S)


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
    async with single({api: HANDSHAKE_FAULTS[fault]}) as (broker, _, admin):
        with pytest.raises(NotSentError) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)
        assert caught.value.code == "cluster-unreachable"
        with pytest.raises(NotSentError):
            await alter(admin, ALICE, timeout_s=SHORT_S)
        assert DESCRIBE not in broker.received
        assert ALTER not in broker.received


async def test_a_broker_older_than_2_6_is_recognized_and_gets_nothing_sent():
    async with single(versions=BEFORE_2_6) as (broker, _, admin):
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.6"):
            await admin.describe_client_quotas(ALL_ENTITIES)
        with pytest.raises(UnsupportedVersionError):
            await alter(admin, ALICE)
        assert set(broker.received) == {METADATA, API_VERSIONS}


async def test_a_broker_that_knows_only_the_first_versions_is_spoken_to_in_those():
    versions = {**HEALTHY_VERSIONS, API_VERSIONS: (0, 0), DESCRIBE: (0, 0), ALTER: (0, 0)}
    replies = {DESCRIBE: answering(NO_QUOTAS), ALTER: answering(verdicts(alice=0))}
    async with single(replies, versions) as (_, _, admin):
        assert (await admin.describe_client_quotas(ALL_ENTITIES)).quotas == {}
        assert outcomes_of(await alter(admin, ALICE)) == [Outcome.APPLIED]


async def test_a_connection_that_was_closed_while_idle_is_not_used_for_an_alteration():
    replies = {DESCRIBE: answering(NO_QUOTAS), ALTER: answering(verdicts(alice=0))}
    async with single(replies) as (broker, _, admin):
        await admin.describe_client_quotas(ALL_ENTITIES)
        broker.hang_up()
        await until(lambda: not broker.connected)
        assert outcomes_of(await alter(admin, ALICE)) == [Outcome.APPLIED]


async def test_a_session_that_is_about_to_end_is_not_used_again():
    accepted = SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=1000
    )
    replies = {
        SASL_HANDSHAKE: answering(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])),
        SASL_AUTHENTICATE: answering(accepted),
        DESCRIBE: answering(NO_QUOTAS),
    }
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "secret"}
    async with single(replies, security_protocol=SecurityProtocol.SASL_PLAINTEXT, **login) as (
        broker,
        _,
        admin,
    ):
        for _ in range(3):
            await admin.describe_client_quotas(ALL_ENTITIES)
        assert broker.received[SASL_AUTHENTICATE] == broker.received[API_VERSIONS] == 4


async def test_acls_that_cannot_be_read_are_never_no_acls(subtests: pytest.Subtests):
    patience = Patience(broker_answer_s=SHORT_S)
    for reply in [closing, silent, sending(b"\0" * 5), raw(TWO_GIGABYTES)]:
        with subtests.test(reply=reply):
            async with single({DESCRIBE_ACLS: reply}, patience=patience) as (_, brokers, _):
                with pytest.raises(NotSentError) as caught:
                    await cluster_acls(brokers)
                assert caught.value.code == "acl-source-unreachable"


async def test_an_acl_error_of_another_kind_names_it():
    answer = acls_answer(code=-1, message="not loaded")
    async with single({DESCRIBE_ACLS: answering(answer)}) as (_, brokers, _):
        with pytest.raises(NotSentError, match=r"UNKNOWN_SERVER_ERROR\. not loaded"):
            await cluster_acls(brokers)


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
            async with single({DESCRIBE: reply}) as (broker, _, admin):
                with pytest.raises(BrokerError) as caught:
                    await admin.describe_client_quotas(ALL_ENTITIES)
                assert caught.value.code == code
                assert broker.received[DESCRIBE] == 1


async def test_an_alteration_without_a_readable_answer_is_unknown_and_sent_once(
    subtests: pytest.Subtests,
):
    for reply in (*(reply for reply, _ in ANSWER_FAULTS.values()), closing, silent):
        with subtests.test(reply=reply):
            async with single({ALTER: reply}) as (broker, _, admin):
                await admin.live_brokers()
                timeout_s = SHORT_S if reply is silent else DEADLINE_S
                answer = await alter(admin, ALICE, BOB, timeout_s=timeout_s)
                assert outcomes_of(answer) == [Outcome.UNKNOWN] * 2
                assert broker.received[ALTER] == 1


@pytest.mark.parametrize(
    ("reply", "timeout_s", "times"), [(closing, None, 3), (silent, SHORT_S, 1)]
)
async def test_a_describe_is_asked_three_times_where_its_connection_breaks_and_else_once(
    reply: Reply, timeout_s: float | None, times: int
):
    async with single({DESCRIBE: reply}) as (broker, _, admin):
        await admin.live_brokers()
        with pytest.raises(NotSentError) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=timeout_s)
        assert caught.value.code == "cluster-unreachable"
        assert broker.received[DESCRIBE] == times


async def test_an_answer_may_come_one_byte_at_a_time():
    async with single({DESCRIBE: one_byte_at_a_time}) as (_, _, admin):
        described = await admin.describe_client_quotas(ALL_ENTITIES)
    assert described.quotas == {}
    assert described.cluster_id == "fake"
    assert described.broker_id == 7


async def test_an_entity_that_the_broker_leaves_out_is_unknown():
    async with single({ALTER: answering(verdicts(alice=0, carol=0))}) as (_, _, admin):
        answer = await alter(admin, ALICE, BOB)
    assert set(answer.verdicts) == {ALICE, BOB}
    assert answer.verdicts[ALICE] == Verdict(Outcome.APPLIED, None, 250)
    assert answer.verdicts[BOB].outcome is Outcome.UNKNOWN


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
        answer = await alter(admin, ALICE)
        assert outcomes_of(answer) == [Outcome.UNKNOWN]
        assert answer.late is None
        assert len(cluster.apply_log) == (direction is TO_CLIENT)
        assert outcomes_of(await alter(admin, ALICE, value=2)) == [Outcome.APPLIED]


answer = partial(quorum_answer, 1, 3, 100)


async def ask(
    reply: Reply,
    versions: dict[int, tuple[int, int]] = HEALTHY_VERSIONS,
    timeout_s: float = DEADLINE_S,
) -> QuorumState:
    async with single({DESCRIBE_QUORUM: reply}, versions) as (_, brokers, _):
        return await KafkaMetadataQuorum(brokers).quorum(timeout_s=timeout_s)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_each_version_has_the_epoch_and_the_high_watermark(version: int):
    versions = {**HEALTHY_VERSIONS, DESCRIBE_QUORUM: (0, version)}
    assert await ask(answering(answer()), versions) == QuorumState(3, 100)


@pytest.mark.parametrize("version", [0, 3])
async def test_a_broker_that_refuses_to_tell_what_it_has_published_ends_an_alteration_unsent(
    version: int,
):
    async with single({DESCRIBE_QUORUM: answering(answer())}) as behind:
        barrier = barrier_of(behind.brokers, behind.admin)
        assert (await barrier.read((), broker_id=7)).quorum is None
        refusal = versions_answer({}, error_code=42)
        behind.broker.replies[API_VERSIONS] = answering(refusal, version)
        with pytest.raises(NotSentError, match="ApiVersions"):
            await barrier.read((), broker_id=7)


@pytest.mark.parametrize("refusal", [answer(error_code=31), answer(partition_error_code=31)])
async def test_without_the_right_to_describe_the_cluster_there_is_no_barrier(refusal: Any):
    with pytest.raises(BarrierUnavailableError, match="ALLOW DESCRIBE on Cluster kafka-cluster"):
        await ask(answering(refusal))


async def test_a_broker_that_does_not_know_the_quorum_has_no_barrier():
    versions = {key: HEALTHY_VERSIONS[key] for key in (METADATA, API_VERSIONS)}
    with pytest.raises(BarrierUnavailableError):
        await ask(silent, versions)


NOTHING_IS_COMMITTED_YET = quorum_answer(1, 4, -1)
"""A new leader says so until a voter follows it. Source: ``LeaderState.describeQuorum``."""


async def test_any_other_answer_is_none_and_silence_alone_is_a_broker_out_of_reach(
    subtests: pytest.Subtests,
):
    for reply, code in [
        (answering(answer(error_code=7)), "not-sent"),
        (answering(answer(partition_error_code=6)), "not-sent"),
        (answering(answer(partitions=0)), "not-sent"),
        (answering(NOTHING_IS_COMMITTED_YET), "not-sent"),
        (sending(b"\0" + bytes(7)), "not-sent"),
        (sending(bytes(range(200))), "not-sent"),
        (closing, "cluster-unreachable"),
        (silent, "cluster-unreachable"),
    ]:
        with subtests.test(reply=reply):
            with pytest.raises(NotSentError) as caught:
                await ask(reply, timeout_s=SHORT_S if reply is silent else DEADLINE_S)
            assert caught.value.code == code
