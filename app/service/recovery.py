"""What becomes certain later: outcomes that were lost, and changes that others made.

Recovery observes what became of an alteration whose answer was lost; it never re-sends one. Fences
prove that a broker's queue holds nothing older, as far as anything does. A validate-only alteration
is forwarded through the same queue as a real one. A single fence is overtaken where the broker's
connection to the controller breaks, for it then queues again in reverse order; a second fence, sent
a second after the first was answered, was not overtaken in any single disconnect measured on
release 4.3.1. Only time is a proof: see ``FINAL_AFTER_S``.

The watch for drift records what others changed, and what of ours was applied late.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Outcome,
    Quotas,
    Values,
    differing,
    late_apply,
    observe,
    same_values,
)
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from app.domain.errors import NotSentError, QuotaError
from app.metrics import AlterationMetrics, DriftOrigin, FoundBy
from app.service.alterations.barrier import Barrier
from app.service.alterations.write_ahead import record_in_portions
from app.service.ports.alterations import Failpoints
from app.service.ports.audit_log import (
    AuditedState,
    Drift,
    DriftJournal,
    OpenAlteration,
    Recovered,
    RecoveryJournal,
    RecoveryKey,
)
from app.service.ports.brokers import (
    BarrierUnavailableError,
    ClientQuotaAdmin,
    Described,
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
                group.create_task(run_forever(what, work, pause_s=_PAUSE_S, logger=logger))

    async def _beat(self) -> None:
        cluster_id = await self.admin.cluster_id()
        await self.journal.beat(cluster_id, self.owner)

    async def round(self) -> int:
        """Recover what can be claimed now; return how many entities were claimed.

        Raises:
            NotSentError: The log cannot be read, or the cluster has no id yet.
        """
        cluster_id = await self.admin.cluster_id()
        claimed = await self.journal.claim_open(cluster_id, self.owner, limit=AT_ONCE)
        self.metrics.intents_are_open(*await self.journal.open_intents(cluster_id))
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


INTERVAL_S: Final = 60.0
"""How often the cluster is compared with the log; a change that lasts twice as long is seen."""

DESCRIBE_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A difference that was seen through a broker that may have been behind."""

    version: int
    after: Values
    first_seen: datetime


@dataclass
class DriftWatch:
    """Compares at intervals; one process of those that serve a cluster does it."""

    admin: ClientQuotaAdmin
    barrier: Barrier
    journal: DriftJournal
    metrics: AlterationMetrics
    interval_s: float = INTERVAL_S
    _sightings: dict[ClientQuotaEntity, _Sighting] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Watch until cancelled; what fails is tried again in the next round."""
        what = "a round of the watch for drift"
        await run_forever(what, self.round, pause_s=self.interval_s, logger=logger)

    async def round(self) -> Sequence[ClientQuotaEntity]:
        """Compare once; return the entities whose drift was recorded.

        Who cannot lets another process try: it may reach the cluster where this one does not.
        """
        try:
            cluster_id = await self.admin.cluster_id()
            if not await self.journal.try_lead(cluster_id):
                return ()
            return await self._compare(cluster_id)
        except Exception:
            with suppress(NotSentError):
                await self.journal.let_others_lead()
            raise

    async def _compare(self, cluster_id: str) -> Sequence[ClientQuotaEntity]:
        baseline = await self.journal.baseline(cluster_id)
        described, verified = await self._describe()
        if baseline is None:
            await self.journal.keep_baseline(cluster_id, described.quotas)
            return ()
        number = len(baseline) + len(described.quotas)
        changes = await off_loop(
            number, self._find_confirmed, baseline, described, verified=verified
        )
        self.metrics.scanned_for_drift()
        if not changes:
            return ()
        linked = await self._link(cluster_id, changes)
        recorded = await self.journal.record_drift(cluster_id, linked)
        for entity in recorded:
            self._sightings.pop(entity, None)
        self._count(recorded, linked)
        return recorded

    def _count(self, recorded: Sequence[ClientQuotaEntity], changes: Sequence[Drift]) -> None:
        recorded_entities = set(recorded)
        for change in changes:
            if change.entity in recorded_entities:
                late = change.linked_alteration_id is not None
                self.metrics.drifted(DriftOrigin.LATE_APPLY if late else DriftOrigin.OUTSIDE)

    async def _describe(self) -> tuple[Described, bool]:
        """Describe everything behind a barrier, so that nothing older than the log is seen."""
        broker_id = await self.admin.preferred_broker()
        barrier = await self.barrier.read((), broker_id=broker_id)
        described = await self.admin.describe_client_quotas(
            ALL_ENTITIES, broker_id=broker_id, timeout_s=DESCRIBE_TIMEOUT_S
        )
        return described, barrier.quorum is not None

    def _find_confirmed(
        self,
        baseline: Mapping[ClientQuotaEntity, AuditedState],
        described: Described,
        *,
        verified: bool,
    ) -> list[Drift]:
        audited: Quotas = {entity: state.values for entity, state in baseline.items()}
        changed = differing(audited, described.quotas)
        sightings: dict[ClientQuotaEntity, _Sighting] = {}
        drifts = []
        for entity, (before, after) in changed.items():
            state = baseline.get(entity)
            now = _Sighting(state.version if state else 0, after, described.as_of)
            earlier = self._sightings.get(entity)
            again = (
                earlier is not None
                and earlier.version == now.version
                and same_values(earlier.after, now.after)
            )
            sightings[entity] = earlier if earlier is not None and again else now
            if verified or again:
                first_seen = sightings[entity].first_seen
                drifts.append(Drift(entity, before, after, first_seen, now.version))
        self._sightings = sightings
        return drifts

    async def _link(self, cluster_id: str, changes: Sequence[Drift]) -> list[Drift]:
        doubtful = await self.journal.recent_doubtful(
            cluster_id, [change.entity for change in changes]
        )
        return [
            replace(
                change,
                linked_alteration_id=late_apply(
                    change.before, change.after, doubtful.get(change.entity, {})
                ),
            )
            for change in changes
        ]
