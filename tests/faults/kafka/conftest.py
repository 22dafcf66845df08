"""The adapter on the fake cluster of a test file, which says itself what its ``cluster`` is."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.kafka import DEADLINE_S


@pytest.fixture
async def brokers(cluster: FakeCluster) -> AsyncIterator[Brokers]:
    connections = Brokers(KafkaSettings(cluster.bootstrap_servers))
    yield connections
    await asyncio.wait_for(connections.close(), DEADLINE_S)


@pytest.fixture
async def admin(brokers: Brokers) -> AsyncIterator[KafkaClientQuotaAdmin]:
    adapter = KafkaClientQuotaAdmin(brokers)
    yield adapter
    await asyncio.wait_for(adapter.close(), DEADLINE_S)
