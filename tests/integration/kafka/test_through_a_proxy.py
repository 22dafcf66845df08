"""A real broker behind a proxy: what the network does to its answers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaMetadataQuorum
from app.kafka.pool import MAX_CONNECTIONS, Purpose
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.server import ALTER, DESCRIBE, DESCRIBE_QUORUM
from tests.testkit.kafka import (
    DEADLINE_S,
    admin_of,
    as_user,
    brokers_of,
    entity,
    eventually,
    setting,
    unique,
    values_of,
)
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, KafkaProxy, kafka_proxy

SHORT_S = 0.5


@pytest.fixture
async def proxy(broker: LocalKafka) -> AsyncIterator[KafkaProxy]:
    async with kafka_proxy(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
async def brokers(proxy: KafkaProxy) -> AsyncIterator[Brokers]:
    async with brokers_of(proxy.bootstrap_servers) as connections:
        yield connections


async def test_every_request_of_the_service_goes_through_the_proxy(
    proxy: KafkaProxy, brokers: Brokers, quota_admin: KafkaClientQuotaAdmin
):
    await quota_admin.describe_client_quotas(ALL_ENTITIES)
    await quota_admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)
    await KafkaMetadataQuorum(brokers).quorum(broker_id=1)
    assert proxy.seen(TO_BROKER, DESCRIBE) == 2
    assert proxy.seen(TO_CLIENT, DESCRIBE_QUORUM) == 1


@pytest.mark.parametrize("close", [False, True])
async def test_an_answer_that_is_lost_is_unknown_although_the_change_was_made(
    proxy: KafkaProxy, quota_admin: KafkaClientQuotaAdmin, *, close: bool
):
    of = entity(user=unique())
    lose = proxy.close_at if close else proxy.drop
    lose(TO_CLIENT, ALTER, times=1)
    answer = await quota_admin.alter_client_quotas(
        [setting(of, producer_byte_rate=4711)], validate_only=False, timeout_s=SHORT_S
    )
    assert answer.verdicts[of].outcome is Outcome.UNKNOWN
    assert (answer.late is None) is close
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 4711.0})


async def test_a_request_that_is_cut_is_unknown_and_nothing_was_changed(
    proxy: KafkaProxy, quota_admin: KafkaClientQuotaAdmin
):
    of = entity(user=unique())
    proxy.cut_after(40, TO_BROKER, ALTER, times=1)
    answer = await quota_admin.alter_client_quotas(
        [setting(of, producer_byte_rate=1)], validate_only=False
    )
    assert answer.verdicts[of].outcome is Outcome.UNKNOWN
    assert await values_of(quota_admin, of) == {}


async def test_reads_do_not_wait_behind_alterations_that_hang(
    proxy: KafkaProxy, quota_admin: KafkaClientQuotaAdmin
):
    names = [entity(user=unique()) for _ in range(MAX_CONNECTIONS[Purpose.ALTER])]
    await quota_admin.describe_client_quotas(ALL_ENTITIES)
    proxy.hold(TO_BROKER, ALTER)
    hanging = [
        asyncio.create_task(
            quota_admin.alter_client_quotas(
                [setting(of, producer_byte_rate=1)], validate_only=False, timeout_s=3 * DEADLINE_S
            )
        )
        for of in names
    ]
    await until(lambda: proxy.seen(TO_BROKER, ALTER) == len(names))
    described = await quota_admin.describe_client_quotas(ALL_ENTITIES, timeout_s=DEADLINE_S)
    assert not described.quotas.keys() & set(names)
    assert not any(task.done() for task in hanging)
    proxy.pass_all()
    answers = await asyncio.gather(*hanging)
    outcomes = [verdict.outcome for each in answers for verdict in each.verdicts.values()]
    assert outcomes == [Outcome.APPLIED] * len(names)


async def test_an_account_with_a_password_goes_through_a_proxy_too(broker: LocalKafka):
    async with kafka_proxy(broker.sasl_bootstrap_servers) as proxy:
        settings = replace(as_user(broker, "admin"), bootstrap_servers=proxy.bootstrap_servers)
        async with admin_of(settings) as admin:
            await admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)
        assert proxy.seen(TO_BROKER, DESCRIBE) == 1
