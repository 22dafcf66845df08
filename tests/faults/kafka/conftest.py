"""The adapter on the fake cluster of a test file, which says itself what its ``cluster`` is."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.kafka import DEADLINE_S, brokers_of


@pytest.fixture
async def brokers(cluster: FakeCluster) -> AsyncIterator[Brokers]:
    async with brokers_of(cluster.bootstrap_servers) as connections:
        yield connections


@pytest.fixture
async def admin(brokers: Brokers) -> AsyncIterator[KafkaClientQuotaAdmin]:
    adapter = KafkaClientQuotaAdmin(brokers)
    yield adapter
    await asyncio.wait_for(adapter.close(), DEADLINE_S)
