"""Plans: compare a document with the cluster, store what would have to be done, and apply it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from app.domain.alterations import Quotas
from app.domain.callbacks.callback import ignored_by
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import (
    ExpectationFailedError,
    InvalidRequestError,
    NotFoundError,
    OwnerConflictError,
    PlanExpiredError,
    Retry,
    TooManyRequestsError,
    Violation,
)
from app.domain.expiry import NO_EXPIRIES, Expiries
from app.domain.plan_impact import Impacts, KeyImpact, summary
from app.domain.plans import (
    Holders,
    Holdings,
    Plan,
    PlannedChange,
    PlanRequest,
    base_of,
    make_plan,
)
from app.service.alterations.alter import AlterQuotas
from app.service.auth.actors import Actor
from app.service.ports.alterations import Alteration, AlterationRecord, Change
from app.service.ports.brokers import ClusterIdentity
from app.service.ports.plans import (
    MAX_OWN_PLAN_BYTES,
    MAX_OWN_PLANS,
    PlanApplication,
    PlanStore,
    StoredPlan,
)
from app.service.runtime.clock import new_alteration_id, utc_now
from app.service.runtime.tasks import off_loop

PLAN_TTL: Final = timedelta(hours=24)
"""How long a plan can be applied."""


@dataclass(frozen=True, slots=True)
class PlanCommand:
    """A request for a plan, as read and authorized.

    Attributes:
        violations: Broken rules of the request's own fields, found while it was read.
    """

    caller: Caller
    wanted: PlanRequest
    scope: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class Plans:
    """Answers ``/quotas/plans``, ``/quotas/plans/{plan_id}`` and its ``apply``."""

    store: PlanStore
    alter: AlterQuotas
    cluster: ClusterIdentity

    async def make(self, actor: Actor, command: PlanCommand) -> StoredPlan:
        """Make a plan and keep it; nothing is sent.

        Raises:
            InvalidRequestError: What would change breaks a rule, or an entity is outside the scope.
            NotSentError: No broker answers, or Postgres does not.
            TooManyRequestsError: The caller has as many plans as one may have.
        """
        if command.violations:
            raise InvalidRequestError(_BROKEN, violations=command.violations)
        wanted = command.wanted
        described = await actor.describe_now()
        entities = [desired.entity for desired in wanted.quotas]
        holdings = await self.store.holdings(described.cluster_id, wanted.owner, entities)
        number = len(described.quotas) + len(entities)
        expiries = self.alter.temporary.values
        plan = await off_loop(number, planned, wanted, described.quotas, holdings, expiries)
        ignored = ignored_by(
            await self.alter.model(), [change.alteration for change in plan.changes]
        )
        plan = replace(plan, warnings=(*plan.warnings, *ignored))
        now = utc_now()
        stored = StoredPlan(
            plan_id=new_alteration_id(),
            cluster_id=described.cluster_id,
            author=command.caller.principal,
            owner=wanted.owner,
            prune=wanted.prune,
            adopt=wanted.adopt,
            scope=command.scope,
            created_at=now,
            expires_at=now + PLAN_TTL,
            base=await off_loop(len(plan.rests_on), base_of, described.cluster_id, plan),
            **{each.name: getattr(plan, each.name) for each in fields(plan)},
        )
        if not await self.store.keep(stored):
            raise TooManyRequestsError(
                _FULL, code="too-many-plans", retry=Retry.SAFE, retry_after_s=600
            )
        return stored

    async def plan(self, plan_id: str) -> StoredPlan:
        """Return a plan, an expired one too while it is stored.

        Raises:
            NotFoundError: There is none for this cluster.
        """
        plan = await self.store.plan(await self.cluster.cluster_id(), plan_id)
        if plan is None:
            raise NotFoundError("There is no such plan, or it expired a day ago or earlier.")
        return plan

    async def apply(
        self, actor: Actor, alteration: Alteration, plan_id: str, *, force: bool
    ) -> AlterationRecord:
        """Apply what was planned, whoever planned it.

        Args:
            actor: Who acts.
            alteration: Who asks and how; its changes are those of the plan.
            plan_id: Which plan.
            force: Take keys over that other owners hold, and end what is for a time.

        Raises:
            NotFoundError: There is no such plan for this cluster.
            PlanExpiredError: It is too old.
            OwnerConflictError: Another owner holds a key that it would change.
            ExpectationFailedError: What it rests on has changed.
            QuotaError: As ``AlterQuotas.alter``.
        """
        alteration.refuse_if_broken()
        try:
            return await self._apply(actor, alteration, plan_id, force=force)
        except ExpectationFailedError as error:
            raise _outdated_error(error) from error

    async def _apply(
        self, actor: Actor, alteration: Alteration, plan_id: str, *, force: bool
    ) -> AlterationRecord:
        plan = await self.plan(plan_id)
        check = partial(_check, plan, force=force)
        number = len(plan.changes) + len(plan.rests_on)
        applying = await off_loop(number, _applying, alteration, plan, force=force)
        if applying.changes:
            return await self.alter.alter(actor, applying, check)
        replay = await self.alter.replay(actor, applying)
        if replay is not None:
            return replay
        check()
        return await self.alter.confirm(actor, applying)


_FULL: Final = (
    f"You have {MAX_OWN_PLANS} plans, or {MAX_OWN_PLAN_BYTES >> 20} MiB of them, that can "
    "still be applied; this one was not stored. A plan expires after 24 hours."
)

_BROKEN: Final = "The plan breaks rules of Kafka or of this service; every violation is listed."


def planned(
    wanted: PlanRequest, stored: Quotas, holdings: Holdings, expiries: Expiries = NO_EXPIRIES
) -> Plan:
    """Return a plan with the impact of each of its changes.

    Raises:
        InvalidRequestError: What would change breaks a rule, or an entity is outside the scope.
    """
    plan = make_plan(wanted, stored, holdings, expiries)
    if plan.violations:
        kafka_error = next(
            (violation.kafka_error for violation in plan.violations if violation.kafka_error), None
        )
        raise InvalidRequestError(_BROKEN, kafka_error=kafka_error, violations=plan.violations)
    if not plan.changes:
        return plan
    impacts = Impacts(stored, plan.changes)
    changes = (replace(change, impact=_impact(impacts, change)) for change in plan.changes)
    return replace(plan, changes=tuple(changes))


def _impact(impacts: Impacts, change: PlannedChange) -> dict[str, Any]:
    keys = impacts.of(change)
    return {
        "summary": summary(change.alteration.entity, keys),
        "keys": {key: _key_impact(impact) for key, impact in keys.items()},
    }


def _key_impact(impact: KeyImpact) -> dict[str, Any]:
    source = impact.source
    return asdict(impact) | {
        "source": source
        and {"entity": source.entity.as_dict(), "level": source.level, "name": str(source.name)}
    }


OUTDATED: Final = "plan-outdated"
"""The code of a plan whose base has moved."""

_MOVED: Final = "The cluster has changed since the plan was made; nothing was applied. Plan again."


_HELD: Final = (
    "Another owner holds what the plan would change; nothing was applied. Leave those keys to it, "
    "or take them over with force."
)


def _check(plan: StoredPlan, *, force: bool) -> None:
    if plan.expires_at <= utc_now():
        raise PlanExpiredError("The plan has expired; plan again.")
    if plan.conflicts and not force:
        raise OwnerConflictError(_HELD, violations=_conflicts(plan))


def _conflicts(plan: StoredPlan) -> list[Violation]:
    return [
        Violation(
            f"/conflicts/{position}",
            "owner-conflict",
            f"{conflict.key} of {conflict.entity} is held by {conflict.owner}.",
            values={"owner": conflict.owner, "current": {conflict.key: conflict.current}},
        )
        for position, conflict in enumerate(plan.conflicts)
    ]


def _applying(alteration: Alteration, plan: StoredPlan, *, force: bool) -> Alteration:
    ops = {change.alteration.entity: change.alteration.ops for change in plan.changes}
    holders = {change.alteration.entity: dict(change.holders) for change in plan.changes}
    for held in plan.temporary if force else ():
        ops[held.entity] = (*ops.get(held.entity, ()), held.op)
        holders.setdefault(held.entity, {})[held.key] = held.owner
    before = {change.alteration.entity: change.before for change in plan.changes}
    return replace(
        alteration,
        changes=tuple(
            Change(entity, own, n, plan.rests_on.get(entity) or dict(before.get(entity, {})))
            for n, (entity, own) in enumerate(ops.items())
        ),
        action="apply_plan",
        plan=PlanApplication(
            plan.plan_id,
            plan.owner,
            force,
            holders,
            {other: values for other, values in plan.rests_on.items() if other not in holders},
            _taken_over(plan, holders),
        ),
    )


def _taken_over(
    plan: StoredPlan, holders: Mapping[ClientQuotaEntity, Holders]
) -> Mapping[int, Mapping[str, str]]:
    ordinals = {entity: n for n, entity in enumerate(holders)}
    taken: dict[int, dict[str, str]] = {}
    for conflict in plan.conflicts:
        taken.setdefault(ordinals[conflict.entity], {})[conflict.key] = conflict.owner
    for held in plan.temporary:
        is_taken = held.key in holders.get(held.entity, ())
        if is_taken and held.owner is not None and held.owner != plan.owner:
            taken.setdefault(ordinals[held.entity], {})[held.key] = held.owner
    return taken


def _outdated_error(error: ExpectationFailedError) -> ExpectationFailedError:
    """Return the error in the words of a plan: its pointers are those of the plan's document."""
    return ExpectationFailedError(
        _MOVED,
        code=OUTDATED,
        violations=[
            replace(violation, pointer=f"/changes/{violation.index}", code=OUTDATED)
            if violation.index is not None
            else replace(violation, code=OUTDATED)
            for violation in error.violations
        ],
        alteration_id=error.alteration_id,
        replayed=error.replayed,
    )
