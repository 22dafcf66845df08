"""What brokers report beside quotas and ACLs: configuration, versions, SCRAM users."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from app.domain.callbacks.callback import ClusterMetadata
from app.domain.errors import NotSentError, QuotaError
from app.kafka.cluster_client import Brokers
from app.kafka.connection import BrokerLease, ask
from app.kafka.errors import (
    NOT_AUTHORIZED,
    account_not_authorized,
    code_name,
    describe_error,
)
from app.service.ports.brokers import CallbackReports, ScramCredential, ScramUsers
from app.service.runtime.tasks import Cache

_MAX_AGE_S: Final = 60.0
_WAITED_FOR_AFTER_S: Final = 600.0
_DOUBTED_AFTER_S: Final = 5.0
"""Without the answers of all brokers it is asked again after so long, in the background."""

_LARGEST_ANSWER_BYTES: Final = 16_000_000

_CALLBACK: Final = "client.quota.callback.class"
_BROKER_CONFIGURATION: Final = 4
"""Source: ``org.apache.kafka.common.config.ConfigResource.Type``."""


_LEADERS_AGE_S: Final = 5.0
_LEADERS_REFRESH_S: Final = 2.0
"""Leaders that are older are asked for again beside the callers."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the live brokers reported, and whether all reported what they have now."""

    reports: CallbackReports
    by_all: bool


class KafkaCluster:
    """Facts about the brokers that change with their deployment only."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._timeout_s = brokers.patience.fact_s
        self._callback = Cache(self._ask)
        self._reports: dict[int, str | None] = {}
        self._live: frozenset[int] = frozenset()
        self._topics: frozenset[str] | None = frozenset()
        self._leaders = Cache(self._ask_leaders, refresh_after_s=_LEADERS_REFRESH_S)

    async def callback_reports(self) -> CallbackReports:
        """Return what each live broker reports as its ``client.quota.callback.class``.

        A broker's last report stands while it cannot be asked. Those that could never be asked, or
        do not permit it, are silent: then nothing is certain. Asked for again beside the callers
        after 60 s, and after 5 s where a broker did not respond; nobody waits for it but the first,
        and whoever comes after ten minutes without a caller. Source: KIP-257.
        """
        asked, age_s = await self._callback.get(_WAITED_FOR_AFTER_S)
        if age_s > (_MAX_AGE_S if asked.by_all else _DOUBTED_AFTER_S):
            self._callback.refresh()
        return asked.reports

    async def leaders(self, topics: frozenset[str] | None) -> ClusterMetadata:
        """Return the leaders of these topics, null for all; at most 5 s old, mostly 2 s.

        Topics that there are not, or that this service's own account may not describe, are missing.

        Raises:
            NotSentError: No broker could be reached.
        """
        if topics != self._topics:
            self._topics = topics
            self._leaders.invalidate()
        return (await self._leaders.get(_LEADERS_AGE_S))[0]

    async def versions(self) -> Mapping[str, int | None]:
        """Return the newest versions that the broker in use offers; null where it lacks one.

        Brokers that are not KRaft's have no level of ``metadata.version``.

        Raises:
            NotSentError: No broker could be reached.
        """
        timeout_s = self._brokers.patience.broker_answer_s
        return await self._brokers.read(_versions, timeout_s=timeout_s)

    async def close(self) -> None:
        """Stop asking."""
        await self._callback.close()
        await self._leaders.close()

    async def _ask_leaders(self) -> ClusterMetadata:
        names = None if self._topics is None else sorted(self._topics)
        question = partial(_describe_leaders, names)
        return await self._brokers.read(question, timeout_s=self._timeout_s)

    async def _ask(self) -> _Asked:
        try:
            view = await self._brokers.view(asyncio.get_running_loop().time() + self._timeout_s)
        except NotSentError:
            return self._asked(by_all=False)
        live = sorted(view.addresses)
        self._live = frozenset(live)
        answered = await asyncio.gather(*(self._ask_broker(broker_id) for broker_id in live))
        self._reports = {each: self._reports[each] for each in live if each in self._reports}
        return self._asked(by_all=bool(answered) and all(answered))

    async def _ask_broker(self, broker_id: int) -> bool:
        """Ask one broker; tell whether it has answered."""
        try:
            self._reports[broker_id] = await self._brokers.read(
                _describe_callback, broker_id=broker_id, timeout_s=self._timeout_s
            )
        except QuotaError:
            return False
        return True

    def _asked(self, *, by_all: bool) -> _Asked:
        classes = dict(self._reports)
        return _Asked(CallbackReports(classes, self._live - classes.keys()), by_all)


async def _describe_callback(lease: BrokerLease) -> str | None:
    """Read one static configuration of a broker, which only this broker knows. Source: KIP-133.

    Raises:
        QuotaError: The broker refuses to tell, which is not to have none.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_CONFIGURATION,
        resource_name=str(lease.broker_id),
        configuration_keys=[_CALLBACK],
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = await ask(lease.connection, request, DescribeConfigsResponse)
    for result in answer.results:
        if result.error_code:
            lease.connection.note_error(code_name(result.error_code))
            raise describe_error(result.error_code, result.error_message, answer.throttle_time_ms)
    values = (config.value for result in answer.results for config in result.configs)
    return next((value for value in values if value), None)


async def _describe_leaders(topics: list[str] | None, lease: BrokerLease) -> ClusterMetadata:
    asked = (
        None
        if topics is None
        else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    )
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = await ask(
        lease.connection, request, MetadataResponse, largest_answer=_LARGEST_ANSWER_BYTES
    )
    leaders = {
        topic.name: tuple(
            None if each.leader_id < 0 else each.leader_id
            for each in sorted(topic.partitions, key=attrgetter("partition_index"))
        )
        for topic in answer.topics
        if not topic.error_code
    }
    return ClusterMetadata(tuple(sorted(each.node_id for each in answer.brokers)), leaders)


async def _versions(lease: BrokerLease) -> Mapping[str, int | None]:
    offered = lease.connection.api_versions
    return {
        "describe_api_version": offered.get(DescribeClientQuotasRequest.API_KEY, (0, None))[1],
        "alter_api_version": offered.get(AlterClientQuotasRequest.API_KEY, (0, None))[1],
        "metadata_version": lease.connection.metadata_version,
    }


_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Source: ``org.apache.kafka.clients.admin.ScramMechanism``."""


async def scram_users(brokers: Brokers) -> ScramUsers:
    """Ask a broker for every user that has credentials; nothing is cached.

    Raises:
        NotSentError: No broker could be reached, or none answered in time.
        UnsupportedVersionError: The broker is older than 2.7.
        BrokerError: This service's own account lacks DESCRIBE on the cluster, or anything else.
    """
    return await brokers.read(_describe_scram, timeout_s=brokers.patience.broker_answer_s)


async def _describe_scram(lease: BrokerLease) -> ScramUsers:
    # An empty list means every user, as null does. A broker that refuses a list of null ends in a
    # NullPointerException and sends no response (release 4.3.1).
    request = DescribeUserScramCredentialsRequest(users=[])
    as_of = datetime.now(UTC)
    answer = await ask(
        lease.connection,
        request,
        DescribeUserScramCredentialsResponse,
        largest_answer=_LARGEST_ANSWER_BYTES,
    )
    if code_name(answer.error_code) == NOT_AUTHORIZED:
        raise account_not_authorized("DESCRIBE")
    if answer.error_code:
        raise describe_error(answer.error_code, answer.error_message, answer.throttle_time_ms)
    users = {
        str(result.user): tuple(
            ScramCredential(_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations)
            for info in sorted(result.credential_infos, key=attrgetter("mechanism"))
        )
        for result in sorted(answer.results, key=attrgetter("user"))
        if not result.error_code
    }
    return ScramUsers(users, as_of, lease.cluster_id)
