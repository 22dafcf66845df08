"""The port ``ClientQuotaAdmin``, on the wire."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from app.domain.alterations import ClientQuotaAlteration
from app.domain.errors import NotSentError
from app.domain.filters import ClientQuotaFilter
from app.kafka.alteration_under_way import (
    LISTEN_FOR_S,
    AlterationUnderWay,
    AlterRequest,
    LateAnswer,
)
from app.kafka.broker_lease import BrokerLease
from app.kafka.brokers import Brokers
from app.kafka.connection import LARGEST_ANSWER_BYTES, UNREACHABLE, AnswerLostError, Loss
from app.kafka.described_all import DescribedAll
from app.kafka.errors import code_name, describe_error
from app.kafka.messages import (
    ALTER_API,
    DESCRIBE_API,
    DescribeAnswer,
    alter_body,
    describe_body,
    read_described,
)
from app.kafka.off_loop import decoded, encoded
from app.kafka.pool import Purpose
from app.kafka.reader import UnreadableAnswerError
from app.kafka.reading import read
from app.kafka.unreachable import no_live_broker
from app.service.cluster_ports import AlterAnswer, Described, QuotaChanges


class KafkaClientQuotaAdmin:
    """DescribeClientQuotas and AlterClientQuotas through a chosen broker.

    A describe whose connection breaks is repeated; an alteration never is. The connection of an
    alteration that ran out of time, or whose caller went away, is kept until its answer comes, for
    that answer is the best evidence there is. A validation is not listened for so long.

    Args:
        brokers: Where to ask.
        listen_for_s: How long the answer to an alteration is listened for.
        keeps_everything: Whether a describe of everything is kept, so that the next one reads only
            what has changed; not for the many who ask once.
    """

    def __init__(
        self, brokers: Brokers, *, listen_for_s: float = LISTEN_FOR_S, keeps_everything: bool = True
    ) -> None:
        self._brokers = brokers
        self._patience = brokers.patience
        self._listen_for_s = listen_for_s
        self._listening: set[asyncio.Task[AlterAnswer]] = set()
        self._everything = DescribedAll() if keeps_everything else None

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        """See ``ClientQuotaAdmin``."""

        async def describe(lease: BrokerLease) -> Described:
            return await self._describe(lease, quota_filter)

        return await read(
            self._brokers,
            describe,
            broker_id=broker_id,
            timeout_s=self._patience.broker_answer_s if timeout_s is None else timeout_s,
        )

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float | None = None,
        send_by: float | None = None,
    ) -> AlterAnswer:
        """See ``ClientQuotaAdmin``."""
        loop = asyncio.get_running_loop()
        allowed_s = self._patience.alter_s if timeout_s is None else timeout_s
        deadline = hand_over_by = loop.time() + allowed_s
        if send_by is not None:
            hand_over_by = min(deadline, loop.time() + send_by - time.monotonic())
        lease = await self._brokers.lease(broker_id, Purpose.ALTER, hand_over_by)
        try:
            frame, version = await encoded(
                partial(alter_body, alterations, validate_only=validate_only),
                ALTER_API,
                lease.connection,
                len(alterations),
            )
            _check_time_left(hand_over_by - loop.time())
            under_way = AlterationUnderWay(
                AlterRequest(alterations, validate_only, frame, version), lease
            )
        except BaseException:
            lease.release()
            raise
        return await self._await_answer(under_way, deadline - loop.time())

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
        known = self._brokers.cluster_id
        if known is not None:
            return known
        view = await self._brokers.view(self._deadline(timeout_s))
        return view.cluster_id

    async def close(self) -> None:
        """Drop every connection of the brokers; alterations under way end as UNKNOWN."""
        await self._brokers.close()
        await asyncio.gather(*self._listening)

    def _deadline(self, timeout_s: float | None) -> float:
        allowed_s = self._patience.broker_answer_s if timeout_s is None else timeout_s
        return asyncio.get_running_loop().time() + allowed_s

    async def _describe(self, lease: BrokerLease, quota_filter: ClientQuotaFilter) -> Described:
        frame, version = await encoded(
            partial(describe_body, quota_filter),
            DESCRIBE_API,
            lease.connection,
            len(quota_filter.components),
        )
        as_of = datetime.now(UTC)
        payload = await lease.connection.hand_over(frame, LARGEST_ANSWER_BYTES)
        everything = None if quota_filter.components else self._everything
        read = _read_some if everything is None else everything.read
        try:
            answer, changes = await decoded(read, payload, version)
        except UnreadableAnswerError as error:
            raise AnswerLostError(Loss.UNREADABLE, f"{error}.") from error
        if answer.quotas is None:
            lease.connection.note_error(code_name(answer.error_code))
            raise describe_error(answer.error_code, answer.error_message, answer.throttle_time_ms)
        return Described(answer.quotas, as_of, lease.cluster_id, lease.broker_id, changes)

    async def _await_answer(self, under_way: AlterationUnderWay, time_left: float) -> AlterAnswer:
        """Wait for the answer; when time runs out or the caller goes, the listening goes on."""
        listening = asyncio.create_task(under_way.listen(self._listen_for_s))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        try:
            await asyncio.wait({listening}, timeout=max(0.0, time_left))
        finally:
            if not listening.done():
                self._brokers.doubt()
                await under_way.outlast_the_caller()
        if listening.done():
            return listening.result()
        answer = under_way.unknown("The broker has not answered in time.")
        if under_way.request.validate_only:
            return answer
        return replace(answer, late=LateAnswer(listening))


def _check_time_left(time_left: float) -> None:
    if time_left <= 0:
        detail = "The time was over before the request could be handed over."
        raise NotSentError(detail, code=UNREACHABLE)


def _read_some(
    payload: bytes | bytearray, version: int
) -> tuple[DescribeAnswer, QuotaChanges | None]:
    return read_described(payload, version), None
