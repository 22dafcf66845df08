"""What alterations ask of a broker: the barrier, the read, the change, which is never repeated."""

import asyncio
import math
import struct
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    NotSentError,
    UnsupportedVersionError,
)
from app.kafka.cluster_client import Brokers, no_live_broker
from app.kafka.connection import (
    LARGEST_ANSWER_BYTES,
    BrokerConnection,
    BrokerLease,
    Purpose,
    api_versions,
    ask,
    framed,
    killed_if_it_stands_still,
    newest_common,
)
from app.kafka.describe_all import DescribedAll
from app.kafka.errors import (
    NOT_AUTHORIZED,
    AnswerLostError,
    Loss,
    code_name,
    describe_error,
    missing_acl,
    unreachable,
)
from app.kafka.quota_messages import (
    UnreadableAnswerError,
    alter_frame,
    decoded,
    describe_request,
    read_described,
    read_verdicts,
)
from app.service.ports.alterations import Failpoints
from app.service.ports.brokers import (
    BarrierUnavailableError,
    Described,
    Handover,
    QuorumState,
    Verdict,
)
from app.service.runtime.clock import boot_time
from app.service.runtime.tasks import off_loop

T = TypeVar("T")

LISTEN_FOR_S: Final = 95.0
"""How long the answer to an alteration is listened for: 60 s in the broker's queue, 30 s of its
socket, 5 s more. Source: ``NodeToControllerChannelManager``, ``controller.socket.timeout.ms``."""


class LateAnswer:
    """What comes of listening on; whoever awaits it may go away without cutting that.

    One shield for all would not do: whoever cancels it cancels it for everybody else, too.
    """

    def __init__(self, listening: "asyncio.Task[Handover]") -> None:
        self._listening = listening

    def __await__(self) -> Generator[Any, None, Handover]:
        """Wait for the answer, or for the certainty that none will come."""
        return asyncio.shield(self._listening).__await__()


@dataclass(eq=False)
class AlterationInFlight:
    """A request that is encoded for one connection, its own until the answer can come no more."""

    alterations: Sequence[ClientQuotaAlteration]
    frame: bytes
    version: int
    lease: BrokerLease
    validate_only: bool
    sent_at: datetime = field(init=False)
    payload: "asyncio.Future[bytearray]" = field(init=False)

    def hand_over(self) -> None:
        """Hand the end of the request over; the lease is this object's only if that succeeds.

        Raises:
            NotSentError: The connection is closed, or does not take it now.
        """
        self.sent_at = datetime.now(UTC)
        self.payload = self.lease.connection.end(self.frame, LARGEST_ANSWER_BYTES)

    async def listen(self, listen_for_s: float) -> Handover:
        """Return what the broker says, or UNKNOWN; raise nothing."""
        read = partial(read_verdicts, validate_only=self.validate_only)
        try:
            async with asyncio.timeout(listen_for_s):
                payload = await self.payload
            verdicts = await decoded(read, payload, self.version)
        except TimeoutError:
            return self.answer({}, f"No answer came within {listen_for_s:.3g} s.")
        except AnswerLostError as lost:
            return self.answer({}, f"The broker's answer was lost: {lost.detail}")
        except UnreadableAnswerError as error:
            return self.answer({}, f"The broker's answer cannot be read: {error}.")
        finally:
            self.lease.release()
        for name in {verdict.error.kafka_error for verdict in verdicts.values() if verdict.error}:
            self.lease.connection.note_error(name or "unnamed")
        return self.answer(verdicts, "The broker's answer does not mention this entity.")

    def answer(self, verdicts: Mapping[ClientQuotaEntity, Verdict], otherwise: str) -> Handover:
        """Return the verdicts; an entity without one is UNKNOWN: it may have been applied."""
        missing = Verdict(Outcome.UNKNOWN, KafkaRefusal(None, otherwise))
        entities = (alteration.entity for alteration in self.alterations)
        return Handover(
            {entity: verdicts.get(entity, missing) for entity in entities},
            self.lease.broker_id,
            self.sent_at,
            datetime.now(UTC),
        )


_UNARMED: Final = Failpoints()
_TOO_LATE: Final = "The time was over before the request could be handed over."


class KafkaClientQuotaAdmin:
    """DescribeClientQuotas and AlterClientQuotas through a chosen broker.

    A describe whose connection breaks is repeated; an alteration never is. An alteration that ran
    out of time, or whose caller went away, holds its connection until its answer comes, for
    that answer is the best evidence there is. A validation is not listened for so long.

    Args:
        brokers: Where to ask.
        listen_for_s: How long the answer to an alteration is listened for.
        failpoints: None is armed outside of tests.
        keeps_everything: Whether a describe of everything is cached, so that the next reads only
            what has changed; not for the many who ask once.
    """

    def __init__(
        self,
        brokers: Brokers,
        *,
        listen_for_s: float = LISTEN_FOR_S,
        failpoints: Failpoints = _UNARMED,
        keeps_everything: bool = True,
    ) -> None:
        self._brokers = brokers
        self._patience = brokers.patience
        self._listen_for_s = listen_for_s
        self._failpoints = failpoints
        self._listening: set[asyncio.Task[Handover]] = set()
        self._everything = DescribedAll() if keeps_everything else None

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
        purpose: Purpose = Purpose.READ,
    ) -> Described:
        """See ``ClientQuotaAdmin``."""
        return await self._brokers.read(
            partial(self._describe, quota_filter),
            broker_id=broker_id,
            timeout_s=self._patience.broker_answer_s if timeout_s is None else timeout_s,
            purpose=purpose,
        )

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float | None = None,
        send_by: float | None = None,
    ) -> Handover:
        """See ``ClientQuotaAdmin``."""
        loop = asyncio.get_running_loop()
        allowed_s = self._patience.alter_s if timeout_s is None else timeout_s
        deadline = loop.time() + allowed_s
        send_by = min(boot_time() + allowed_s, math.inf if send_by is None else send_by)
        lease = await self._brokers.lease(
            broker_id, Purpose.ALTER, loop.time() + send_by - boot_time()
        )
        try:
            frame, version = await _encode(
                AlterClientQuotasRequest,
                partial(alter_frame, alterations, validate_only=validate_only),
                lease.connection,
                len(alterations),
            )
            in_flight = AlterationInFlight(alterations, frame, version, lease, validate_only)
            await self._hand_over(in_flight, send_by)
        except BaseException:
            lease.release()
            raise
        return await self._await_answer(in_flight, deadline - loop.time())

    async def _hand_over(self, alteration: AlterationInFlight, send_by: float) -> None:
        """Let the last byte leave at most ``STANDSTILL_S`` after ``send_by``, or never."""
        try:
            async with asyncio.timeout(send_by - boot_time()):
                await alteration.lease.connection.begin(alteration.frame)
        except TimeoutError:
            raise unreachable(_TOO_LATE) from None
        # The validations of recovery come here as well, before the alteration that a test means.
        failpoints = _UNARMED if alteration.validate_only else self._failpoints
        with killed_if_it_stands_still():
            failpoints.reach("before_last_check")
            if boot_time() >= send_by:
                raise unreachable(_TOO_LATE)
            failpoints.reach("after_last_check")
            alteration.hand_over()
            failpoints.reach("handed_over")

    async def live_brokers(self, *, timeout_s: float | None = None) -> Sequence[int]:
        """See ``ClientQuotaAdmin``."""
        view = await self._brokers.view(self._deadline(timeout_s), fresh=True)
        if not view.addresses:
            raise no_live_broker()
        return sorted(view.addresses)

    async def preferred_broker(self, *, timeout_s: float | None = None) -> int:
        """See ``ClientQuotaAdmin``."""
        return await self._brokers.preferred(self._deadline(timeout_s))

    async def cluster_id(self, *, timeout_s: float | None = None) -> str:
        """See ``ClientQuotaAdmin``."""
        self._brokers.check_cluster()
        cluster_id = self._brokers.cluster_id
        if cluster_id is not None:
            return cluster_id
        view = await self._brokers.view(self._deadline(timeout_s))
        return view.cluster_id

    async def close(self) -> None:
        """Drop every connection of the brokers; alterations in flight end as UNKNOWN."""
        await self._brokers.close()
        await asyncio.gather(*self._listening)

    def _deadline(self, timeout_s: float | None) -> float:
        allowed_s = self._patience.broker_answer_s if timeout_s is None else timeout_s
        return asyncio.get_running_loop().time() + allowed_s

    async def _describe(self, quota_filter: ClientQuotaFilter, lease: BrokerLease) -> Described:
        frame, version = await _encode(
            DescribeClientQuotasRequest,
            lambda *numbers: framed(describe_request(quota_filter), *numbers),
            lease.connection,
            len(quota_filter.components),
        )
        as_of = datetime.now(UTC)
        payload = await lease.connection.send(frame, LARGEST_ANSWER_BYTES)
        everything = None if quota_filter.components else self._everything
        try:
            if everything is None:
                answer, changes = await decoded(read_described, payload, version), None
            else:
                answer, changes = await everything.read(payload, version)
        except UnreadableAnswerError as error:
            raise AnswerLostError(Loss.UNREADABLE, f"{error}.") from error
        if answer.quotas is None:
            lease.connection.note_error(code_name(answer.error_code))
            raise describe_error(answer.error_code, answer.error_message, answer.throttle_time_ms)
        return Described(answer.quotas, as_of, lease.cluster_id, lease.broker_id, changes)

    async def _await_answer(self, in_flight: AlterationInFlight, time_left: float) -> Handover:
        """Wait for the answer; when time runs out or the caller goes, the listening goes on.

        It goes on in a listener's slot; a validation is abandoned.
        """
        listening = asyncio.create_task(in_flight.listen(self._listen_for_s))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        try:
            await asyncio.wait({listening}, timeout=max(0.0, time_left))
        finally:
            if not listening.done():
                self._brokers.invalidate_metadata()
                if in_flight.validate_only:
                    in_flight.lease.connection.abort()
                else:
                    await in_flight.lease.become_listener()
        if listening.done():
            return listening.result()
        answer = in_flight.answer({}, "The broker has not answered in time.")
        return answer if in_flight.validate_only else replace(answer, late=LateAnswer(listening))


@dataclass(frozen=True, slots=True)
class QueryReader:
    """Describes what callers ask for, over connections that no alteration waits for."""

    admin: KafkaClientQuotaAdmin

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        """See ``QuotaReader``."""
        return await self.admin.describe_client_quotas(
            quota_filter, broker_id=broker_id, timeout_s=timeout_s, purpose=Purpose.QUERY
        )


async def _encode(
    request_class: Any,
    frame_of: Callable[[int, int], bytes],
    connection: BrokerConnection,
    entries: int,
) -> tuple[bytes, int]:
    """Return a quota request as bytes for this connection, and the version that it is in.

    Raises:
        UnsupportedVersionError: The broker does not have the API.
        InvalidRequestError: The protocol cannot say it.
    """
    version = newest_common(connection, request_class)
    correlation_id = connection.next_correlation_id()
    try:
        frame = await off_loop(entries, frame_of, version, correlation_id)
    except (ValueError, struct.error) as error:
        detail = f"Kafka's protocol cannot say this: {error}."
        raise InvalidRequestError(detail, kafka_error="INVALID_REQUEST") from error
    return frame, version


_Topic = DescribeQuorumRequest.TopicData


class KafkaMetadataQuorum:
    """What is committed, and what a broker has published of it."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def quorum(
        self, *, broker_id: int | None = None, timeout_s: float | None = None
    ) -> QuorumState:
        """Ask the controller by DescribeQuorum (55), which waits behind alterations: KIP-595."""
        timeout_s = self._brokers.patience.check_s if timeout_s is None else timeout_s
        try:
            return await self._ask(_describe_quorum, broker_id, timeout_s)
        except UnsupportedVersionError as error:
            raise BarrierUnavailableError(error.detail) from error

    async def published_offset(self, *, broker_id: int | None, timeout_s: float) -> int:
        """Take the epoch of the broker's features. Source: ``KRaftMetadataCache.features``."""
        offset = await self._ask(_features_epoch, broker_id, timeout_s)
        if offset < 0:
            raise BarrierUnavailableError("The broker does not report what it has published.")
        return offset

    async def _ask(
        self,
        question: Callable[[BrokerLease], Awaitable[T]],
        broker_id: int | None,
        timeout_s: float,
    ) -> T:
        """Ask; what cannot be read ends an alteration unsent, as silence does."""
        try:
            return await self._brokers.read(
                question, broker_id=broker_id, timeout_s=timeout_s, purpose=Purpose.QUORUM
            )
        except BrokerError as error:
            raise NotSentError(error.detail) from error


async def _features_epoch(lease: BrokerLease) -> int:
    answer = await api_versions(lease.connection)
    epoch: int = getattr(answer, "finalized_features_epoch", -1)
    return epoch


async def _describe_quorum(lease: BrokerLease) -> QuorumState:
    """Ask the leader; one that no voter follows yet answers a high watermark of -1.

    Source: ``LeaderState.describeQuorum``.
    """
    partition_zero = _Topic.PartitionData(partition_index=0)
    topic = _Topic(topic_name="__cluster_metadata", partitions=[partition_zero])
    request = DescribeQuorumRequest(topics=[topic])
    answer = await ask(lease.connection, request, DescribeQuorumResponse)
    _check_quorum(answer)
    for topic in answer.topics or ():
        for partition in topic.partitions or ():
            if partition.error_code:
                lease.connection.note_error(code_name(partition.error_code))
            _check_quorum(partition)
            if partition.high_watermark < 0:
                raise NotSentError("A new controller does not know yet what is committed.")
            return QuorumState(partition.leader_epoch, partition.high_watermark)
    raise NotSentError("The controller did not report the metadata quorum.")


def _check_quorum(answer: Any) -> None:
    if answer.error_code == 0:
        return
    name = code_name(answer.error_code)
    if name == NOT_AUTHORIZED:
        raise BarrierUnavailableError(missing_acl("DESCRIBE"))
    detail = f"DescribeQuorum was answered with {name}. {answer.error_message or ''}".rstrip()
    raise NotSentError(detail)
