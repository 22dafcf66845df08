"""What conclusions do to slots, states and keys, in one statement."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from app.domain.alterations import AlterationResult, Outcome
from app.postgres.copying import MANY
from app.postgres.joining import joined_by_hash
from app.postgres.leases import Lease
from app.postgres.states import entity_text, values_text

_CLOSE: Final = "select close_slots(%(definite)s::json, %(unknown)s::json, %(ids)s)"
"""Without a slot there is no state: then somebody else has concluded.

The places are texts: psycopg writes arrays of JSON ten times slower.
"""

_SEEN: Final = frozenset({Outcome.APPLIED, Outcome.OBSERVED_OTHER})
"""Outcomes whose ``after`` is what the cluster holds now."""


class Ended(NamedTuple):
    """An alteration, or a part of one, that is concluded.

    Attributes:
        alteration_id: Whose slots.
        results: By ordinal; what is unknown keeps its slot, in quarantine.
    """

    alteration_id: str
    results: Mapping[int, AlterationResult]


async def close_slots(every: Sequence[Ended], lease: Lease) -> None:
    """Free slots or quarantine them, keep the states that were seen, renew the keys' lives."""
    if not every:
        return
    number = sum(len(one.results) for one in every)
    parameters = await asyncio.to_thread(closing, every) if number >= MANY else closing(every)
    async with joined_by_hash(number, lease):
        await lease.driver.execute(_CLOSE, parameters)


def closing(every: Sequence[Ended]) -> Mapping[str, Any]:
    """Return the parameters of the statement that closes slots."""
    return {
        "definite": json.dumps(list(_definite(every))),
        "unknown": json.dumps(list(_unknown(every))),
        "ids": [UUID(one.alteration_id) for one in every],
    }


def _definite(every: Iterable[Ended]) -> Iterator[Mapping[str, Any]]:
    for one in every:
        for ordinal, result in one.results.items():
            place = {
                "alteration_id": one.alteration_id,
                "ordinal": ordinal,
                "applied": result.outcome is Outcome.APPLIED,
            }
            if result.outcome in _SEEN and result.after is not None:
                values = values_text(result.after)
                yield {**place, "entity": entity_text(result.entity), "values": values}
            elif result.outcome is not Outcome.UNKNOWN:
                yield place


def _unknown(every: Iterable[Ended]) -> Iterator[Mapping[str, Any]]:
    for one in every:
        for ordinal, result in one.results.items():
            if result.outcome is Outcome.UNKNOWN:
                yield {"alteration_id": one.alteration_id, "ordinal": ordinal}
