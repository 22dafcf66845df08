"""Recovery: what became of an alteration whose answer was lost; it never sends one again.

Fences prove that a broker's queue holds nothing older, as far as anything does. A validate-only
alteration is forwarded through the same queue as a real one. A single fence is overtaken where the
broker's connection to the controller breaks, for it then queues again in reverse order; a second
fence, sent a second after the first was answered, was not overtaken in any single disconnect
measured on release 4.3.1. Only time is a proof: see ``FINAL_AFTER_S``.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Outcome,
    Quotas,
    Values,
    observe,
    same_values,
)
from app.domain.errors import NotSentError, QuotaError
from app.metrics import AlterationMetrics, FoundBy
from app.service.alterations.barrier import Barrier
from app.service.alterations.write_ahead import record_in_portions
from app.service.ports.alterations import Failpoints
from app.service.ports.audit_log import (
    OpenAlteration,
    Recovered,
    RecoveryJournal,
    RecoveryKey,
)
from app.service.ports.brokers import (
    BarrierUnavailableError,
    ClientQuotaAdmin,
    MetadataQuorum,
)
from app.service.runtime.clock import USUAL, Patience, utc_now
from app.service.runtime.tasks import off_loop, run_forever

logger = logging.getLogger(__name__)

FENCE_TIMEOUT_S: Final = 2.0
"""A fence that is answered later proves nothing."""

BETWEEN_FENCES_S: Final = 1.0

FINAL_AFTER_S: Final = 95.0
"""Nothing sent is applied later than this by brokers and controllers that are alive: 60 s in a
broker's queue, 30 s of its socket, 5 s more. Source: ``NodeToControllerChannelManager``."""

AT_ONCE: Final = 10_000
"""How many entities one round claims: the largest alteration as a whole."""

_PAUSE_S: Final = 1.0

Batch = Sequence[OpenAlteration]
Evidence = Mapping[str, Any]


@dataclass(frozen=True)
class Recovery:
    """Claims what is open, observes it, and concludes it when nothing can come any more.

    Attributes:
        owner: The name of this process in the log.
        final_after_s: When a verdict is final, in seconds after the sending.
        failpoints: None is armed outside of tests.
    """

    admin: ClientQuotaAdmin
    quorum: MetadataQuorum
    barrier: Barrier
    journal: RecoveryJournal
    metrics: AlterationMetrics
    owner: str
    final_after_s: float = FINAL_AFTER_S
    between_fences_s: float = BETWEEN_FENCES_S
    failpoints: Failpoints = field(default_factory=Failpoints)
    patience: Patience = USUAL

    async def run(self) -> None:
        """Beat and recover until cancelled; what fails is tried again in the next round."""
        async with asyncio.TaskGroup() as group:
            for what, work in (("a beat", self._beat), ("a round of recovery", self.round)):
                rounds = run_forever(what, work, pause_s=_PAUSE_S, logger=logger, together=True)
                group.create_task(rounds)

    async def _beat(self) -> None:
        cluster_id = await self.admin.cluster_id()
        await self.journal.beat(cluster_id, self.owner)

    async def round(self) -> int:
        """Recover what can be claimed now; return how many entities were claimed.

        Raises:
            NotSentError: The log cannot be read, or the cluster has no id yet.
        """
        cluster_id = await self.admin.cluster_id()
        open_intents = await self.journal.open_intents(cluster_id)
        self.metrics.intents_are_open(*open_intents)
        if not open_intents.number:
            return 0
        claimed = await self.journal.claim_open(cluster_id, self.owner, limit=AT_ONCE)
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
            await self.journal.give_back(cluster_id, self.owner)

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
        live = await self.admin.live_brokers()
        preferred = await self.admin.preferred_broker()
        groups: dict[int, list[OpenAlteration]] = {}
        for alteration in claimed:
            broker_id = alteration.broker_id
            if broker_id is None or broker_id not in live:
                broker_id = preferred
            groups.setdefault(broker_id, []).append(alteration)
        return groups

    async def _recover(self, broker_id: int, batch: Batch) -> bool:
        try:
            found = await self._observe(broker_id, batch)
            self.failpoints.reach("recovery_before_record")
            ages = {alteration.key: alteration.age_s for alteration in batch}
            async for recorded in record_in_portions(self.journal, found):
                self.failpoints.reach("recovery_after_record")
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

    async def _observe(self, broker_id: int, batch: Batch) -> Sequence[Recovered]:
        """Observe a whole batch behind one pair of fences, for a broker has one queue.

        The fences are those of any alteration of the batch: one that a broker does not answer
        must not stand before all others again and again.
        """
        fencing = random.choice(batch).change  # noqa: S311 - no secret
        fences = await self.fence_pair(fencing, broker_id)
        entities = [alteration.change.entity for alteration in batch]
        within_s = max(self.patience.entities_s, self.barrier.deadline.seconds)
        read = await self.barrier.read(entities, broker_id=broker_id, within_s=within_s)
        evidence = {
            **fences,
            "observed_at": utc_now().isoformat(),
            "verified": read.quorum is not None,
            "high_watermark": read.quorum.high_watermark if read.quorum else None,
        }
        return await off_loop(
            len(batch), _findings, batch, read.values, evidence, final_after_s=self.final_after_s
        )

    async def fence_pair(self, alteration: ClientQuotaAlteration, broker_id: int) -> Evidence:
        """Send two fences for the entity of an alteration, under one leader; nothing is changed.

        Returns:
            What the log has of them; ``leader_epoch`` is null where DescribeQuorum is not
            permitted.

        Raises:
            NotSentError: An error, a slow answer or another leader: the pair proves nothing.
        """
        epoch = await self._epoch(broker_id)
        first = await self._fence(alteration, broker_id)
        await asyncio.sleep(self.between_fences_s)
        second = await self._fence(alteration, broker_id)
        if await self._epoch(broker_id) != epoch:
            raise NotSentError("The controller changed between two fences.", code="fence-broken")
        return {
            "broker_id": broker_id,
            "leader_epoch": epoch,
            "fences": [at.isoformat() for at in (first, second)],
        }

    async def _epoch(self, broker_id: int) -> int | None:
        try:
            state = await self.quorum.quorum(broker_id=broker_id, timeout_s=FENCE_TIMEOUT_S)
        except BarrierUnavailableError:
            return None
        return state.leader_epoch

    async def _fence(self, alteration: ClientQuotaAlteration, broker_id: int) -> datetime:
        answer = await self.admin.alter_client_quotas(
            [alteration], validate_only=True, broker_id=broker_id, timeout_s=FENCE_TIMEOUT_S
        )
        if answer.verdicts[alteration.entity].outcome is Outcome.UNKNOWN:
            raise NotSentError("A fence was not answered in time.", code="fence-broken")
        return utc_now()

    def _count(self, recorded: Sequence[Recovered], ages: Mapping[RecoveryKey, float]) -> None:
        for finding in recorded:
            if finding.final:
                verdict = finding.result.outcome.value
                self.metrics.recovered(verdict, FoundBy.FENCES, ages[finding.key])


def _findings(
    batch: Batch, seen: Quotas, evidence: Evidence, *, final_after_s: float
) -> Sequence[Recovered]:
    """Return what was found of each entity; final where it was sent so long ago."""
    return [
        _finding(item, seen.get(item.change.entity, {}), evidence, final_after_s) for item in batch
    ]


def _finding(
    item: OpenAlteration, seen: Values, evidence: Evidence, final_after_s: float
) -> Recovered:
    """Compare with what held before: that is proven where the owner has read it under its lock.

    The last audited state is no proof, for another tool may have changed it since. It tells
    whether something else is there now; the result does not repeat it.
    """
    alteration, before = item.change, item.change.before
    observation = observe(alteration, item.last_audited if before is None else before, seen)
    result = AlterationResult(
        alteration.entity,
        observation.outcome,
        changed=None if before is None else not same_values(before, seen),
        before=before,
        after=seen,
        warnings=item.change.warnings,
    )
    own_evidence = {
        **evidence,
        "indistinguishable": observation.indistinguishable,
        "before_is_proven": before is not None,
        "seen": {key: str(value) for key, value in seen.items()},
        "found": observation.outcome.value,
    }
    final = item.age_s >= final_after_s
    return Recovered(item.alteration_id, item.change.ordinal, result, final, own_evidence)
