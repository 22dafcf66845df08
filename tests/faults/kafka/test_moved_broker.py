"""Where a broker listened another one may listen after a restart: an address is not a broker."""

import pytest

from app.domain.errors import NotSentError
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.testkit.fake_kafka.server import ALTER, fake_broker
from tests.testkit.kafka import entity, setting, until


async def test_nothing_is_sent_to_a_broker_that_has_taken_the_place_of_another():
    async with fake_broker() as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        admin = KafkaClientQuotaAdmin(brokers)
        assert await admin.preferred_broker() == 7
        broker.node_id = 8
        broker.hang_up()
        await until(lambda: brokers.connections() == {"idle": 0, "busy": 0})
        with pytest.raises(NotSentError, match="Broker 7 is not among the live brokers"):
            await admin.alter_client_quotas(
                [setting(entity(user="alice"), producer_byte_rate=1)],
                validate_only=False,
                broker_id=7,
                timeout_s=5.0,
            )
        assert ALTER not in broker.received
        assert await admin.preferred_broker() == 8
        await admin.close()
