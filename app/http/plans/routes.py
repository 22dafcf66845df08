"""``POST /quotas/plans``, a plan, and applying it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import MISSING

from app.domain.plans import PlannedChange
from app.http.alterations.impact import impact_of_values
from app.http.alterations.routes import alteration_response, altered, command_of
from app.http.encoding import JsonResponse
from app.http.models import UUID7_PATTERN
from app.http.plans.models import ApplyRequest, Plan, PlanRequest
from app.http.responses import answers, problems, request_examples
from app.http.route import Key, MayAlter, MayDescribe, feature_router, path_id, services_of
from app.service.plans import PlanCommand, Plans
from app.service.ports.plans import StoredPlan
from app.service.runtime.tasks import off_loop

router = feature_router("plans")

PlanId = Annotated[str, path_id("plan_id", "an answer", UUID7_PATTERN)]


@router.post(
    "/quotas/plans",
    summary="Plan what a document would change",
    responses=answers(Plan, "What would have to change; nothing has.", "plan"),
    openapi_extra=request_examples("desired", "desired-within-a-scope"),
)
async def plan_quotas(request: Request, granted: MayDescribe, body: PlanRequest) -> Response:
    """Say what would have to change for a document to hold; nothing is changed."""
    wanted = body.wanted(granted.caller.principal)
    command = PlanCommand(granted.caller, wanted, tuple(body.scope), body.violations)
    large = services_of(request).alter.large
    with large.work(granted.caller.principal, len(wanted.quotas)):
        plan = await _plans(request).make(command)
        impact = await _impact(request, plan.changes) if body.impact else MISSING
        return await _respond(plan, impact)


@router.get(
    "/quotas/plans/{plan_id}",
    summary="Show one plan",
    responses=answers(Plan, "The plan as it was made.", "plan", errors=("NotFound",)),
)
async def show_plan(request: Request, _: MayDescribe, plan_id: PlanId) -> Response:
    """Show a plan again, as it was made."""
    return await _respond(await _plans(request).plan(plan_id))


@router.post(
    "/quotas/plans/{plan_id}/apply",
    summary="Apply one plan",
    responses={
        200: altered("All applied, or nothing was to be done.", "alteration-applied"),
        **problems("NotFound", "PlanExpired", "PlanOutdated", "PlanBusy"),
    },
    openapi_extra=request_examples("apply", "take-over"),
)
async def apply_plan(
    request: Request, granted: MayAlter, key: Key, plan_id: PlanId, body: ApplyRequest
) -> Response:
    """Do what was planned, if everything still is as it was then."""
    command = replace(
        command_of(request, granted, key, body.violations),
        reason=body.reason,
        wait=body.until,
        wait_ms=body.longest_ms,
        action="apply_plan",
    )
    work = _plans(request).apply(command, plan_id, force=body.force)
    return await alteration_response(request, command, work)


def _plans(request: Request) -> Plans:
    services = services_of(request)
    return Plans(services.describe, services.plans, services.alter, services.cluster)


async def _impact(request: Request, changes: Sequence[PlannedChange]) -> Any:
    values = {change.alteration.entity: change.after for change in changes}
    return await impact_of_values(request, [change.alteration for change in changes], values)


async def _respond(plan: StoredPlan, impact: Any = MISSING) -> Response:
    return await off_loop(len(plan.changes), lambda: JsonResponse(plan_document(plan, impact)))


def plan_document(plan: StoredPlan, impact: Any = MISSING) -> Plan:
    """Return the answer to a request for a plan."""
    return Plan.model_validate(plan).model_copy(update={"impact": impact})
