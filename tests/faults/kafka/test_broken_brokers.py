"""Brokers that are none, are too old, or hang up."""

import asyncio

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError, UnsupportedVersionError
from app.kafka.acls import KafkaClusterAclSource
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster
from app.kafka.config import KafkaSettings
from app.service.runtime.clock import Patience
from tests.faults.kafka.single_broker import ALICE, NO_QUOTAS, SHORT_S, TWO_GIGABYTES, verdicts
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.messages import acls_answer, configs_answer, encoded
from tests.testkit.fake_kafka.server import (
    ALTER,
    API_VERSIONS,
    DESCRIBE,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    HEALTHY_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answering,
    closing,
    fake_broker,
    raw,
    sending,
    silent,
)
from tests.testkit.kafka import admin_of, brokers_of, setting

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
        admin_of(broker.bootstrap_servers) as admin,
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


async def test_a_broker_older_than_2_6_is_recognized_and_gets_nothing_sent():
    versions = {key: HEALTHY_VERSIONS[key] for key in (METADATA, API_VERSIONS)}
    async with (
        fake_broker(versions=versions) as broker,
        admin_of(broker.bootstrap_servers) as admin,
    ):
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
        DESCRIBE: answering(NO_QUOTAS),
        ALTER: answering(verdicts(alice=0)),
    }
    async with (
        fake_broker(replies, versions) as broker,
        admin_of(broker.bootstrap_servers) as admin,
    ):
        assert (await admin.describe_client_quotas(ALL_ENTITIES)).quotas == {}
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
    assert answer.verdicts[ALICE].outcome is Outcome.APPLIED


async def test_a_connection_that_was_closed_while_idle_is_not_used_for_an_alteration():
    replies = {
        DESCRIBE: answering(NO_QUOTAS),
        ALTER: answering(verdicts(alice=0)),
    }
    async with fake_broker(replies) as broker, admin_of(broker.bootstrap_servers) as admin:
        await admin.describe_client_quotas(ALL_ENTITIES)
        broker.hang_up()
        await until(lambda: not broker.connected)
        answer = await admin.alter_client_quotas(
            [setting(ALICE, producer_byte_rate=1)], validate_only=False
        )
    assert answer.verdicts[ALICE].outcome is Outcome.APPLIED


async def test_a_session_that_is_about_to_end_is_not_used_again():
    replies = {
        SASL_HANDSHAKE: answering(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])),
        SASL_AUTHENTICATE: answering(
            SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=1000
            )
        ),
        DESCRIBE: answering(NO_QUOTAS),
    }
    async with fake_broker(replies) as broker:
        settings = KafkaSettings(
            broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="me",
            sasl_password="secret",
        )
        async with admin_of(settings) as admin:
            for _ in range(3):
                await admin.describe_client_quotas(ALL_ENTITIES)
        assert broker.received[SASL_AUTHENTICATE] == broker.received[API_VERSIONS] == 4


async def test_acls_that_cannot_be_read_are_never_no_acls(subtests: pytest.Subtests):
    for reply in [closing, silent, sending(b"\0" * 5), raw(TWO_GIGABYTES)]:
        with subtests.test(reply=reply):
            async with fake_broker({DESCRIBE_ACLS: reply}) as broker:
                patience = Patience(broker_answer_s=SHORT_S)
                brokers = Brokers(KafkaSettings(broker.bootstrap_servers), patience=patience)
                with pytest.raises(NotSentError) as caught:
                    await KafkaClusterAclSource(brokers).cluster_acls(max_age_s=1.0)
                assert caught.value.code == "acl-source-unreachable"
                await brokers.close()


async def test_an_acl_error_of_another_kind_names_it():
    answer = acls_answer(code=-1, message="not loaded")
    async with (
        fake_broker({DESCRIBE_ACLS: answering(answer)}) as broker,
        brokers_of(broker.bootstrap_servers) as brokers,
    ):
        with pytest.raises(NotSentError, match=r"UNKNOWN_SERVER_ERROR\. not loaded"):
            await KafkaClusterAclSource(brokers).cluster_acls(max_age_s=1.0)


@pytest.mark.parametrize("value", ["com.example.GroupQuotas", None])
async def test_the_class_of_a_quota_callback_is_read(value: str | None):
    async def configurations(writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(encoded(configs_answer(request, value), request))

    async with (
        fake_broker({DESCRIBE_CONFIGS: configurations}) as broker,
        brokers_of(broker.bootstrap_servers) as brokers,
    ):
        cluster = KafkaCluster(brokers)
        assert await cluster.custom_callback() == value
        assert await cluster.custom_callback() == value
        assert broker.received[DESCRIBE_CONFIGS] == 1
        await cluster.close()


async def test_without_a_broker_there_is_no_answer_about_a_callback():
    async with (
        fake_broker({API_VERSIONS: closing}) as broker,
        brokers_of(broker.bootstrap_servers) as brokers,
    ):
        assert await KafkaCluster(brokers).custom_callback() is None
