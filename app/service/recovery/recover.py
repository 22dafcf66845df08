"""Recovery: observe what became of an alteration whose answer was lost. It never re-sends one."""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.domain.errors import NotSentError, QuotaError
from app.service.alterations.barrier import Barrier
from app.service.alterations.life_context import LifeContext
from app.service.clock import utc_now
from app.service.cluster_ports import ClientQuotaAdmin
from app.service.metrics_port import FoundBy
from app.service.off_loop import off_loop
from app.service.recovery.fences import Fences
from app.service.recovery.recovery_ports import OpenAlteration, Place, Recovered, RecoveryJournal
from app.service.recovery.recovery_records import record_in_portions
from app.service.recovery.sight import Sight
from app.service.rounds import again_and_again

FINAL_AFTER_S: Final = 95.0
"""Nothing sent is applied later than this by brokers and controllers that are alive: 60 s in a
broker's queue, 30 s of its socket, 5 s more. Source: ``NodeToControllerChannelManager``."""

AT_ONCE: Final = 10_000
"""How many entities one round claims: the largest alteration as a whole."""

_PAUSE_S: Final = 1.0

Batch = Sequence[OpenAlteration]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryParts:
    """What recovery works with."""

    admin: ClientQuotaAdmin
    journal: RecoveryJournal
    fences: Fences
    barrier: Barrier
    context: LifeContext


class Recovery:
    """Claims what is open, observes it, and concludes it when nothing can come any more.

    Args:
        parts: What it works with.
        final_after_s: When a verdict is final, in seconds after the sending.
    """

    def __init__(self, parts: RecoveryParts, *, final_after_s: float = FINAL_AFTER_S) -> None:
        self._parts = parts
        self._owner = parts.context.owner
        self._failpoints = parts.context.failpoints
        self._final_after_s = final_after_s

    async def run(self) -> None:
        """Beat and recover until cancelled; what fails is tried again in the next round."""
        async with asyncio.TaskGroup() as group:
            for what, work in (("a beat", self._beat), ("a round of recovery", self.round)):
                group.create_task(again_and_again(what, work, pause_s=_PAUSE_S, logger=logger))

    async def _beat(self) -> None:
        cluster_id = await self._parts.admin.cluster_id()
        await self._parts.journal.beat(cluster_id, self._owner)

    async def round(self) -> int:
        """Recover what can be claimed now; return how many entities were claimed.

        Raises:
            NotSentError: The log cannot be read, or it is not known whose alterations are ours.
        """
        journal = self._parts.journal
        cluster_id = await self._parts.admin.cluster_id()
        claimed = await journal.claim_open(cluster_id, self._owner, limit=AT_ONCE)
        self._parts.context.metrics.intents_are_open(await journal.open_intents(cluster_id))
        done = not claimed
        try:
            done = done or await self._recover_all(claimed)
        finally:
            if not done:
                await self._give_back(cluster_id)
        return len(claimed)

    async def _give_back(self, cluster_id: str) -> None:
        """Let others try: they may reach brokers that this process does not."""
        with suppress(NotSentError):
            await self._parts.journal.give_back(cluster_id, self._owner)

    async def _recover_all(self, claimed: Sequence[OpenAlteration]) -> bool:
        """Recover what was claimed; tell whether that was done."""
        try:
            by_broker = await self._by_broker(claimed)
        except NotSentError as error:
            logger.info("%d entities are not recovered yet: %s", len(claimed), error.detail)
            return False
        return all(await asyncio.gather(*(self._recover(*batch) for batch in by_broker.items())))

    async def _by_broker(self, claimed: Sequence[OpenAlteration]) -> Mapping[int, Batch]:
        """Group by the broker that it was sent through, or another where that one is gone."""
        live = await self._parts.admin.live_brokers()
        groups: dict[int | None, list[OpenAlteration]] = {}
        for one in claimed:
            broker_id = one.broker_id if one.broker_id in live else None
            groups.setdefault(broker_id, []).append(one)
        gone = groups.pop(None, [])
        by_broker = {
            broker_id: batch for broker_id, batch in groups.items() if broker_id is not None
        }
        if gone:
            preferred = await self._parts.admin.preferred_broker()
            by_broker.setdefault(preferred, []).extend(gone)
        return by_broker

    async def _recover(self, broker_id: int, batch: Batch) -> bool:
        try:
            found = await self._observed(broker_id, batch)
            self._failpoints.reach("recovery_before_record")
            ages = {one.place: one.age_s for one in batch}
            async for recorded in record_in_portions(self._parts.journal, found):
                self._failpoints.reach("recovery_after_record")
                self._count(recorded, ages)
        except QuotaError as error:
            logger.info(
                "%d entities sent through broker %d are not recovered yet: %s",
                len(batch),
                broker_id,
                error.detail,
            )
        except Exception:  # what one broker answers must not keep the others from being asked
            logger.exception("%d entities sent through broker %d", len(batch), broker_id)
        else:
            return True
        return False

    async def _observed(self, broker_id: int, batch: Batch) -> Sequence[Recovered]:
        """Observe a whole batch behind one pair of fences, for a broker has one queue.

        The fences are those of any alteration of the batch: one that a broker does not answer
        must not stand before all others again and again.
        """
        fencing = random.choice(batch).audited.alteration  # noqa: S311 - no secret
        pair = await self._parts.fences.pair(fencing, broker_id)
        entities = [one.audited.alteration.entity for one in batch]
        read = await self._parts.barrier.read(
            entities, broker_id=broker_id, within_s=self._parts.context.patience.entities_s
        )
        sight = Sight(pair, read, utc_now())
        return await off_loop(len(batch), sight.findings, batch, final_after_s=self._final_after_s)

    def _count(self, recorded: Sequence[Recovered], ages: Mapping[Place, float]) -> None:
        for one in recorded:
            if one.final:
                verdict = one.result.outcome.value
                self._parts.context.metrics.recovered(verdict, FoundBy.FENCES, ages[one.place])
