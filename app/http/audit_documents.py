"""Audit rows as JSON documents."""

from collections.abc import Mapping
from typing import Any

from app.domain.alterations import Values
from app.http.answers import entity_json, quota_value_json, refusal_json, values_json
from app.http.times import rfc3339
from app.service.audit_records import AuditRow


def audit_row_json(row: AuditRow) -> dict[str, Any]:
    """Return one row; ``plan`` is there only where one was applied, ``denied`` for denials only."""
    further = {"plan": row.plan, "denied": row.denied}
    return {
        "cluster_id": row.cluster_id,
        "alteration_id": row.alteration_id,
        "at": rfc3339(row.at),
        "principal": row.principal,
        "authentication": row.authentication,
        "client_address": row.client_address,
        "action": row.action,
        "entity": None if row.entity is None else entity_json(row.entity),
        "ops": None if row.ops is None else [_op(op) for op in row.ops],
        "before": _values(row.before),
        "after": _values(row.after),
        "outcome": row.outcome,
        "reason": row.reason,
        "request_id": row.request_id,
        "error": refusal_json(row.error),
        **{name: dict(value) for name, value in further.items() if value is not None},
    }


def _op(op: Mapping[str, Any]) -> dict[str, Any]:
    value = op.get("value")
    if isinstance(value, int | float):
        return {**op, "value": quota_value_json(float(value))}
    return dict(op)


def _values(values: Values | None) -> dict[str, Any] | None:
    return None if values is None else values_json(values)
