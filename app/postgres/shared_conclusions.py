"""The conclusions of several alterations in one transaction."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final, cast
from uuid import UUID

import psycopg

from app.postgres.closing import close_slots
from app.postgres.conclusions import ended_by
from app.postgres.copying import DURABLE, MANY, copy_rows
from app.postgres.event_rows import EventRow, outcome_rows
from app.postgres.keys import free_key_if_unused
from app.postgres.later_events import RECOVERY, SUPERSEDED
from app.postgres.leases import Lease
from app.postgres.shared_intents import AloneError
from app.service.audit_records import AuditConclusion
from app.service.identifiers import time_of

_STARTED: Final = """
    select alteration_id, min(at), greatest(min(at), clock_timestamp()),
      count(*) filter (where event_type = 'intent'), count(*) filter (where event_type <> 'intent')
    from json_to_recordset(%(concluded)s::json)
        as concluded(received_at timestamptz, alteration_id uuid, ordinal smallint)
      join audit_event using (received_at, alteration_id, ordinal)
    where audit_event.received_at = any(%(received)s)
      and (event_type = 'intent' or (event_type = any(%(found)s) and verdict is not null))
    group by alteration_id
    """
"""Told the times by themselves, the planner looks at the partitions of these months only."""

_DURABLE: Final = f"select {DURABLE}"

_NOT_EVERYBODYS: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
    psycopg.errors.CardinalityViolation,
)


class ConclusionsTogether:
    """The conclusions of one transaction, while it fills."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._results = 0

    def __call__(self, conclusion: AuditConclusion) -> bool:
        """Take one more in, if it fits."""
        results = self._results + len(conclusion.results)
        fits = results < MANY and conclusion.alteration_id not in self._ids
        if fits or not self._ids:
            self._ids.add(conclusion.alteration_id)
            self._results = results
        return fits


async def conclude_together(conclusions: Sequence[AuditConclusion], lease: Lease) -> None:
    """Write an outcome for each result, and give up what was held.

    Raises:
        AloneError: One of them has no intent, or another conclusion, or a row is locked; nothing
            was written.
    """
    try:
        started = await _closed(conclusions, lease)
        rows = chain.from_iterable(_rows(one, started) for one in conclusions)
        await copy_rows(lease, rows, sum(len(one.results) for one in conclusions))
    except _NOT_EVERYBODYS as error:
        raise AloneError from error
    for one in conclusions:
        await free_key_if_unused(one.alteration_id, one.results.values(), lease)


@dataclass(frozen=True, slots=True)
class _Started:
    """When an intent was committed, what the time is now, and what the log says of it."""

    at: datetime
    now: datetime
    intents: int
    found: int


def _rows(conclusion: AuditConclusion, started: Mapping[UUID, _Started]) -> Iterator[EventRow]:
    start = started.get(UUID(conclusion.alteration_id))
    if start is None or start.found or start.intents != len(conclusion.results):
        raise AloneError
    yield from outcome_rows(conclusion, start.at, start.now)


async def _closed(conclusions: Sequence[AuditConclusion], lease: Lease) -> Mapping[UUID, _Started]:
    """Close the slots, then look at the intents: what recovery has concluded shows then."""
    driver = cast("psycopg.AsyncConnection[Any]", lease.driver)
    found = {
        "concluded": json.dumps(list(_places(conclusions))),
        "received": [time_of(one.alteration_id) for one in conclusions],
        "found": [RECOVERY, SUPERSEDED],
    }
    async with driver.pipeline():
        await close_slots([ended_by(one) for one in conclusions], lease)
        await driver.execute(_DURABLE)
        rows = await (await driver.execute(_STARTED, found)).fetchall()
    return {id_: _Started(*rest) for id_, *rest in rows}


def _places(conclusions: Sequence[AuditConclusion]) -> Iterator[Mapping[str, Any]]:
    for one in conclusions:
        received_at = time_of(one.alteration_id).isoformat()
        for ordinal in one.results:
            yield {
                "received_at": received_at,
                "alteration_id": one.alteration_id,
                "ordinal": ordinal,
            }
