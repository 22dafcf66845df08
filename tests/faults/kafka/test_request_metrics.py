"""Requests to brokers are counted, whatever becomes of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaMetadataQuorum
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.faults.kafka.conftest import ALICE, BOB
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import (
    DROP_AFTER_APPLYING,
    NEVER_ANSWER,
    FakeCluster,
    Fault,
)
from tests.testkit.fake_metrics import CountedDependencies
from tests.testkit.kafka import DEADLINE_S, alter, brokers_of


@pytest.fixture
def counted() -> CountedDependencies:
    return CountedDependencies()


@pytest.fixture
async def brokers(cluster: FakeCluster, counted: CountedDependencies) -> AsyncIterator[Brokers]:
    async with brokers_of(cluster.bootstrap_servers, counted) as connections:
        yield connections


async def test_what_is_answered_is_counted_by_its_name_in_kafka(
    brokers: Brokers, counted: CountedDependencies
):
    admin = KafkaClientQuotaAdmin(brokers)
    assert brokers.connections() == {"idle": 0, "busy": 0}
    await admin.describe_client_quotas(ALL_ENTITIES)
    await alter(admin, ALICE, BOB)
    await KafkaMetadataQuorum(brokers).quorum()
    assert counted.counts["ApiVersions answered"] == 1
    assert counted.counts["Metadata answered"] == 2  # of the connection, and who is alive
    for name in ("DescribeClientQuotas", "AlterClientQuotas", "DescribeQuorum"):
        assert counted.counts[f"{name} answered"] == 1
    assert counted.counts.total() == 6
    assert len(counted.seconds) == 6
    assert all(0 <= seconds <= DEADLINE_S for seconds in counted.seconds)
    assert brokers.connections() == {"idle": 1, "busy": 0}


async def test_an_error_is_counted_once_for_each_answer(
    cluster: FakeCluster, brokers: Brokers, counted: CountedDependencies
):
    cluster.fail_next(Fault(error_code=7))
    await alter(KafkaClientQuotaAdmin(brokers), ALICE, BOB)
    assert counted.counts["AlterClientQuotas answered"] == 1
    assert counted.counts["AlterClientQuotas REQUEST_TIMED_OUT"] == 1


async def test_a_connection_that_breaks_is_a_lost_request(
    cluster: FakeCluster, brokers: Brokers, counted: CountedDependencies
):
    cluster.fail_next(DROP_AFTER_APPLYING)
    await alter(KafkaClientQuotaAdmin(brokers), ALICE, BOB)
    assert counted.counts["AlterClientQuotas lost"] == 1
    await until(lambda: sum(brokers.connections().values()) == 0)


async def test_who_waits_no_longer_abandons_the_request(
    cluster: FakeCluster, brokers: Brokers, counted: CountedDependencies
):
    cluster.fail_next(NEVER_ANSWER)
    admin = KafkaClientQuotaAdmin(brokers, listen_for_s=0.1)
    asking = alter(admin, ALICE, BOB, timeout_s=DEADLINE_S)
    altering = asyncio.create_task(asking)
    await until(lambda: brokers.connections()["busy"] == 1)
    await altering
    await until(lambda: counted.counts["AlterClientQuotas abandoned"] == 1)


async def test_a_cluster_that_cannot_be_reached_is_no_request(counted: CountedDependencies):
    async with brokers_of("127.0.0.1:1", counted) as brokers:
        with pytest.raises(NotSentError):
            await KafkaClientQuotaAdmin(brokers).live_brokers()
    assert not counted.counts
