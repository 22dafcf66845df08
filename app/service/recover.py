"""Recovery: observe what became of an alteration whose answer was lost. It never re-sends one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.domain.alterations import AlterationResult, Values, same_values
from app.domain.errors import NotFoundError, NotSentError, QuotaError
from app.domain.recovery import Observation, observe
from app.service.barrier import Barrier, BarrierRead
from app.service.clock import utc_now
from app.service.fences import FencePair, Fences
from app.service.life_context import LifeContext
from app.service.metrics_port import FoundBy
from app.service.ports import (
    ClientQuotaAdmin,
    OpenAlteration,
    Recovered,
    RecoveryJournal,
)

FINAL_AFTER_S: Final = 95.0
"""Nothing sent is applied later than this by brokers and controllers that are alive: 60 s in a
broker's queue, 30 s of its socket, 5 s more. Source: ``NodeToControllerChannelManager``."""

AT_ONCE: Final = 50
"""How many entities one round claims."""

_PAUSE_S: Final = 1.0

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
            group.create_task(_again_and_again("a beat", self._beat))
            group.create_task(_again_and_again("a round of recovery", self.round))

    async def _beat(self) -> None:
        await self._parts.journal.beat(self._owner)

    async def round(self) -> int:
        """Recover what can be claimed now; return how many entities were claimed."""
        journal = self._parts.journal
        claimed = await journal.claim_open(self._owner, limit=AT_ONCE)
        self._parts.context.metrics.intents_are_open(await journal.open_intents())
        await asyncio.gather(*(self._recover(one) for one in claimed))
        return len(claimed)

    async def _recover(self, one: OpenAlteration) -> None:
        try:
            recovered = await self._observed(one)
            self._failpoints.reach("recovery_before_record")
            await self._parts.journal.record_recovery(recovered)
            self._failpoints.reach("recovery_after_record")
            if recovered.final:
                verdict = recovered.result.outcome.value
                self._parts.context.metrics.recovered(verdict, FoundBy.FENCES, one.age_s)
        except NotSentError as error:
            logger.info("%s is not recovered yet: %s", one.alteration_id, error.detail)
        except (NotFoundError, ValueError) as error:
            logger.warning("%s was concluded elsewhere: %s", one.alteration_id, error)

    async def _observed(self, one: OpenAlteration) -> Recovered:
        final = one.age_s >= self._final_after_s
        pair, read = await self._fenced_read(one)
        entity = one.audited.alteration.entity
        seen = read.values.get(entity, {})
        observation = observe(one.audited.alteration, one.audited.before or {}, seen)
        return Recovered(
            one.alteration_id,
            one.audited.ordinal,
            _result(one, observation, seen),
            final=final,
            evidence=_evidence(observation, seen, pair, read),
        )

    async def _fenced_read(self, one: OpenAlteration) -> tuple[FencePair, BarrierRead]:
        alteration = one.audited.alteration
        broker_id = await self._broker_for(one)
        pair = await self._parts.fences.pair(alteration, broker_id)
        read = await self._parts.barrier.read([alteration.entity], broker_id=broker_id)
        return pair, read

    async def _broker_for(self, one: OpenAlteration) -> int:
        """Return the broker that it was sent through, or another where that one is gone."""
        live = await self._parts.admin.live_brokers()
        if one.broker_id is not None and one.broker_id in live:
            return one.broker_id
        return await self._parts.admin.preferred_broker()


async def _again_and_again(what: str, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await work()
        except QuotaError as error:
            logger.warning("%s failed: %s", what, error.detail)
        except Exception:  # the outermost boundary of this task: one bad row must not end it
            logger.exception("%s failed", what)
        await asyncio.sleep(_PAUSE_S)


def _result(one: OpenAlteration, observation: Observation, seen: Values) -> AlterationResult:
    before = one.audited.before or {}
    return AlterationResult(
        one.audited.alteration.entity,
        observation.outcome,
        changed=not same_values(before, seen),
        before=before,
        after=seen,
        warnings=one.audited.warnings,
    )


def _evidence(
    observation: Observation, seen: Values, pair: FencePair, read: BarrierRead
) -> Mapping[str, Any]:
    quorum = read.quorum
    return {
        **pair.evidence,
        "observed_at": utc_now().isoformat(),
        "verified": read.verified,
        "indistinguishable": observation.indistinguishable,
        "high_watermark": quorum.high_watermark if quorum else None,
        "log_end": quorum.log_ends.get(pair.broker_id) if quorum else None,
        "seen": {key: str(value) for key, value in seen.items()},
        "found": observation.outcome.value,
    }
