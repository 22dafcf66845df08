"""The conclusions of several alterations in one transaction."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final, cast
from uuid import UUID

import psycopg

from app.domain.alterations import Outcome
from app.postgres.closing import SEEN
from app.postgres.copying import DURABLE, MANY, copy_rows
from app.postgres.event_rows import EventRow, outcome_rows
from app.postgres.keys import free_key_if_unused
from app.postgres.later_events import RECOVERY, SUPERSEDED
from app.postgres.leases import Lease
from app.postgres.shared_intents import AloneError
from app.postgres.states import entity_hash, entity_text, values_text
from app.service.audit_records import AuditConclusion
from app.service.identifiers import time_of

_CLOSE: Final = """
    with freed as (
      delete from entity_slot as slot
      using json_to_recordset(%(definite)s::json) as ended(alteration_id uuid, ordinal smallint)
      where slot.alteration_id = ended.alteration_id and slot.ordinal = ended.ordinal
      returning slot.alteration_id, slot.cluster_id
    ), quarantined as (
      update entity_slot as slot set state = 'quarantined', handed_over_by =
        greatest(taken_at, least(handed_over_by, silent.sent_at, clock_timestamp()))
      from json_to_recordset(%(unknown)s::json)
        as silent(alteration_id uuid, ordinal smallint, sent_at timestamptz)
      where slot.alteration_id = silent.alteration_id and slot.ordinal = silent.ordinal
    ), renewed as (
      update idempotency set expires_at = clock_timestamp() + interval '24 hours'
      where alteration_id = any(%(ids)s)
    )
    insert into entity_state as known
      (cluster_id, entity_hash, entity, "values", version, alteration_id, updated_at)
    select cluster_id, decode(entity_hash, 'hex'), entity, "values", 1, alteration_id,
      clock_timestamp()
    from (select distinct alteration_id, cluster_id from freed) as cluster
      join json_to_recordset(%(seen)s::json)
        as seen(alteration_id uuid, entity_hash text, entity text, "values" text)
      using (alteration_id)
    order by cluster_id, entity_hash
    on conflict (cluster_id, entity_hash) do update set
      "values" = excluded."values",
      version = known.version + 1,
      alteration_id = excluded.alteration_id,
      updated_at = excluded.updated_at
    """
"""What ``closing`` does for one alteration, for many."""

_STARTED: Final = """
    select alteration_id, min(at), greatest(min(at), clock_timestamp()),
      count(*) filter (where event_type = 'intent'), count(*) filter (where event_type <> 'intent')
    from json_to_recordset(%(concluded)s::json)
        as concluded(received_at timestamptz, alteration_id uuid, ordinal smallint)
      join audit_event using (received_at, alteration_id, ordinal)
    where event_type = 'intent' or (event_type = any(%(found)s) and verdict is not null)
    group by alteration_id
    """

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
    found = {"concluded": json.dumps(list(_places(conclusions))), "found": [RECOVERY, SUPERSEDED]}
    async with driver.pipeline():
        await driver.execute(_CLOSE, _closing(conclusions))
        await driver.execute(_DURABLE)
        rows = await (await driver.execute(_STARTED, found)).fetchall()
    return {id_: _Started(*rest) for id_, *rest in rows}


def _closing(conclusions: Sequence[AuditConclusion]) -> Mapping[str, Any]:
    places: dict[bool, list[Mapping[str, Any]]] = {True: [], False: []}
    seen = []
    for one in conclusions:
        sent_at = next((time for time, event, _ in one.events if event == "sent"), None)
        for ordinal, result in one.results.items():
            unknown = result.outcome is Outcome.UNKNOWN
            place: dict[str, Any] = {"alteration_id": one.alteration_id, "ordinal": ordinal}
            if unknown and sent_at is not None:
                place["sent_at"] = sent_at.isoformat()
            places[unknown].append(place)
            if result.outcome in SEEN and result.after is not None:
                seen.append(
                    {
                        "alteration_id": one.alteration_id,
                        "entity_hash": entity_hash(result.entity).hex(),
                        "entity": entity_text(result.entity),
                        "values": values_text(result.after),
                    }
                )
    return {
        "definite": json.dumps(places[False]),
        "unknown": json.dumps(places[True]),
        "seen": json.dumps(seen),
        "ids": [UUID(one.alteration_id) for one in conclusions],
    }


def _places(conclusions: Sequence[AuditConclusion]) -> Iterator[Mapping[str, Any]]:
    for one in conclusions:
        received_at = time_of(one.alteration_id).isoformat()
        for ordinal in one.results:
            yield {
                "received_at": received_at,
                "alteration_id": one.alteration_id,
                "ordinal": ordinal,
            }
