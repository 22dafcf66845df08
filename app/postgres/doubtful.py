"""Alterations that may yet be applied, or applied once more, although they are concluded."""

import json
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, text

from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity
from app.postgres.canonical import values_from_json
from app.postgres.event_records import audit_entity
from app.postgres.leases import Lease
from app.service.recovery.drift_ports import DoubtfulAlteration

_RECENT: Final = text(
    """
    select start.payload as start, ended.payload as ended, ended.verdict, ended.occurred_at
    from (
      select * from audit_event
      where verdict in ('refused', 'not_applied', 'unknown') and seq = 1
        and verdict <> 'applied' and event_type <> 'rejected'
        and at >= now() - interval '1 day' and occurred_at >= now() - interval '30 minutes'
      union all
      select * from audit_event
      where seq > 1 and event_type <> 'drift' and occurred_at >= now() - interval '30 minutes'
    ) as ended
    join audit_event as start on start.received_at = ended.received_at
      and start.alteration_id = ended.alteration_id and start.ordinal = ended.ordinal
      and start.seq = 0
    where start.cluster_id = :cluster_id
    order by ended.occurred_at desc, ended.seq desc
    """
)
"""A day is the longest that we look back for the start of what ended just now; the conditions on
`verdict` and `event_type` are those of an index."""


async def doubtful_rows(cluster_id: str, lease: Lease) -> Sequence[Row[Any]]:
    """Return the ends of the last 30 minutes that leave a doubt, newest first."""
    rows: Sequence[Row[Any]] = (
        await lease.connection.execute(_RECENT, {"cluster_id": cluster_id})
    ).all()
    return rows


def doubtful_alterations(
    rows: Sequence[Row[Any]], entities: frozenset[ClientQuotaEntity]
) -> Sequence[DoubtfulAlteration]:
    """Return what the rows say of these entities, once for each alteration."""
    found: dict[tuple[str, ClientQuotaEntity], DoubtfulAlteration] = {}
    for row in rows:
        start, ended = json.loads(row.start), json.loads(row.ended)
        if ClientQuotaEntity.of(start["entity"]) not in entities:
            continue
        one = _doubtful(start, ended, row)
        found.setdefault((one.alteration_id, one.alteration.entity), one)
    return list(found.values())


def _doubtful(start: Any, ended: Any, row: Row[Any]) -> DoubtfulAlteration:
    audited = audit_entity(start)
    before = values_from_json(ended["result"]["before"])
    return DoubtfulAlteration(
        alteration_id=start["alteration_id"],
        alteration=audited.alteration,
        before=audited.before if before is None else before,
        outcome=Outcome(row.verdict or Outcome.UNKNOWN),
        concluded_at=row.occurred_at,
    )
