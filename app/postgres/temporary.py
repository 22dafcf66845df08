"""Values that end by themselves: what is due, what there is, and another time for it.

The rows are written and removed with the outcomes of alterations (``change_temporary`` of the
database), so whoever concludes one does it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, NotFoundError, Retry
from app.domain.expiry import TemporaryValue
from app.postgres.audit_log import append
from app.postgres.locks import entity_hash
from app.postgres.payload import expiry_event, is_record_id
from app.postgres.pool import SECONDS_PER_ROW, Database, Lease, Row
from app.service.ports.temporary import Asked, Pending
from app.service.runtime.tasks import merge_calls, off_loop

_COLUMNS: Final = """
    entity, key, alteration_id, value, returns_to, expires_at, principal, reason
    """

_CLAIM: Final = """
    with due as (
      select cluster_id, entity_hash, key from temporary_value
      where cluster_id = %(cluster_id)s and expires_at <= clock_timestamp()
        and (claimed_until is null or claimed_until < clock_timestamp()
          or claimed_by = %(owner)s)
      order by expires_at limit %(number)s
      for update skip locked
    )
    update temporary_value as held
    set claimed_by = %(owner)s, claimed_until = clock_timestamp() + make_interval(secs => %(secs)s)
    from due
    where held.cluster_id = due.cluster_id and held.entity_hash = due.entity_hash
      and held.key = due.key
    returning held.alteration_id
    """

_CLAIMED_FOR_S: Final = 5.0
"""Then others try: whoever claimed it may be gone."""

_OF_ALTERATIONS: Final = f"""
    select {_COLUMNS} from temporary_value
    where cluster_id = %(cluster_id)s and alteration_id = any(cast(%(ids)s as uuid[]))
    """  # noqa: S608 - constants

_PENDING: Final = """
    select cluster_id, count(*) as number,
      greatest(0, extract(epoch from clock_timestamp() - min(expires_at)))::float8 as late_s,
      coalesce(sum(hashtextextended(concat(entity_hash, key, alteration_id, expires_at), 0)), 0)
        as fingerprint
    from temporary_value where cluster_id = any(%(clusters)s)
    group by cluster_id
    """

_NONE_PENDING: Final = Pending(0, 0.0, 0)

_VALUES: Final = f"""
    select {_COLUMNS} from temporary_value
    where cluster_id = %(cluster_id)s
      and (%(hashes)s::bytea[] is null or entity_hash = any(cast(%(hashes)s as bytea[])))
    """  # noqa: S608 - constants

_HELD: Final = f"""
    select entity_hash, {_COLUMNS} from temporary_value
    where cluster_id = %(cluster_id)s and alteration_id = %(alteration_id)s
    order by entity_hash, key for update
    """  # noqa: S608 - constants

_HOLDER: Final = """
    select alteration_id from quota_entity
    where cluster_id = %(cluster_id)s and entity_hash = any(cast(%(hashes)s as bytea[]))
      and alteration_id is not null
    limit 1
    """

_CHANGE: Final = """
    update temporary_value set expires_at = %(expires_at)s, claimed_by = null, claimed_until = null
    where cluster_id = %(cluster_id)s and alteration_id = %(alteration_id)s
    """

_REMOVE: Final = """
    delete from temporary_value
    where cluster_id = %(cluster_id)s and alteration_id = %(alteration_id)s
    """

_NOTHING: Final = "Nothing of this alteration is for a time: see GET /quotas/temporary."
_BUSY: Final = (
    "An alteration of one of these entities is in flight; nothing was changed. Try again."
)


class PostgresTemporary:
    """The port ``TemporaryJournal`` on Postgres.

    What is pending in all clusters of a process is asked for in one statement.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pendings = merge_calls(self._pending)

    async def claim_due(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[TemporaryValue]:
        """See ``TemporaryJournal``."""
        wanted = {"cluster_id": cluster_id, "owner": owner, "number": limit, "secs": _CLAIMED_FOR_S}

        async def claim(lease: Lease) -> Sequence[Row]:
            claimed = await lease.rows(_CLAIM, wanted)
            if not claimed:
                return ()
            await lease.extend(len(claimed) * SECONDS_PER_ROW)
            ids = list({row.alteration_id for row in claimed})
            return await lease.rows(_OF_ALTERATIONS, {"cluster_id": cluster_id, "ids": ids})

        rows = await self._database.recovering.run(claim)
        return await off_loop(len(rows), list, map(_value, rows))

    async def pending(self, cluster_id: str) -> Pending:
        """See ``TemporaryJournal``."""
        return await self._pendings.submit(cluster_id)

    async def _pending(self, clusters: Sequence[str]) -> Sequence[Pending]:
        rows = await self._database.recovering.rows(_PENDING, {"clusters": list(set(clusters))})
        found = {
            row.cluster_id: Pending(row.number, row.late_s, int(row.fingerprint)) for row in rows
        }
        return [found.get(cluster_id, _NONE_PENDING) for cluster_id in clusters]

    async def values(
        self, cluster_id: str, entities: Iterable[ClientQuotaEntity] | None = None
    ) -> Sequence[TemporaryValue]:
        """See ``TemporaryJournal``."""
        hashes = None if entities is None else [entity_hash(entity) for entity in entities]
        wanted = {"cluster_id": cluster_id, "hashes": hashes}
        patience = self._database.patience
        rows = await self._database.querying.rows(_VALUES, wanted, within_s=patience.list_s)
        return await off_loop(len(rows), list, map(_value, rows))

    async def change_expiry(
        self, cluster_id: str, alteration_id: str, expires_at: datetime | None, change: Asked
    ) -> Sequence[TemporaryValue]:
        """See ``TemporaryJournal``."""
        if not is_record_id(alteration_id):
            raise NotFoundError(_NOTHING)
        wanted = {
            "cluster_id": cluster_id,
            "alteration_id": UUID(alteration_id),
            "expires_at": expires_at,
        }
        return await self._database.writing.run(partial(_change, wanted, change))


async def _change(wanted: dict[str, Any], change: Asked, lease: Lease) -> Sequence[TemporaryValue]:
    """Change what is pending: its end takes the entities' locks first, and these rows then."""
    rows = await lease.rows(_HELD, wanted)
    if not rows:
        raise NotFoundError(_NOTHING)
    await lease.extend(len(rows) * SECONDS_PER_ROW)
    hashes = list({row.entity_hash for row in rows})
    if holders := await lease.rows(_HOLDER, {**wanted, "hashes": hashes}):
        raise EntityBusyError(
            _BUSY,
            retry=Retry.SAFE,
            alteration_id=str(holders[0].alteration_id),
            retry_after_s=1,
        )
    expires_at, alteration_id = wanted["expires_at"], str(wanted["alteration_id"])
    await lease.rows(_REMOVE if expires_at is None else _CHANGE, wanted)
    event = expiry_event(alteration_id, change.caller, change.request_id, expires_at)
    await append([event], lease)
    values = map(_value, rows)
    return [each if expires_at is None else replace(each, expires_at=expires_at) for each in values]


def _value(row: Row) -> TemporaryValue:
    return TemporaryValue(
        alteration_id=str(row.alteration_id),
        entity=ClientQuotaEntity.of(json.loads(row.entity)),
        key=row.key,
        value=row.value,
        returns_to=row.returns_to,
        expires_at=row.expires_at.astimezone(UTC),
        principal=row.principal,
        reason=row.reason,
    )
