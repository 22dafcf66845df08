"""Findings of recovery, recorded for many entities of many alterations at once."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import text

from app.domain.alterations import AlterationResult
from app.postgres.closing import Ended, close_slots
from app.postgres.copying import SECONDS_PER_ROW, copy_rows, log_time
from app.postgres.joining import joined_by_hash
from app.postgres.keys import free_key_if_unused
from app.postgres.later_events import Story, by_column, recovery_row, stories
from app.postgres.leases import Lease
from app.service.recovery.recovery_ports import Place, Recovered

_HOLD: Final = text(
    """
    select slot.alteration_id::text, slot.ordinal, slot.observed
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


Held = Mapping[Place, bool]
"""The slots that this transaction has locked, and whether a finding was recorded of each."""


async def record_found(recovered: Sequence[Recovered], lease: Lease) -> Mapping[Place, str]:
    """Record findings, one for each entity; return why some were left as they are.

    The slots come first: where somebody else has concluded meanwhile, that is visible once they
    are locked.
    """
    await lease.extend(len(recovered) * SECONDS_PER_ROW)
    found = {one.place: one for one in recovered}
    held = await _hold(found, lease)
    told = {(one.alteration_id, one.ordinal): one for one in await stories(found, lease)}
    left = {place: why for place, one in found.items() if (why := _objection(one, told))}
    new = [one for place, one in found.items() if place not in left]
    new = [one for one in new if _is_news(one, told[one.place], held)]
    if new:
        await log_time(lease)
        ended = _ended_by(one for one in new if one.final)
        await close_slots(ended, lease)
        await _keep_observed([one.place for one in new if not one.final], lease)
        await copy_rows(lease, (recovery_row(told[one.place], one) for one in new), len(new))
        await _free_keys(ended, lease)
    return left


async def _hold(places: Collection[Place], lease: Lease) -> Held:
    async with joined_by_hash(len(places), lease):
        rows = await lease.connection.execute(_HOLD, by_column(places))
    return {(alteration_id, ordinal): observed for alteration_id, ordinal, observed in rows}


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


def _is_news(one: Recovered, story: Story, held: Held) -> bool:
    """Tell whether the log does not have this finding, nor anything better."""
    if story.conclusion is not None:
        return False
    return one.final or not held.get(one.place, False)


def _known_outcome(story: Story) -> str | None:
    if story.conclusion is None:
        return None
    return str(json.loads(story.conclusion)["result"]["outcome"])


async def _keep_observed(places: Sequence[Place], lease: Lease) -> None:
    if places:
        async with joined_by_hash(len(places), lease):
            await lease.connection.execute(_OBSERVED, by_column(places))


async def _free_keys(ended: Iterable[Ended], lease: Lease) -> None:
    for one in ended:
        await free_key_if_unused(one.alteration_id, one.results.values(), lease, found=True)


def _ended_by(final: Iterable[Recovered]) -> Sequence[Ended]:
    by_alteration: dict[str, dict[int, AlterationResult]] = {}
    for one in final:
        by_alteration.setdefault(one.alteration_id, {})[one.ordinal] = one.result
    return [Ended(alteration_id, results) for alteration_id, results in by_alteration.items()]
