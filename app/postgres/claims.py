"""Claims of recovery: what has no known outcome and nobody works on, as many as are wanted."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Row, text

from app.postgres.canonical import values_from_json
from app.postgres.copying import SECONDS_PER_ROW
from app.postgres.event_records import audit_entity
from app.postgres.leases import Lease
from app.service.recovery.recovery_ports import OpenAlteration

_CLAIM: Final = text(
    """
    with due as (
      select cluster_id, entity_hash from entity_slot as slot
      where cluster_id = :cluster_id
        and (claimed_until is null or claimed_until < now() or claimed_by = :owner)
        and (not observed or handed_over_by <= now() - make_interval(secs => :final_after))
        and (state = 'quarantined' or handed_over_by < now() - interval '1 min'
          or handed_over_by < now() - interval '2 s' and not exists (
            select from worker
            where worker.cluster_id = slot.cluster_id and worker.owner = slot.owner
              and seen_at > now() - interval '5 s'))
      order by handed_over_by limit :number
      for update skip locked
    )
    update entity_slot as slot
    set claimed_by = :owner, claimed_until = now() + interval '15 s'
    from due
    where slot.cluster_id = due.cluster_id and slot.entity_hash = due.entity_hash
    """
)

_CLAIMED: Final = text(
    """
    select slot.alteration_id, slot.cluster_id, broker_id, state, observed,
      story.intent, story.outcome,
      extract(epoch from clock_timestamp() - handed_over_by)::float8 as age_s
    from entity_slot as slot
    cross join lateral (
      select max(payload) filter (where seq = 0) as intent,
        max(payload) filter (where seq = 1) as outcome
      from audit_event as event
      where event.received_at = slot.received_at and event.alteration_id = slot.alteration_id
        and event.ordinal = slot.ordinal and event.seq in (0, 1)
    ) as story
    where slot.cluster_id = :cluster_id and claimed_by = :owner
      and claimed_until = now() + interval '15 s'
      and story.intent is not null
    order by slot.received_at, slot.alteration_id, slot.ordinal
    """
)
"""``now()`` is the same moment throughout a transaction: these are the claims just made."""


async def claim_slots(
    cluster_id: str, owner: str, number: int, final_after_s: float, lease: Lease
) -> Sequence[Row[Any]]:
    """Claim at most that many slots of a cluster; return them with what the log has of them."""
    claimant = {"cluster_id": cluster_id, "owner": owner}
    values = {**claimant, "number": number, "final_after": final_after_s}
    claimed = (await lease.connection.execute(_CLAIM, values)).rowcount
    if not claimed:
        return ()
    await lease.extend(claimed * SECONDS_PER_ROW)
    rows: Sequence[Row[Any]] = (await lease.connection.execute(_CLAIMED, claimant)).all()
    return rows


def open_alterations(rows: Sequence[Row[Any]]) -> Sequence[OpenAlteration]:
    """Return what was claimed as domain values."""
    return [_open_alteration(row) for row in rows]


def _open_alteration(row: Row[Any]) -> OpenAlteration:
    """What the owner knew last of the values before is better than what the intent says."""
    audited = audit_entity(json.loads(row.intent))
    if row.outcome is not None:
        before = values_from_json(json.loads(row.outcome)["result"]["before"])
        audited = replace(audited, before=audited.before if before is None else before)
    return OpenAlteration(
        alteration_id=str(row.alteration_id),
        audited=audited,
        cluster_id=row.cluster_id,
        broker_id=row.broker_id,
        age_s=row.age_s,
        quarantined=row.state == "quarantined",
        observed=row.observed,
    )
