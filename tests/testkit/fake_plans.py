"""Plans and owners in memory."""

from collections.abc import Iterable

from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Holding, Holdings
from app.service.plans.plan_records import KeptPlan


class FakePlans:
    """Keeps what it is told; a test says who holds what."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptPlan] = {}
        self.held: dict[ClientQuotaEntity, dict[str, Holding]] = {}

    async def holdings(
        self, cluster_id: str, owner: str, entities: Iterable[ClientQuotaEntity]
    ) -> Holdings:
        """Return who holds what."""
        return self.held

    async def keep(self, plan: KeptPlan) -> None:
        """Keep a plan."""
        self.kept[plan.plan_id] = plan

    async def plan(self, plan_id: str) -> KeptPlan | None:
        """Return a plan."""
        return self.kept.get(plan_id)
