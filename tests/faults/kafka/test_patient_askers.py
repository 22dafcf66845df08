"""Who may wait for long does not make those wait who may not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.filters import ALL_ENTITIES
from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.kafka import DEADLINE_S, until

BROKERS = (1, 2, 3)
METADATA = 3


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster(len(BROKERS)) as fake:
        yield fake


async def test_a_patient_caller_does_not_keep_the_others_from_a_broker_that_answers(
    cluster: FakeCluster, admin: KafkaClientQuotaAdmin, brokers: Brokers
):
    frozen = await admin.preferred_broker()
    cluster.freeze(frozen)
    brokers.invalidate_metadata()
    asked = cluster.received(METADATA, frozen)
    patient = asyncio.create_task(
        admin.describe_client_quotas(ALL_ENTITIES, timeout_s=10 * DEADLINE_S)
    )
    await until(lambda: cluster.received(METADATA, frozen) > asked or patient.done())
    described = await admin.describe_client_quotas(ALL_ENTITIES)
    assert described.broker_id != frozen
    assert (await asyncio.wait_for(patient, DEADLINE_S)).broker_id != frozen
