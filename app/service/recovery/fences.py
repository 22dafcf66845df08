"""Fences: what proves that a broker's queue holds nothing older, as far as anything does.

A validate-only alteration is forwarded through the same queue as a real one. One fence is
overtaken where the broker's connection to the controller breaks, for it then queues again in
reverse order; a second one, sent a second after the first was answered, was not overtaken in any
single disconnect measured on release 4.3.1. Only time is a proof: see ``FINAL_AFTER_S``.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.domain.alterations import ClientQuotaAlteration, Outcome
from app.domain.errors import NotSentError
from app.service.clock import utc_now
from app.service.cluster_ports import BarrierUnavailableError, ClientQuotaAdmin, MetadataQuorum

FENCE_TIMEOUT_S: Final = 2.0
"""A fence that is answered later proves nothing."""

BETWEEN_FENCES_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class FencePair:
    """Two fences through one broker under one leader.

    Attributes:
        broker_id: The broker.
        leader_epoch: Of both; null where DescribeQuorum is not permitted.
        answered: When each was answered.
    """

    broker_id: int
    leader_epoch: int | None
    answered: tuple[datetime, datetime]

    @property
    def evidence(self) -> Mapping[str, Any]:
        """What is kept in the log."""
        return {
            "broker_id": self.broker_id,
            "leader_epoch": self.leader_epoch,
            "fences": [at.isoformat() for at in self.answered],
        }


class Fences:
    """Sends pairs of fences."""

    def __init__(
        self,
        admin: ClientQuotaAdmin,
        quorum: MetadataQuorum,
        *,
        between_s: float = BETWEEN_FENCES_S,
    ) -> None:
        self._admin = admin
        self._quorum = quorum
        self._between_s = between_s

    async def pair(self, alteration: ClientQuotaAlteration, broker_id: int) -> FencePair:
        """Send a pair of fences for the entity of an alteration; nothing is changed.

        Raises:
            NotSentError: An error, a slow answer or another leader: the pair proves nothing.
        """
        epoch = await self._epoch(broker_id)
        first = await self._fence(alteration, broker_id)
        await asyncio.sleep(self._between_s)
        second = await self._fence(alteration, broker_id)
        if await self._epoch(broker_id) != epoch:
            raise NotSentError("The controller changed between two fences.", code="fence-broken")
        return FencePair(broker_id, epoch, (first, second))

    async def _epoch(self, broker_id: int) -> int | None:
        try:
            state = await self._quorum.quorum(broker_id=broker_id, timeout_s=FENCE_TIMEOUT_S)
        except BarrierUnavailableError:
            return None
        return state.leader_epoch

    async def _fence(self, alteration: ClientQuotaAlteration, broker_id: int) -> datetime:
        answer = await self._admin.alter_client_quotas(
            [alteration], validate_only=True, broker_id=broker_id, timeout_s=FENCE_TIMEOUT_S
        )
        verdict = answer.verdicts[alteration.entity]
        if verdict.outcome is Outcome.UNKNOWN:
            raise NotSentError("A fence was not answered in time.", code="fence-broken")
        return utc_now()
