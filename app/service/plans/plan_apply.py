"""Apply a plan: one alteration, if everything still is as it was when the plan was made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    ExpectationFailedError,
    NotFoundError,
    OwnerConflictError,
    PlanExpiredError,
    Violation,
)
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.alteration_command import AlterationReport, AlterCommand
from app.service.clock import utc_now
from app.service.cluster_ports import ClusterIdentity
from app.service.off_loop import off_loop
from app.service.plans.plan_claims import OwnershipClaim, PlanApplication, RestsOn
from app.service.plans.plan_records import KeptPlan, PlanStore

OUTDATED: Final = "plan-outdated"
"""The code of a plan whose base has moved."""

_MOVED: Final = "The cluster has changed since the plan was made; nothing was applied. Plan again."


@dataclass(frozen=True, slots=True)
class ApplyPlans:
    """Answers ``POST /quotas/plans/{plan_id}/apply``."""

    store: PlanStore
    alter: AlterQuotas
    cluster: ClusterIdentity

    async def apply(self, command: AlterCommand, plan_id: str, *, force: bool) -> AlterationReport:
        """Apply what was planned, whoever planned it.

        Args:
            command: Who asks and how; its alterations are those of the plan.
            plan_id: Which plan.
            force: Take keys over that other owners hold.

        Raises:
            NotFoundError: There is no such plan for this cluster.
            PlanExpiredError: It is too old.
            OwnerConflictError: Another owner holds a key that it would change.
            ExpectationFailedError: What it rests on has changed.
            QuotaError: As ``AlterQuotas.alter``.
        """
        try:
            return await self._apply(command, plan_id, force=force)
        except ExpectationFailedError as error:
            raise _outdated(error) from error

    async def _apply(self, command: AlterCommand, plan_id: str, *, force: bool) -> AlterationReport:
        plan = await self.store.plan(await self.cluster.cluster_id(), plan_id)
        if plan is None:
            raise NotFoundError("There is no such plan, or it expired a day ago or earlier.")
        check = partial(_check, plan, force=force or bool(command.violations))
        number = len(plan.changes) + len(plan.rests_on)
        applying = await off_loop(number, _alterations, command, plan, force=force)
        if plan.changes or command.violations:
            return await self.alter.alter(applying, check)
        replay = await self.alter.replay(applying)
        if replay is not None:
            return replay
        check()
        return await self.alter.confirm(applying)


_HELD: Final = (
    "Another owner holds what the plan would change; nothing was applied. Leave those keys to it, "
    "or take them over with force."
)


def _check(plan: KeptPlan, *, force: bool) -> None:
    if plan.expires_at <= utc_now():
        raise PlanExpiredError("The plan has expired; plan again.")
    if plan.conflicts and not force:
        raise OwnerConflictError(_HELD, violations=_conflicts(plan))


def _conflicts(plan: KeptPlan) -> list[Violation]:
    return [
        Violation(
            f"/conflicts/{position}",
            "owner-conflict",
            f"{one.key} of {one.entity.canonical_json()} is held by {one.owner}.",
            values={"owner": one.owner, "current": {one.key: one.current}},
        )
        for position, one in enumerate(plan.conflicts)
    ]


def _alterations(command: AlterCommand, plan: KeptPlan, *, force: bool) -> AlterCommand:
    changes = [one.change for one in plan.changes]
    touched = {one.alteration.entity for one in changes}
    claim = OwnershipClaim(
        plan.owner, force, {one.alteration.entity: one.holders for one in changes}
    )
    expected = (_expected(one.alteration.entity, one.before, plan.rests_on) for one in changes)
    return replace(
        command,
        alterations=tuple(one.alteration for one in changes),
        action="apply_plan",
        expected=dict(enumerate(expected)),
        plan=PlanApplication(
            plan.plan_id,
            claim,
            {one: values for one, values in plan.rests_on.items() if one not in touched},
            _taken_over(plan),
        ),
    )


def _expected(
    entity: ClientQuotaEntity, before: Values, rests_on: RestsOn
) -> Mapping[str, float | None]:
    return rests_on.get(entity) or dict(before)


def _taken_over(plan: KeptPlan) -> Mapping[int, Mapping[str, str]]:
    ordinals = {one.change.alteration.entity: place for place, one in enumerate(plan.changes)}
    taken: dict[int, dict[str, str]] = {}
    for one in plan.conflicts:
        taken.setdefault(ordinals[one.entity], {})[one.key] = one.owner
    return taken


def _outdated(error: ExpectationFailedError) -> ExpectationFailedError:
    """Return the error in the words of a plan: its places are those of the plan's document."""
    return ExpectationFailedError(
        _MOVED,
        code=OUTDATED,
        violations=[
            replace(one, pointer=f"/changes/{one.index}", code=OUTDATED)
            if one.index is not None
            else replace(one, code=OUTDATED)
            for one in error.violations
        ],
        alteration_id=error.alteration_id,
        replayed=error.replayed,
    )
