"""``POST /quotas/plans``, a plan, and applying it."""

from functools import partial
from typing import Final

from fastapi import APIRouter, Request, Response

from app.http.admission import read_object
from app.http.altered import altered
from app.http.declared import requires
from app.http.idempotency import read_key, read_superseded
from app.http.json_text import JsonResponse
from app.http.openapi import APPLY, PLAN, SHOW_PLAN
from app.http.permissions import Granted, granted_to, may_alter, may_describe
from app.http.plain_route import PlainRoute
from app.http.plan_documents import plan_json
from app.http.plan_reading import read_apply_request, read_plan_request
from app.http.query import read_query
from app.http.route_parameters import NO_PARAMETERS
from app.http.services import services_of
from app.http.strict_json import JsonObject
from app.service.alterations.alteration_command import AlterCommand
from app.service.off_loop import off_loop
from app.service.plans.plan import MakePlans, PlanCommand
from app.service.plans.plan_apply import ApplyPlans
from app.service.plans.plan_records import KeptPlan

router = APIRouter(tags=["plans"], route_class=PlainRoute)

_PLANS_PATH: Final = "/quotas/plans"
_PLAN_PATH: Final = "/quotas/plans/{plan_id}"
_APPLY_PATH: Final = "/quotas/plans/{plan_id}/apply"


@router.post(_PLANS_PATH, **PLAN)
@requires(may_describe)
async def plan_quotas(request: Request) -> Response:
    """Say what would have to change for a document to hold; nothing is changed."""
    granted = granted_to(request)
    read_query(request.scope["query_string"], NO_PARAMETERS)
    command = await read_object(request, partial(_plan_command, granted))
    return await _answered(await _plans(request).make(command))


def _plan_command(granted: Granted, body: JsonObject) -> PlanCommand:
    read = read_plan_request(body, granted.caller.principal)
    return PlanCommand(granted.caller, read.wanted, read.scope, read.violations)


@router.get(_PLAN_PATH, **SHOW_PLAN)
@requires(may_describe)
async def show_plan(request: Request, plan_id: str) -> Response:
    """Show a plan again, as it was made."""
    read_query(request.scope["query_string"], NO_PARAMETERS)
    return await _answered(await _plans(request).plan(plan_id))


@router.post(_APPLY_PATH, **APPLY)
@requires(may_alter)
async def apply_plan(request: Request, plan_id: str) -> Response:
    """Do what was planned, if everything still is as it was then."""
    granted = granted_to(request)
    read_query(request.scope["query_string"], NO_PARAMETERS)
    command, force = await read_object(request, partial(_apply_command, request, granted, plan_id))
    services = services_of(request)
    applying = ApplyPlans(services.plans, services.alter, services.cluster)
    return await altered(request, command, applying.apply(command, plan_id, force=force))


def _apply_command(
    request: Request, granted: Granted, plan_id: str, body: JsonObject
) -> tuple[AlterCommand, bool]:
    read = read_apply_request(body)
    command = AlterCommand(
        caller=granted.caller,
        evidence=granted.evidence,
        request_id=request.state.request_id,
        alterations=(),
        wait=read.wait,
        wait_ms=read.wait_ms,
        reason=read.reason,
        action="apply_plan",
        violations=read.violations,
        key=read_key(request.headers, f"{_APPLY_PATH} {plan_id}", body),
        supersedes=read_superseded(request.headers),
    )
    return command, read.force


def _plans(request: Request) -> MakePlans:
    services = services_of(request)
    return MakePlans(services.describe, services.plans, services.cluster)


async def _answered(plan: KeptPlan) -> Response:
    return await off_loop(len(plan.changes), _answer, plan)


def _answer(plan: KeptPlan) -> Response:
    return JsonResponse(plan_json(plan))
