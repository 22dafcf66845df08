"""Barrier reads: what a broker says, once it has seen everything that was committed before.

Two equal reads prove nothing: a broker that fetches metadata late shows the old state as often as
it is asked. The quorum's high watermark does. Measured on release 4.3.1.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.alterations import Quotas, Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.service.alterations.present_values import PATIENCE_S, OfOneBroker, PresentValues
from app.service.cluster_ports import BarrierUnavailableError, MetadataQuorum, QuorumState
from app.service.patience import USUAL
from app.service.shared_turns import SharedTurns

PUBLISHING_S: Final = 0.05
"""A broker tells its log end a little before it publishes the image of it."""

_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class BarrierRead:
    """Values that are at least as new as the barrier.

    Attributes:
        values: By entity; one without any is left out.
        quorum: As it was when the barrier was set; null where it could not be asked for.
        verified: False where DescribeQuorum is not permitted, so that the values may be stale.
    """

    values: dict[ClientQuotaEntity, Values]
    quorum: QuorumState | None
    verified: bool


class Barrier:
    """Reads behind a barrier. Source: KRaft's high watermark, ``DescribeQuorum``.

    Args:
        quorum: Tells what is committed.
        present: Reads.
        within_s: How long it may take to pass, in seconds: one that is not passed by then is not
            guessed to be.
    """

    def __init__(
        self,
        quorum: MetadataQuorum,
        present: PresentValues,
        *,
        within_s: float = USUAL.check_s,
    ) -> None:
        self._quorum = quorum
        self._present = present
        self._within_s = within_s
        self._states = SharedTurns(self._ask, OfOneBroker, patience_s=PATIENCE_S)

    async def read(
        self,
        entities: Sequence[ClientQuotaEntity],
        *,
        broker_id: int,
        acknowledged: Quotas | None = None,
        within_s: float | None = None,
    ) -> BarrierRead:
        """Read through the broker what holds at least since now.

        Args:
            entities: What is read.
            broker_id: Through which broker.
            acknowledged: What was last acknowledged; where no barrier can be set, the read waits
                until the broker shows it, and goes on without in the end: it is not verified.
            within_s: How long it may all take, in seconds; null is as long as to pass.

        Raises:
            NotSentError: The barrier was not passed, or the values not read, in time.
        """
        within_s = self._within_s if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s):
                state = await self._passed(broker_id)
                if state is None and acknowledged:
                    await self._present.until_readable(
                        acknowledged, within_s=self._within_s / 2, brokers=(broker_id,)
                    )
                values = await self._present.read(entities, broker_id)
        except TimeoutError:
            raise _not_caught_up(broker_id, within_s) from None
        return BarrierRead(values, state, verified=state is not None)

    async def passed(self, broker_id: int) -> bool:
        """Wait until the broker has seen everything that is committed now.

        Returns:
            False where DescribeQuorum is not permitted, so that nothing is known.

        Raises:
            NotSentError: The barrier was not passed in time.
        """
        try:
            async with asyncio.timeout(self._within_s):
                return await self._passed(broker_id) is not None
        except TimeoutError:
            raise _not_caught_up(broker_id, self._within_s) from None

    async def _passed(self, broker_id: int) -> QuorumState | None:
        first = state = await self._states.take(broker_id)
        while (
            first is not None
            and state is not None
            and state.log_ends.get(broker_id, -1) < first.high_watermark
        ):
            await asyncio.sleep(_POLL_S)
            state = await self._states.take(broker_id)
        if state is not None:
            await asyncio.sleep(PUBLISHING_S)
        return state and first

    async def _ask(self, brokers: Sequence[int]) -> Sequence[QuorumState | None]:
        """Ask once for all who came before the request; null where that is not permitted."""
        try:
            state = await self._quorum.quorum(broker_id=brokers[0], timeout_s=self._within_s)
        except BarrierUnavailableError:
            return [None] * len(brokers)
        return [state] * len(brokers)


def _not_caught_up(broker_id: int, within_s: float) -> NotSentError:
    detail = f"Broker {broker_id} did not catch up within {within_s:g} s."
    return NotSentError(detail, code="cluster-unreachable")
