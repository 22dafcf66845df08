"""The requests that are sent to brokers, by Kafka's numbers and names."""

from collections.abc import Mapping
from typing import Final

API_NAMES: Final[Mapping[int, str]] = {
    3: "Metadata",
    17: "SaslHandshake",
    18: "ApiVersions",
    29: "DescribeAcls",
    32: "DescribeConfigs",
    36: "SaslAuthenticate",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    55: "DescribeQuorum",
    60: "DescribeCluster",
}
"""Source: ``org.apache.kafka.common.protocol.ApiKeys``."""


def api_name(frame: bytes) -> str:
    """Return the name of the request that a whole frame holds, its length first."""
    api_key = int.from_bytes(frame[4:6], "big")
    return API_NAMES.get(api_key, str(api_key))
