"""How many alterations may wait for a broker, and how many are listened for."""

import asyncio

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.runtime.clock import Patience
from tests.faults.kafka.conftest import ALICE, NO_QUOTAS, SHORT_S
from tests.testkit.event_loops import until
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.fake_kafka.server import (
    ALTER,
    DESCRIBE,
    METADATA,
    answering,
    fake_broker,
    silent,
)
from tests.testkit.kafka import DEADLINE_S, admin_of, alter


async def test_beyond_the_limit_of_waiting_alterations_nothing_is_sent():
    replies = {ALTER: silent, DESCRIBE: answering(NO_QUOTAS)}
    async with fake_broker(replies) as broker, admin_of(broker.bootstrap_servers) as admin:
        waiting = [
            asyncio.create_task(alter(admin, ALICE, timeout_s=DEADLINE_S)) for _ in range(16)
        ]
        await until(lambda: broker.received.get(ALTER) == 16)
        with pytest.raises(NotSentError, match="Too many requests wait"):
            await alter(admin, ALICE, timeout_s=SHORT_S)
        await admin.describe_client_quotas(ALL_ENTITIES)
        assert broker.received[ALTER] == 16
    answers = await asyncio.gather(*waiting)
    assert [answer.verdicts[ALICE].outcome for answer in answers] == [Outcome.UNKNOWN] * 16


async def test_timed_out_alterations_are_counted_apart_up_to_a_limit():
    async with fake_broker({ALTER: silent}) as broker, admin_of(broker.bootstrap_servers) as admin:
        async with asyncio.timeout(60):
            while broker.received.get(ALTER, 0) < 64 + 16:
                surplus = (alter(admin, ALICE, timeout_s=SHORT_S) for _ in range(16))
                await asyncio.gather(*surplus, return_exceptions=True)
        await admin.live_brokers()
        with pytest.raises(NotSentError, match="Too many requests wait"):
            await alter(admin, ALICE, timeout_s=SHORT_S)
        assert broker.received[ALTER] == 64 + 16


BROKERS = (1, 2, 3)


@pytest.mark.parametrize("patience", [Patience(broker_answer_s=6.0)])
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
