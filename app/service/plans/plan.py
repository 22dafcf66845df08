"""Plan: compare a document with the cluster, and keep what would have to be done."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from app.domain.alterations import Quotas
from app.domain.entities import Caller
from app.domain.errors import (
    InvalidRequestError,
    NotFoundError,
    Retry,
    TooManyRequestsError,
    Violation,
)
from app.domain.plan_impact import Impacts, KeyImpact, summary
from app.domain.planner import base_of, make_plan
from app.domain.plans import Holdings, Plan, PlannedChange, PlanRequest
from app.service.clock import utc_now
from app.service.cluster_ports import ClusterIdentity
from app.service.identifiers import new_alteration_id
from app.service.off_loop import off_loop
from app.service.plans.plan_records import (
    MAX_PLAN_BYTES_OF_ONE,
    MAX_PLANS_OF_ONE,
    ChangeWithImpact,
    KeptPlan,
    PlanStore,
)
from app.service.reading.describe import DescribeQuotas

PLAN_LIFE: Final = timedelta(hours=24)
"""How long a plan can be applied."""


@dataclass(frozen=True, slots=True)
class PlanCommand:
    """A request for a plan, as read and authorized.

    Attributes:
        wanted: The document, and what may be touched for it.
        scope: The scope as written.
        violations: Broken rules of the request's own fields, found while it was read.
    """

    caller: Caller
    wanted: PlanRequest
    scope: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


class MakePlans:
    """Answers ``POST /quotas/plans`` and ``GET /quotas/plans/{plan_id}``."""

    def __init__(
        self, describe: DescribeQuotas, store: PlanStore, cluster: ClusterIdentity
    ) -> None:
        self._describe = describe
        self._store = store
        self._cluster = cluster

    async def make(self, command: PlanCommand) -> KeptPlan:
        """Make a plan and keep it; nothing is sent.

        Raises:
            InvalidRequestError: What would change breaks a rule, or an entity is outside the scope.
            NotSentError: No broker answers, or Postgres does not.
            TooManyRequestsError: The caller has as many plans as one may have.
        """
        if command.violations:
            raise InvalidRequestError(_BROKEN, violations=command.violations)
        wanted = command.wanted
        described = await self._describe.everything()
        entities = [one.entity for one in wanted.quotas]
        holdings = await self._store.holdings(described.cluster_id, wanted.owner, entities)
        number = len(described.quotas) + len(entities)
        plan, changes = await off_loop(number, planned, wanted, described.quotas, holdings)
        now = utc_now()
        kept = KeptPlan(
            plan_id=new_alteration_id(),
            cluster_id=described.cluster_id,
            author=command.caller.principal,
            owner=wanted.owner,
            prune=wanted.prune,
            adopt=wanted.adopt,
            scope=command.scope,
            created_at=now,
            expires_at=now + PLAN_LIFE,
            base=await off_loop(len(plan.rests_on), base_of, described.cluster_id, plan),
            changes=changes,
            conflicts=plan.conflicts,
            kept=plan.kept,
            rests_on=plan.rests_on,
            document=wanted.quotas,
        )
        if not await self._store.keep(kept):
            raise TooManyRequestsError(
                _FULL, code="too-many-plans", retry=Retry.SAFE, retry_after_s=600
            )
        return kept

    async def plan(self, plan_id: str) -> KeptPlan:
        """Return a plan, without its document; an expired one too, while it is kept.

        Raises:
            NotFoundError: There is none for this cluster.
        """
        plan = await self._store.plan(await self._cluster.cluster_id(), plan_id)
        if plan is None:
            raise NotFoundError("There is no such plan, or it expired a day ago or earlier.")
        return plan


_FULL: Final = (
    f"You have {MAX_PLANS_OF_ONE} plans, or {MAX_PLAN_BYTES_OF_ONE >> 20} MiB of them, that can "
    "still be applied; this one was not stored. A plan expires after 24 hours."
)

_BROKEN: Final = "The plan breaks rules of Kafka or of this service; every violation is listed."


def planned(
    wanted: PlanRequest, stored: Quotas, holdings: Holdings
) -> tuple[Plan, tuple[ChangeWithImpact, ...]]:
    """Return a plan with the impact of each of its changes.

    Raises:
        InvalidRequestError: What would change breaks a rule, or an entity is outside the scope.
    """
    plan = make_plan(wanted, stored, holdings)
    if plan.violations:
        kafka_error = next((one.kafka_error for one in plan.violations if one.kafka_error), None)
        raise InvalidRequestError(_BROKEN, kafka_error=kafka_error, violations=plan.violations)
    if not plan.changes:
        return plan, ()
    impacts = Impacts(stored, plan.changes)
    changes = tuple(ChangeWithImpact(one, _impact(impacts, one)) for one in plan.changes)
    return plan, changes


def _impact(impacts: Impacts, change: PlannedChange) -> dict[str, Any]:
    keys = impacts.of(change)
    return {
        "summary": summary(change.alteration.entity, keys),
        "keys": {key: _key_impact(one) for key, one in keys.items()},
    }


def _key_impact(one: KeyImpact) -> dict[str, Any]:
    source = one.source
    return {
        "change": one.change,
        "factor": one.factor,
        "effective_before": one.effective_before,
        "effective_after": one.effective_after,
        "source": source
        and {"entity": source.entity.as_dict(), "level": source.level, "name": str(source.name)},
        "more_specific": one.more_specific,
    }
