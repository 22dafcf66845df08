"""Findings of recovery, recorded for many entities of many alterations at once."""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import text

from app.domain.alterations import AlterationResult
from app.postgres.closing import SEEN
from app.postgres.copying import MANY, SECONDS_PER_ROW, copy_rows, log_time
from app.postgres.keys import free_key_if_unused
from app.postgres.later_events import Story, by_column, recovery_row, stories
from app.postgres.leases import Lease
from app.postgres.states import entity_text, values_text
from app.service.recovery.recovery_ports import Place, Recovered

_HOLD: Final = text(
    """
    select slot.alteration_id::text, slot.ordinal, slot.cluster_id,
      encode(slot.entity_hash, 'hex') as entity_hash, slot.observed
    from unnest(cast(:alteration_ids as uuid[]), cast(:ordinals as smallint[]))
      as wanted(alteration_id, ordinal)
    join entity_slot as slot
      on slot.alteration_id = wanted.alteration_id and slot.ordinal = wanted.ordinal
    order by slot.cluster_id, slot.entity_hash for update of slot
    """
)
"""In the order in which everybody takes slots, so that nobody waits in a circle."""

_OBSERVED: Final = text(
    """
    update entity_slot as slot set observed = true, claimed_by = null, claimed_until = null
    from unnest(cast(:alteration_ids as uuid[]), cast(:ordinals as smallint[]))
      as wanted(alteration_id, ordinal)
    where slot.alteration_id = wanted.alteration_id and slot.ordinal = wanted.ordinal
    """
)

_FREE: Final = text(
    """
    with freed as (
      delete from entity_slot as slot
      using unnest(cast(:alteration_ids as uuid[]), cast(:ordinals as smallint[]))
        as wanted(alteration_id, ordinal)
      where slot.alteration_id = wanted.alteration_id and slot.ordinal = wanted.ordinal
    ), renewed as (
      update idempotency set expires_at = clock_timestamp() + interval '24 hours'
      where alteration_id = any(cast(:alteration_ids as uuid[]))
    )
    insert into entity_state as known
      (cluster_id, entity_hash, entity, "values", version, alteration_id, updated_at)
    select cluster_id, decode(entity_hash, 'hex'), entity, "values", 1, alteration_id,
      clock_timestamp()
    from json_to_recordset(cast(:seen as json)) as seen(cluster_id text, entity_hash text,
      entity text, "values" text, alteration_id uuid)
    order by cluster_id, entity_hash
    on conflict (cluster_id, entity_hash) do update set
      "values" = excluded."values",
      version = known.version + 1,
      alteration_id = excluded.alteration_id,
      updated_at = excluded.updated_at
    """
)


class _Slot(NamedTuple):
    """A slot that this transaction has locked; the hash is in hexadecimal digits."""

    cluster_id: str
    entity_hash: str
    observed: bool


Slots = Mapping[Place, _Slot]


async def record_found(recovered: Sequence[Recovered], lease: Lease) -> Mapping[Place, str]:
    """Record findings, one for each entity; return why some were left as they are.

    The slots come first: where somebody else has concluded meanwhile, that is visible once they
    are locked.
    """
    await lease.extend(len(recovered) * SECONDS_PER_ROW)
    found = {one.place: one for one in recovered}
    slots = await _hold(found, lease)
    told = {(one.alteration_id, one.ordinal): one for one in await stories(found, lease)}
    left = {place: why for place, one in found.items() if (why := _objection(one, told))}
    new = [one for place, one in found.items() if place not in left]
    new = [one for one in new if _is_news(one, told[one.place], slots)]
    if new:
        await log_time(lease)
        await _close([one for one in new if one.final], slots, lease)
        await _keep_observed([one.place for one in new if not one.final], lease)
        await copy_rows(lease, (recovery_row(told[one.place], one) for one in new), len(new))
        await _free_keys([one for one in new if one.final], lease)
    return left


async def _hold(places: Collection[Place], lease: Lease) -> Slots:
    rows = await lease.connection.execute(_HOLD, by_column(places))
    return {(alteration_id, ordinal): _Slot(*rest) for alteration_id, ordinal, *rest in rows}


def _objection(one: Recovered, told: Mapping[Place, Story]) -> str | None:
    """Say why the log does not take this finding, or null: it does, or has it already."""
    story = told.get(one.place)
    if story is None:
        return f"the log has no entity {one.ordinal} of {one.alteration_id}"
    known = _known_outcome(story)
    if known is None or not one.final or known == one.result.outcome:
        return None
    return (
        f"the log says of {one.alteration_id}: entity {one.ordinal} is already {known}, "
        f"not {one.result.outcome.value}"
    )


def _is_news(one: Recovered, story: Story, slots: Slots) -> bool:
    """Tell whether the log does not have this finding, nor anything better."""
    if story.conclusion is not None:
        return False
    slot = slots.get(one.place)
    return one.final or slot is None or not slot.observed


def _known_outcome(story: Story) -> str | None:
    if story.conclusion is None:
        return None
    return str(json.loads(story.conclusion)["result"]["outcome"])


async def _close(final: Sequence[Recovered], slots: Slots, lease: Lease) -> None:
    """Free slots and keep states; without a slot there is no state: somebody else has it."""
    if not final:
        return
    seen = [one for one in final if one.result.outcome in SEEN and one.place in slots]
    many = len(seen) >= MANY
    states = await asyncio.to_thread(_states, seen, slots) if many else _states(seen, slots)
    values = {**by_column([one.place for one in final]), "seen": states}
    await lease.connection.execute(_FREE, values)


def _states(seen: Iterable[Recovered], slots: Slots) -> str:
    """Return the states as one JSON text: psycopg writes arrays of JSON ten times slower."""
    states = [
        {
            "cluster_id": slots[one.place].cluster_id,
            "entity_hash": slots[one.place].entity_hash,
            "entity": entity_text(one.result.entity),
            "values": values_text(one.result.after),
            "alteration_id": one.alteration_id,
        }
        for one in seen
        if one.result.after is not None
    ]
    return json.dumps(states)


async def _keep_observed(places: Sequence[Place], lease: Lease) -> None:
    if places:
        await lease.connection.execute(_OBSERVED, by_column(places))


async def _free_keys(final: Iterable[Recovered], lease: Lease) -> None:
    by_alteration: dict[str, list[AlterationResult]] = {}
    for one in final:
        by_alteration.setdefault(one.alteration_id, []).append(one.result)
    for alteration_id, results in by_alteration.items():
        await free_key_if_unused(alteration_id, results, lease)
