"""Plans in Postgres, as JSON texts: names may hold what Postgres' own JSON cannot."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, Final

from sqlalchemy import Row, text

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Conflict, DesiredQuota, Holdings, PlannedChange, Unpruned, WhyKept
from app.domain.validation import exact_float
from app.postgres.locks import HOLDINGS, by_hash, holdings_of
from app.postgres.payload import (
    canonical_json,
    number_to_json,
    op_to_json,
    ops_from_json,
    values_from_json,
    values_to_json,
)
from app.postgres.pool import Database
from app.service.ports.plans import MAX_OWN_PLAN_BYTES, MAX_OWN_PLANS, StoredPlan
from app.service.runtime.tasks import off_loop

_NUMBERS = ("held", "current", "proposed")


def plan_text(plan: StoredPlan) -> str:
    """Return everything of a plan that has no column."""
    return canonical_json(
        {
            "prune": plan.prune,
            "adopt": plan.adopt,
            "scope": list(plan.scope),
            "changes": [_change_to_json(entry) for entry in plan.changes],
            "conflicts": [_conflict_to_json(conflict) for conflict in plan.conflicts],
            "kept": [
                {
                    "entity": entry.entity.as_dict(),
                    "key": entry.key,
                    "value": number_to_json(entry.value),
                    "reason": entry.reason.value,
                }
                for entry in plan.unpruned
            ],
            "rests_on": [
                [entity.as_dict(), {key: _number(value) for key, value in values.items()}]
                for entity, values in plan.rests_on.items()
            ],
        }
    )


def document_text(document: Sequence[DesiredQuota]) -> str:
    """Return what was desired, each value as the float64 that it means."""
    quotas = [
        {"entity": quota.entity.as_dict(), "values": _values_json(quota)} for quota in document
    ]
    return canonical_json({"quotas": quotas})


def plan_of(document: Mapping[str, Any], **columns: Any) -> StoredPlan:
    """Return a plan from its text and its columns."""
    return StoredPlan(
        prune=document["prune"],
        adopt=document["adopt"],
        scope=tuple(document["scope"]),
        changes=tuple(_change_from_json(change) for change in document["changes"]),
        conflicts=tuple(_conflict_from_json(conflict) for conflict in document["conflicts"]),
        unpruned=tuple(
            Unpruned(
                ClientQuotaEntity.of(entry["entity"]),
                entry["key"],
                float(entry["value"]),
                WhyKept(entry["reason"]),
            )
            for entry in document["kept"]
        ),
        rests_on={
            ClientQuotaEntity.of(entity): {
                key: None if value is None else float(value) for key, value in values.items()
            }
            for entity, values in document["rests_on"]
        },
        **columns,
    )


def _change_to_json(change: PlannedChange) -> dict[str, Any]:
    return {
        "entity": change.alteration.entity.as_dict(),
        "ops": [op_to_json(op) for op in change.alteration.ops],
        "before": values_to_json(change.before),
        "after": values_to_json(change.after),
        "holders": dict(change.holders),
        "impact": _plain(change.impact),
    }


def _change_from_json(document: Mapping[str, Any]) -> PlannedChange:
    entity = ClientQuotaEntity.of(document["entity"])
    return PlannedChange(
        ClientQuotaAlteration(entity, ops_from_json(document["ops"])),
        values_from_json(document["before"]) or {},
        values_from_json(document["after"]) or {},
        document["holders"],
        document["impact"],
    )


def _conflict_to_json(conflict: Conflict) -> dict[str, Any]:
    numbers = {name: number_to_json(getattr(conflict, name)) for name in _NUMBERS}
    entity = conflict.entity.as_dict()
    return {"entity": entity, "key": conflict.key, "owner": conflict.owner, **numbers}


def _conflict_from_json(document: Mapping[str, Any]) -> Conflict:
    return Conflict(
        ClientQuotaEntity.of(document["entity"]),
        document["key"],
        document["owner"],
        *(float(document[name]) for name in _NUMBERS),
    )


def _values_json(desired: DesiredQuota) -> dict[str, Any]:
    exact = {
        key: value if isinstance(value, float) else exact_float(value)
        for key, value in desired.values.items()
    }
    return {
        key: number_to_json(float(desired.values[key]) if value is None else value)
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


_KEEP: Final = text(
    """
    insert into quota_plan
      (plan_id, cluster_id, author, owner, base, created_at, expires_at, plan, document)
    select :plan_id, :cluster_id, cast(:author as text), :owner, :base, :created_at, :expires_at,
      :plan, :document
    where (
      select count(*) < :most
        and coalesce(sum(octet_length(plan) + octet_length(document)), 0) < :most_bytes
      from quota_plan
      where expires_at > :created_at and cluster_id = :cluster_id and author = :author)
    returning 1
    """
)

_PLAN: Final = text(
    """
    select plan_id::text, cluster_id, author, owner, base, created_at, expires_at, plan
    from quota_plan where plan_id = :plan_id and cluster_id = :cluster_id
    """
)

REMOVE_EXPIRED_PLANS: Final = text(
    """
    delete from quota_plan where plan_id in (
      select plan_id from quota_plan where expires_at <= clock_timestamp() - interval '1 day'
      order by expires_at limit :number for update skip locked)
    returning 1
    """
)


class PostgresPlans:
    """The port ``PlanStore`` on Postgres; every method is one statement."""

    def __init__(self, database: Database) -> None:
        self._pool = database.querying
        self._within_s = database.patience.list_s

    async def holdings(
        self, cluster_id: str, owner: str, entities: Iterable[ClientQuotaEntity]
    ) -> Holdings:
        """See ``PlanStore``.

        Raises:
            NotSentError: Postgres does not answer.
        """
        hashes = list(by_hash(set(entities)))
        values = {"cluster_id": cluster_id, "owner": owner, "hashes": hashes}
        rows = await self._pool.rows(HOLDINGS, values, within_s=self._within_s)
        return await off_loop(len(rows), holdings_of, rows)

    async def keep(self, plan: StoredPlan) -> bool:
        """See ``PlanStore``.

        Raises:
            NotSentError: Not stored, or not for certain.
        """
        values = await off_loop(len(plan.document) + len(plan.rests_on), _columns, plan)
        return bool(await self._pool.rows(_KEEP, values, within_s=self._within_s))

    async def plan(self, cluster_id: str, plan_id: str) -> StoredPlan | None:
        """See ``PlanStore``.

        Raises:
            NotSentError: Postgres does not answer.
        """
        wanted = _uuid(plan_id)
        if wanted is None:
            return None
        values = {"cluster_id": cluster_id, "plan_id": wanted}
        rows = await self._pool.rows(_PLAN, values, within_s=self._within_s)
        return await asyncio.to_thread(_plan_from_row, rows[0]) if rows else None


def _columns(plan: StoredPlan) -> dict[str, Any]:
    return {
        "plan_id": uuid.UUID(plan.plan_id),
        "cluster_id": plan.cluster_id,
        "author": plan.author,
        "owner": plan.owner,
        "base": plan.base,
        "created_at": plan.created_at,
        "expires_at": plan.expires_at,
        "plan": plan_text(plan),
        "document": document_text(plan.document),
        "most": MAX_OWN_PLANS,
        "most_bytes": MAX_OWN_PLAN_BYTES,
    }


def _plan_from_row(row: Row[Any]) -> StoredPlan:
    common = {name: getattr(row, name) for name in ("plan_id", "cluster_id", "author", "owner")}
    return plan_of(
        json.loads(row.plan),
        **common,
        base=row.base,
        created_at=row.created_at.astimezone(UTC),
        expires_at=row.expires_at.astimezone(UTC),
    )


def _uuid(plan_id: str) -> uuid.UUID | None:
    try:
        parsed = uuid.UUID(plan_id)
    except ValueError:
        return None
    return parsed if str(parsed) == plan_id else None
