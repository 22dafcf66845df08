"""Plans as JSON texts, and back: names may hold what Postgres' own JSON cannot."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Conflict, DesiredQuota, Kept, PlannedChange, WhyKept
from app.domain.validation import exact_float
from app.postgres.canonical import (
    canonical_json,
    number_to_json,
    op_to_json,
    ops_from_json,
    values_from_json,
    values_to_json,
)
from app.service.plans.plan_records import ChangeWithImpact, KeptPlan

_NUMBERS = ("held", "current", "proposed")


def plan_text(plan: KeptPlan) -> str:
    """Return everything of a plan that has no column."""
    return canonical_json(
        {
            "prune": plan.prune,
            "adopt": plan.adopt,
            "scope": list(plan.scope),
            "changes": [_change_to_json(one) for one in plan.changes],
            "conflicts": [_conflict_to_json(one) for one in plan.conflicts],
            "kept": [
                {
                    "entity": one.entity.as_dict(),
                    "key": one.key,
                    "value": number_to_json(one.value),
                    "reason": one.reason.value,
                }
                for one in plan.kept
            ],
            "rests_on": [
                [entity.as_dict(), {key: _number(value) for key, value in values.items()}]
                for entity, values in plan.rests_on.items()
            ],
        }
    )


def document_text(document: Sequence[DesiredQuota]) -> str:
    """Return what was desired, each value as the float64 that it means."""
    return canonical_json(
        {"quotas": [{"entity": one.entity.as_dict(), "values": _desired(one)} for one in document]}
    )


def kept_plan(document: Mapping[str, Any], **columns: Any) -> KeptPlan:
    """Return a plan from its text and its columns."""
    return KeptPlan(
        prune=document["prune"],
        adopt=document["adopt"],
        scope=tuple(document["scope"]),
        changes=tuple(_change_from_json(one) for one in document["changes"]),
        conflicts=tuple(_conflict_from_json(one) for one in document["conflicts"]),
        kept=tuple(
            Kept(
                ClientQuotaEntity.of(one["entity"]),
                one["key"],
                float(one["value"]),
                WhyKept(one["reason"]),
            )
            for one in document["kept"]
        ),
        rests_on={
            ClientQuotaEntity.of(entity): {
                key: None if value is None else float(value) for key, value in values.items()
            }
            for entity, values in document["rests_on"]
        },
        **columns,
    )


def _change_to_json(one: ChangeWithImpact) -> dict[str, Any]:
    change = one.change
    return {
        "entity": change.alteration.entity.as_dict(),
        "ops": [op_to_json(op) for op in change.alteration.ops],
        "before": values_to_json(change.before),
        "after": values_to_json(change.after),
        "holders": dict(change.holders),
        "impact": _plain(one.impact),
    }


def _change_from_json(document: Mapping[str, Any]) -> ChangeWithImpact:
    entity = ClientQuotaEntity.of(document["entity"])
    change = PlannedChange(
        ClientQuotaAlteration(entity, ops_from_json(document["ops"])),
        values_from_json(document["before"]) or {},
        values_from_json(document["after"]) or {},
        document["holders"],
    )
    return ChangeWithImpact(change, document["impact"])


def _conflict_to_json(one: Conflict) -> dict[str, Any]:
    numbers = {name: number_to_json(getattr(one, name)) for name in _NUMBERS}
    return {"entity": one.entity.as_dict(), "key": one.key, "owner": one.owner, **numbers}


def _conflict_from_json(document: Mapping[str, Any]) -> Conflict:
    return Conflict(
        ClientQuotaEntity.of(document["entity"]),
        document["key"],
        document["owner"],
        *(float(document[name]) for name in _NUMBERS),
    )


def _desired(one: DesiredQuota) -> dict[str, Any]:
    exact = {
        key: value if isinstance(value, float) else exact_float(value)
        for key, value in one.values.items()
    }
    return {
        key: number_to_json(float(one.values[key]) if value is None else value)
        for key, value in exact.items()
    }


def _number(value: float | None) -> int | float | str | None:
    return None if value is None else number_to_json(value)


def _plain(value: Any) -> Any:
    match value:
        case float():
            return number_to_json(value)
        case Mapping():
            return {name: _plain(member) for name, member in value.items()}
        case _:
            return value
