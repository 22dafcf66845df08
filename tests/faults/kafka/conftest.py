"""The adapter on a fake cluster, of as many brokers as the test file lists in ``BROKERS``."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.runtime.clock import Patience
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.fake_kafka.messages import alter_answer, describe_answer
from tests.testkit.fake_kafka.quotas import Verdict
from tests.testkit.kafka import DEADLINE_S, brokers_of, entity
from tests.testkit.patience import PATIENT

SHORT_S: Final = 0.3
ALICE, BOB = entity(user="alice"), entity(user="bob")
NO_QUOTAS: Final = describe_answer()


def verdicts(**codes: int) -> Any:
    """Return the answer to an alteration, with the code of each user."""
    answers = [Verdict(entity(user=name), code, None) for name, code in codes.items()]
    return alter_answer(answers, throttle_time_ms=250)


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    async with fake_cluster(len(getattr(request.module, "BROKERS", (1,)))) as fake:
        yield fake


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
