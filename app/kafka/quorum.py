"""The port ``MetadataQuorum``: what the leader of the metadata log says of its followers."""

from typing import Any, Final

from kafka.protocol.admin import DescribeQuorumRequest, DescribeQuorumResponse

from app.domain.errors import BrokerError, UnsupportedVersionError
from app.kafka.cluster_client import Brokers
from app.kafka.connection import ask, newest_common
from app.kafka.errors import code_name, unreachable
from app.kafka.pool import BrokerLease, Purpose
from app.service.ports.brokers import BarrierUnavailableError, QuorumState

_METADATA_LOG: Final = "__cluster_metadata"
_PARTITION: Final = 0
_NOT_AUTHORIZED: Final = "CLUSTER_AUTHORIZATION_FAILED"

_Topic = DescribeQuorumRequest.TopicData


class KafkaMetadataQuorum:
    """DescribeQuorum (55), which the broker passes on to the controller. Source: KIP-595, KIP-836.

    It waits in the same queue as alterations, behind them.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def quorum(
        self, *, broker_id: int | None = None, timeout_s: float | None = None
    ) -> QuorumState:
        """See ``MetadataQuorum``; a broker without a metadata quorum cannot be verified either."""
        try:
            return await self._brokers.read(
                _describe_quorum,
                broker_id=broker_id,
                timeout_s=self._brokers.patience.check_s if timeout_s is None else timeout_s,
                purpose=Purpose.QUORUM,
            )
        except UnsupportedVersionError as error:
            raise BarrierUnavailableError(error.detail) from error
        except BrokerError as error:
            raise unreachable(error.detail) from error


async def _describe_quorum(lease: BrokerLease) -> QuorumState:
    request = DescribeQuorumRequest(
        topics=[
            _Topic(
                topic_name=_METADATA_LOG,
                partitions=[_Topic.PartitionData(partition_index=_PARTITION)],
            )
        ]
    )
    version = newest_common(lease.connection, DescribeQuorumRequest)
    answer = await ask(lease.connection, request, version, DescribeQuorumResponse)
    _check(lease, answer)
    for topic in answer.topics or ():
        for partition in topic.partitions or ():
            _check(lease, partition)
            return QuorumState(
                partition.leader_epoch, partition.high_watermark, _log_ends(partition)
            )
    raise unreachable("The controller did not report the metadata quorum.")


def _check(lease: BrokerLease, answer: Any) -> None:
    if answer.error_code == 0:
        return
    name = code_name(answer.error_code)
    lease.connection.note_error(name)
    if name == _NOT_AUTHORIZED:
        detail = (
            "The broker refused this service's own account: give it ALLOW DESCRIBE on "
            "Cluster kafka-cluster."
        )
        raise BarrierUnavailableError(detail)
    detail = f"DescribeQuorum was answered with {name}. {answer.error_message or ''}".rstrip()
    raise unreachable(detail)


def _log_ends(partition: Any) -> dict[int, int]:
    """Take the lesser of two for one node: a disk that was replaced is reported for a while."""
    ends: dict[int, int] = {}
    for replica in (*(partition.current_voters or ()), *(partition.observers or ())):
        reported = ends.get(replica.replica_id, replica.log_end_offset)
        ends[replica.replica_id] = min(reported, replica.log_end_offset)
    return ends
