"""Plans in Postgres, as JSON texts: names may hold what Postgres' own JSON cannot."""

import asyncio
import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic import TypeAdapter

from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Holdings
from app.postgres.locks import HOLDINGS, OWNED, by_hash, holdings_of
from app.postgres.payload import is_record_id
from app.postgres.pool import Database
from app.service.ports.plans import MAX_OWN_PLAN_BYTES, MAX_OWN_PLANS, StoredPlan
from app.service.runtime.tasks import off_loop

_STORED_PLAN: Final = TypeAdapter(StoredPlan)


def plan_text(plan: StoredPlan) -> str:
    """Return a plan as JSON with NaN and the infinities; entities and Decimals keep their text."""
    return json.dumps({**_plain(plan), "rests_on": list(plan.rests_on.items())}, default=_plain)


def plan_of(stored: str) -> StoredPlan:
    """Return the plan that was written."""
    document = json.loads(stored)
    document["rests_on"] = {
        ClientQuotaEntity(tuple(map(tuple, entries))): values
        for (entries,), values in document["rests_on"]
    }
    return _STORED_PLAN.validate_python(document)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(value) if isinstance(value, Mapping) else str(value)


_KEEP: Final = """
    insert into quota_plan (plan_id, cluster_id, author, expires_at, plan)
    select %(plan_id)s, %(cluster_id)s, cast(%(author)s as text), %(expires_at)s, %(plan)s
    where (
      select count(*) < %(most)s and coalesce(sum(octet_length(plan)), 0) < %(most_bytes)s
      from quota_plan
      where expires_at > %(created_at)s and cluster_id = %(cluster_id)s and author = %(author)s)
    returning 1
    """

_PLAN: Final = (
    "select plan from quota_plan where plan_id = %(plan_id)s and cluster_id = %(cluster_id)s"
)

REMOVE_EXPIRED_PLANS: Final = """
    delete from quota_plan where plan_id in (
      select plan_id from quota_plan where expires_at <= clock_timestamp() - interval '1 day'
      order by expires_at limit %(number)s for update skip locked)
    returning 1
    """


class PostgresPlans:
    """The port ``PlanStore`` on Postgres; every method is one statement."""

    def __init__(self, database: Database) -> None:
        self._pool = database.querying
        self._within_s = database.patience.list_s

    async def holdings(
        self, cluster_id: str, owner: str, entities: Iterable[ClientQuotaEntity]
    ) -> Holdings:
        """See ``PlanStore``."""
        hashes = list(by_hash(set(entities)))
        values = {"cluster_id": cluster_id, "owner": owner, "hashes": hashes}
        rows = await self._pool.rows(HOLDINGS, values, within_s=self._within_s)
        return await off_loop(len(rows), holdings_of, rows)

    async def owned(self, cluster_id: str, owners: Collection[str] | None) -> Holdings:
        """See ``PlanStore``."""
        named = None if owners is None else [owner for owner in owners if owner.isprintable()]
        values = {"cluster_id": cluster_id, "owners": named}
        rows = await self._pool.rows(OWNED, values, within_s=self._within_s)
        return await off_loop(len(rows), holdings_of, rows)

    async def keep(self, plan: StoredPlan) -> bool:
        """See ``PlanStore``."""
        values = {
            "plan_id": uuid.UUID(plan.plan_id),
            "cluster_id": plan.cluster_id,
            "author": plan.author,
            "created_at": plan.created_at,
            "expires_at": plan.expires_at,
            "plan": await off_loop(len(plan.rests_on), plan_text, plan),
            "most": MAX_OWN_PLANS,
            "most_bytes": MAX_OWN_PLAN_BYTES,
        }
        return bool(await self._pool.rows(_KEEP, values, within_s=self._within_s))

    async def plan(self, cluster_id: str, plan_id: str) -> StoredPlan | None:
        """See ``PlanStore``."""
        if not is_record_id(plan_id):
            return None
        values = {"cluster_id": cluster_id, "plan_id": uuid.UUID(plan_id)}
        rows = await self._pool.rows(_PLAN, values, within_s=self._within_s)
        return await asyncio.to_thread(plan_of, rows[0].plan) if rows else None
