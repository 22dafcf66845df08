"""Plans as JSON documents."""

from collections.abc import Mapping
from typing import Any

from app.domain.alterations import Op
from app.domain.plans import Conflict, Kept
from app.http.answers import entity_json, quota_value_json, values_json
from app.http.times import rfc3339
from app.service.plans.plan_records import ChangeWithImpact, KeptPlan


def plan_json(plan: KeptPlan) -> dict[str, Any]:
    """Return the answer to a request for a plan."""
    return {
        "plan_id": plan.plan_id,
        "cluster_id": plan.cluster_id,
        "author": plan.author,
        "owner": plan.owner,
        "prune": plan.prune,
        "adopt": plan.adopt,
        "scope": list(plan.scope),
        "created_at": rfc3339(plan.created_at),
        "expires_at": rfc3339(plan.expires_at),
        "base": plan.base,
        "changes": [_change(one) for one in plan.changes],
        "conflicts": [_conflict(one) for one in plan.conflicts],
        "kept": [_kept(one) for one in plan.kept],
    }


def _change(one: ChangeWithImpact) -> dict[str, Any]:
    change = one.change
    return {
        "entity": entity_json(change.alteration.entity),
        "ops": [_op(op) for op in change.alteration.ops],
        "before": values_json(change.before),
        "after": values_json(change.after),
        "impact": _plain(one.impact),
    }


def _op(op: Op) -> dict[str, Any]:
    if op.value is None:
        return {"key": op.key, "remove": True}
    return {"key": op.key, "value": quota_value_json(float(op.value))}


def _conflict(one: Conflict) -> dict[str, Any]:
    return {
        "entity": entity_json(one.entity),
        "key": one.key,
        "owner": one.owner,
        "held": quota_value_json(one.held),
        "current": quota_value_json(one.current),
        "proposed": quota_value_json(one.proposed),
    }


def _kept(one: Kept) -> dict[str, Any]:
    return {
        "entity": entity_json(one.entity),
        "key": one.key,
        "value": quota_value_json(one.value),
        "reason": one.reason.value,
    }


def _plain(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int() | float():
            return quota_value_json(float(value))
        case Mapping():
            return {name: _plain(member) for name, member in value.items()}
        case _:
            return value
