"""The watch for drift: it records what others changed, and what of ours was applied late."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from app.domain.alterations import Quotas, Values, find_differences, late_apply, same_values
from app.domain.budgets import Budget, budget_rows
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from app.domain.errors import NotSentError
from app.metrics import AlterationMetrics, DriftOrigin
from app.service.alterations.barrier import Barrier
from app.service.ports.audit_log import AuditedState, Drift, DriftJournal
from app.service.ports.brokers import ClientQuotaAdmin, Described
from app.service.runtime.tasks import off_loop, run_forever

logger = logging.getLogger(__name__)

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
    """Compares at intervals; one process of those that serve a cluster does it.

    Attributes:
        budgets: Returns those in force, of which it says how full they are.
    """

    admin: ClientQuotaAdmin
    barrier: Barrier
    journal: DriftJournal
    metrics: AlterationMetrics
    interval_s: float = INTERVAL_S
    budgets: Callable[[], Sequence[Budget]] = tuple
    _cluster_id: str | None = field(default=None, init=False)
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
            cluster_id = self._cluster_id = await self.admin.cluster_id()
            if not await self.journal.try_lead(cluster_id):
                # Another process says it.
                self.metrics.budgets_are_filled({})
                return ()
            return await self._compare(cluster_id)
        except Exception:
            await self.resign()
            raise

    async def resign(self) -> None:
        """Let another process watch the cluster."""
        if self._cluster_id is not None:
            with suppress(NotSentError):
                await self.journal.let_others_lead(self._cluster_id)

    async def _compare(self, cluster_id: str) -> Sequence[ClientQuotaEntity]:
        baseline = await self.journal.baseline(cluster_id)
        described, verified = await self._describe()
        await self._weigh_budgets(described.quotas)
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

    async def _weigh_budgets(self, quotas: Quotas) -> None:
        budgets = self.budgets()
        rows = await off_loop(len(quotas), list, budget_rows(budgets, quotas)) if budgets else []
        self.metrics.budgets_are_filled({(row.budget.name, row.key): row.filled for row in rows})

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
        changed = find_differences(audited, described.quotas)
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
