"""What the cluster can do, and whether its brokers decide about quotas by code of their own."""

import asyncio
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from app.domain.errors import NotSentError, QuotaError
from app.kafka.cluster_client import Brokers
from app.kafka.connection import ask, newest_common
from app.kafka.errors import code_name
from app.kafka.pool import BrokerLease
from app.kafka.quota_messages import ALTER_API, DESCRIBE_API
from app.service.runtime.dependencies import Cache

_MAX_AGE_S: Final = 60.0
_WAITED_FOR_AFTER_S: Final = 600.0
_DOUBTED_AFTER_S: Final = 5.0
"""Without the answers of all brokers it is asked again after so long, in the background."""

_CALLBACK: Final = "client.quota.callback.class"
_BROKER_CONFIGURATION: Final = 4
"""Source: ``org.apache.kafka.common.config.ConfigResource.Type``."""


@dataclass(frozen=True, slots=True)
class QuotaApiVersions:
    """What one broker offers; null where it lacks the API.

    Attributes:
        broker_id: The broker that was asked.
        describe: The newest version of DescribeClientQuotas (48).
        alter: The newest version of AlterClientQuotas (49).
        metadata_version: The finalized level of ``metadata.version``, or null (not KRaft).
    """

    broker_id: int
    describe: int | None
    alter: int | None
    metadata_version: int | None


@dataclass(frozen=True, slots=True)
class _Report:
    """The class that a live broker reported, and whether all reported what they have."""

    callback: str | None
    by_all: bool


class KafkaCluster:
    """Facts about the brokers that change with their deployment only."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._timeout_s = brokers.patience.fact_s
        self._callback = Cache(self._ask)
        self._reports: dict[int, str | None] = {}

    async def custom_callback(self) -> str | None:
        """Return the ``client.quota.callback.class`` of a live broker that has one, else null.

        A broker's last report stands while it cannot be asked. Null also where none could ever be
        asked, or none permits it: then nothing is certain. Asked for again beside the callers after
        60 s, and after 5 s where a broker did not respond; nobody waits for it but the first, and
        whoever comes after ten minutes without a caller. Source: KIP-257.
        """
        cached = self._callback
        report, age_s = cached.get_cached(_WAITED_FOR_AFTER_S) or await cached.get(
            _WAITED_FOR_AFTER_S
        )
        if age_s > (_MAX_AGE_S if report.by_all else _DOUBTED_AFTER_S):
            cached.refresh()
        return report.callback

    async def quota_api_versions(self) -> QuotaApiVersions:
        """Return what the broker in use offers.

        Raises:
            NotSentError: No broker could be reached.
        """
        return await self._brokers.read(
            _api_versions, timeout_s=self._brokers.patience.broker_answer_s
        )

    async def close(self) -> None:
        """Stop asking."""
        await self._callback.close()

    async def _ask(self) -> _Report:
        try:
            view = await self._brokers.view(asyncio.get_running_loop().time() + self._timeout_s)
        except NotSentError:
            return _Report(self._last_report(), by_all=False)
        live = sorted(view.addresses)
        answered = await asyncio.gather(*(self._ask_broker(broker_id) for broker_id in live))
        self._reports = {each: self._reports[each] for each in live if each in self._reports}
        return _Report(self._last_report(), bool(answered) and all(answered))

    async def _ask_broker(self, broker_id: int) -> bool:
        """Ask one broker; tell whether it has answered."""
        try:
            self._reports[broker_id] = await self._brokers.read(
                _describe_callback, broker_id=broker_id, timeout_s=self._timeout_s
            )
        except QuotaError:
            return False
        return True

    def _last_report(self) -> str | None:
        return next((found for found in self._reports.values() if found), None)


async def _describe_callback(lease: BrokerLease) -> str | None:
    """Read one static configuration of a broker, which only this broker knows. Source: KIP-133."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_CONFIGURATION,
        resource_name=str(lease.broker_id),
        configuration_keys=[_CALLBACK],
    )
    request = DescribeConfigsRequest(resources=[resource])
    version = newest_common(lease.connection, DescribeConfigsRequest)
    answer = await ask(lease.connection, request, version, DescribeConfigsResponse)
    for result in answer.results:
        if result.error_code:
            lease.connection.note_error(code_name(result.error_code))
    values = (config.value for result in answer.results for config in result.configs)
    return next((value for value in values if value), None)


async def _api_versions(lease: BrokerLease) -> QuotaApiVersions:
    versions = lease.connection.api_versions
    return QuotaApiVersions(
        lease.broker_id,
        versions.get(DESCRIBE_API, (0, None))[1],
        versions.get(ALTER_API, (0, None))[1],
        lease.connection.metadata_version,
    )
