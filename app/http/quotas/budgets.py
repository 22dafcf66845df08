"""``GET /quotas/budgets``: how full the policy's budgets are."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from pydantic import MISSING, Field

from app.domain.budgets import BudgetRow, Names, budget_rows
from app.http.guards import actor_of, may_describe, services_of
from app.http.models import (
    BudgetShare,
    Entity,
    JsonResponse,
    Number,
    ResponseModel,
    StoredValue,
)
from app.http.query_params import Flag, QueryParameters, StrictQuery
from app.http.responses import answers
from app.http.route import feature_router
from app.service.runtime.tasks import off_loop

router = feature_router("quotas")

_NAMED: Final = 100
"""So many entities without a value a row names at most."""


class BudgetParameters(QueryParameters):
    """The query of ``GET /quotas/budgets``."""

    explain: Flag = False
    """Say of each row who counts, who holds most, and who has no value."""


Counted = Annotated[
    str | list[str] | MISSING,
    Field(
        description="With `explain`: a prefix or names, as in the policy; only where it says so."
    ),
]


class Budget(ResponseModel):
    """A key of a budget."""

    name: str
    key: str
    limit: Number
    overbooking: Number
    """The sum may be at most `limit` times this."""
    sum: StoredValue
    """What the stored values of all matching entities add up to."""
    entities: Annotated[int, Field(ge=0)]
    """How many stored entities match."""
    unlimited: Annotated[int, Field(ge=0)]
    """How many of them lack the key, and count as nothing."""
    users: Counted = MISSING
    client_ids: Annotated[Counted, Field(serialization_alias="client-ids")] = MISSING
    largest: list[BudgetShare] | MISSING = MISSING
    """With `explain`: the largest values, at most five."""
    without_value: list[Entity] | MISSING = MISSING
    """With `explain`: those that lack the key, the first hundred."""


class Budgets(ResponseModel):
    """The budgets of the policy, in its order, then by key."""

    rows: list[Budget]


@router.get(
    "/quotas/budgets",
    summary="Show how full the budgets are",
    dependencies=[Depends(may_describe)],
    responses=answers(Budgets, "A row for each key of each budget.", "budgets"),
)
async def list_budgets(
    request: Request, query: Annotated[BudgetParameters, Depends(StrictQuery(BudgetParameters))]
) -> Response:
    """Report what the quotas of each budget add up to now; no row where the policy has none."""
    budgets = services_of(request).policy.budgets
    if not budgets:
        return JsonResponse(Budgets(rows=[]))
    quotas = (await actor_of(request).describe_now()).quotas
    found = await off_loop(len(quotas), list, budget_rows(budgets, quotas))
    rows = [_row(each) | (_explanation(each) if query.explain else {}) for each in found]
    return JsonResponse(Budgets.model_validate({"rows": rows}))


def _row(found: BudgetRow) -> dict[str, Any]:
    return {
        "name": found.budget.name,
        "key": found.key,
        "limit": found.budget.limits[found.key],
        "overbooking": found.budget.overbooking,
        "sum": found.sum,
        "entities": found.entities,
        "unlimited": found.unlimited,
    }


def _explanation(found: BudgetRow) -> dict[str, Any]:
    budget = found.budget
    return {
        **_counted("users", budget.users),
        **_counted("client_ids", budget.client_ids),
        "largest": [{"entity": entity, "value": value} for entity, value in found.largest],
        "without_value": found.without_value[:_NAMED],
    }


def _counted(member: str, names: Names | None) -> dict[str, str | Sequence[str]]:
    if names is None:
        return {}
    return {member: names if isinstance(names, str) else sorted(names)}
