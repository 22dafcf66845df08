"""What the real broker says about itself."""

from app.kafka.broker_config import KafkaCluster
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.localdev.kafka import LocalKafka
from tests.testkit.kafka import PLAIN_USERS


async def test_a_plain_broker_has_no_quota_callback(brokers: Brokers):
    cluster = KafkaCluster(brokers)
    assert await cluster.custom_callback() is None
    await cluster.close()


async def test_an_account_that_may_not_ask_for_the_callback_learns_nothing(broker: LocalKafka):
    settings = KafkaSettings(
        broker.sasl_bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="nobody",
        sasl_password=PLAIN_USERS["nobody"],
    )
    brokers = Brokers(settings)
    cluster = KafkaCluster(brokers)
    assert await cluster.custom_callback() is None
    await brokers.close()


async def test_the_broker_offers_both_quota_apis_and_tells_its_metadata_version(brokers: Brokers):
    versions = await KafkaCluster(brokers).quota_api_versions()
    assert versions.broker_id == 1
    assert versions.describe == 1
    assert versions.alter == 1
    assert versions.metadata_version is not None
    assert versions.metadata_version > 0
