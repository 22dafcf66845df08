"""What a conclusion does to slots, states and keys, in one statement."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text

from app.domain.alterations import AlterationResult, Outcome
from app.postgres.leases import Lease
from app.postgres.states import entity_hash, entity_text, values_text

_CLOSE: Final = text(
    """
    with freed as (
      delete from entity_slot
      where alteration_id = :alteration_id and ordinal = any(cast(:definite as smallint[]))
      returning cluster_id
    ), quarantined as (
      update entity_slot set state = 'quarantined',
        handed_over_by = greatest(taken_at, least(handed_over_by, :sent_at, clock_timestamp()))
      where alteration_id = :alteration_id and ordinal = any(cast(:unknown as smallint[]))
    ), renewed as (
      update idempotency set expires_at = clock_timestamp() + interval '24 hours'
      where alteration_id = :alteration_id
    )
    insert into entity_state as known
      (cluster_id, entity_hash, entity, "values", version, alteration_id, updated_at)
    select cluster_id, decode(entity_hash, 'hex'), entity, "values", 1, :alteration_id,
      clock_timestamp()
    from (select cluster_id from freed limit 1) as cluster,
      json_to_recordset(cast(:seen as json)) as seen(entity_hash text, entity text, "values" text)
    order by entity_hash
    on conflict (cluster_id, entity_hash) do update set
      "values" = excluded."values",
      version = known.version + 1,
      alteration_id = excluded.alteration_id,
      updated_at = excluded.updated_at
    """
)
"""Without a slot there is no state: then somebody else has concluded.

The states are one text: psycopg writes arrays of JSON ten times slower.
"""

SEEN: Final = frozenset({Outcome.APPLIED, Outcome.OBSERVED_OTHER})
"""Outcomes whose ``after`` is what the cluster holds now."""


def closing(
    alteration_id: str, results: Mapping[int, AlterationResult], sent_at: datetime | None = None
) -> dict[str, Any]:
    """Return the parameters of ``close_slots``.

    Args:
        alteration_id: Whose slots.
        results: By ordinal; what is unknown keeps its slot, in quarantine.
        sent_at: When the bytes were handed over; null leaves the latest possible moment.
    """
    seen = [
        {
            "entity_hash": entity_hash(one.entity).hex(),
            "entity": entity_text(one.entity),
            "values": values_text(one.after),
        }
        for one in results.values()
        if one.outcome in SEEN and one.after is not None
    ]
    return {
        "alteration_id": UUID(alteration_id),
        "definite": [key for key, one in results.items() if one.outcome is not Outcome.UNKNOWN],
        "unknown": [key for key, one in results.items() if one.outcome is Outcome.UNKNOWN],
        "sent_at": sent_at,
        "seen": json.dumps(seen),
    }


async def close_slots(parameters: Mapping[str, Any], lease: Lease) -> None:
    """Free slots or quarantine them, keep the states that were seen, renew the key's life."""
    await lease.connection.execute(_CLOSE, parameters)
