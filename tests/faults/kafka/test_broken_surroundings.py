"""ACLs and settings that a broker tells, tells wrongly, or does not tell."""

import pytest
from kafka.protocol.admin import DescribeAclsResponse, DescribeConfigsResponse

from app.domain.errors import NotSentError
from app.kafka.acls import KafkaClusterAclSource
from app.kafka.broker_config import KafkaCluster
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.service.runtime.clock import Patience
from tests.faults.kafka.single_broker import SHORT_S, TWO_GIGABYTES
from tests.testkit.fake_kafka.server import (
    API_VERSIONS,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    Reply,
    answering,
    closing,
    fake_broker,
    raw,
    sending,
    silent,
)


@pytest.mark.parametrize("reply", [closing, silent, sending(b"\0" * 5), raw(TWO_GIGABYTES)])
async def test_acls_that_cannot_be_read_are_never_no_acls(reply: Reply):
    async with fake_broker({DESCRIBE_ACLS: reply}) as broker:
        patience = Patience(broker_answer_s=SHORT_S)
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers), patience=patience)
        with pytest.raises(NotSentError) as caught:
            await KafkaClusterAclSource(brokers).cluster_acls(max_age_s=1.0)
        assert caught.value.code == "acl-source-unreachable"
        await brokers.close()


async def test_an_acl_error_of_another_kind_names_it():
    answer = DescribeAclsResponse(
        throttle_time_ms=0, error_code=-1, error_message="not loaded", resources=[]
    )
    async with fake_broker({DESCRIBE_ACLS: answering(answer, 3)}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        with pytest.raises(NotSentError, match=r"UNKNOWN_SERVER_ERROR\. not loaded"):
            await KafkaClusterAclSource(brokers).cluster_acls(max_age_s=1.0)
        await brokers.close()


def configurations(value: str | None) -> DescribeConfigsResponse:
    result = DescribeConfigsResponse.DescribeConfigsResult
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            result(
                error_code=0,
                error_message=None,
                resource_type=4,
                resource_name="7",
                configs=[
                    result.DescribeConfigsResourceResult(
                        name="client.quota.callback.class", value=value
                    )
                ],
            )
        ],
    )


@pytest.mark.parametrize("value", ["com.example.GroupQuotas", None])
async def test_the_class_of_a_quota_callback_is_told(value: str | None):
    async with fake_broker({DESCRIBE_CONFIGS: answering(configurations(value), 4)}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        cluster = KafkaCluster(brokers)
        assert await cluster.custom_callback() == value
        assert await cluster.custom_callback() == value
        assert broker.received[DESCRIBE_CONFIGS] == 1
        await cluster.close()
        await brokers.close()


async def test_without_a_broker_nothing_is_known_of_a_callback():
    async with fake_broker({API_VERSIONS: closing}) as broker:
        brokers = Brokers(KafkaSettings(broker.bootstrap_servers))
        assert await KafkaCluster(brokers).custom_callback() is None
        await brokers.close()
