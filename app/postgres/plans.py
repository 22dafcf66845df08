"""Plans in Postgres: kept until a day after they expire."""

import asyncio
import json
import uuid
from collections.abc import Iterable
from datetime import UTC
from functools import partial
from typing import Any, Final

from sqlalchemy import Row, text

from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Holdings
from app.postgres.copying import MANY
from app.postgres.database import Database
from app.postgres.leases import Lease
from app.postgres.plan_documents import document_text, kept_plan, plan_text
from app.postgres.plan_ownership import holdings_of, read_holdings
from app.service.plans.plan_records import MAX_PLAN_BYTES_OF_ONE, MAX_PLANS_OF_ONE, KeptPlan

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
    """
)

_PLAN: Final = text(
    """
    select plan_id::text, cluster_id, author, owner, base, created_at, expires_at, plan
    from quota_plan where plan_id = :plan_id and cluster_id = :cluster_id
    """
)

_REMOVE_EXPIRED: Final = text(
    """
    delete from quota_plan where plan_id in (
      select plan_id from quota_plan where expires_at <= clock_timestamp() - interval '1 day'
      order by expires_at limit :number for update skip locked)
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
        work = partial(read_holdings, cluster_id, owner, tuple(entities))
        rows = await self._pool.run(work, within_s=self._within_s)
        if len(rows) < MANY:
            return holdings_of(rows)
        return await asyncio.to_thread(holdings_of, rows)

    async def keep(self, plan: KeptPlan) -> bool:
        """See ``PlanStore``.

        Raises:
            NotSentError: Not kept, or not known to be.
        """
        many = len(plan.document) + len(plan.rests_on) >= MANY
        values = await asyncio.to_thread(_columns, plan) if many else _columns(plan)
        return await self._pool.run(partial(_keep, values), within_s=self._within_s)

    async def plan(self, cluster_id: str, plan_id: str) -> KeptPlan | None:
        """See ``PlanStore``.

        Raises:
            NotSentError: Postgres does not answer.
        """
        wanted = _uuid(plan_id)
        if wanted is None:
            return None
        row = await self._pool.run(partial(_find, cluster_id, wanted), within_s=self._within_s)
        return None if row is None else await asyncio.to_thread(_kept, row)


async def remove_expired_plans(number: int, lease: Lease) -> int:
    """Remove at most that many plans that expired a day ago; return how many there were."""
    removed: int = (await lease.connection.execute(_REMOVE_EXPIRED, {"number": number})).rowcount
    return removed


async def _keep(values: dict[str, Any], lease: Lease) -> bool:
    bounds = {"most": MAX_PLANS_OF_ONE, "most_bytes": MAX_PLAN_BYTES_OF_ONE}
    return (await lease.connection.execute(_KEEP, {**values, **bounds})).rowcount == 1


async def _find(cluster_id: str, plan_id: uuid.UUID, lease: Lease) -> Row[Any] | None:
    wanted = {"cluster_id": cluster_id, "plan_id": plan_id}
    return (await lease.connection.execute(_PLAN, wanted)).first()


def _columns(plan: KeptPlan) -> dict[str, Any]:
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
    }


def _kept(row: Row[Any]) -> KeptPlan:
    common = {name: getattr(row, name) for name in ("plan_id", "cluster_id", "author", "owner")}
    return kept_plan(
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
