"""The adapter on the fake cluster of a test file, which says itself what its ``cluster`` is."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.runtime.clock import Patience
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.kafka import DEADLINE_S, brokers_of
from tests.testkit.patience import PATIENT


@pytest.fixture
def patience() -> Patience:
    """How long brokers may take; tests of giving up have another one."""
    return PATIENT


@pytest.fixture
async def brokers(cluster: FakeCluster, patience: Patience) -> AsyncIterator[Brokers]:
    async with brokers_of(cluster.bootstrap_servers, patience=patience) as connections:
        yield connections


@pytest.fixture
async def admin(brokers: Brokers) -> AsyncIterator[KafkaClientQuotaAdmin]:
    adapter = KafkaClientQuotaAdmin(brokers)
    yield adapter
    await asyncio.wait_for(adapter.close(), DEADLINE_S)
