"""The log in the order of its events, for whoever follows it; how far a topic has it."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from app.postgres.payload import is_record_id
from app.postgres.pool import Database, Pool, Row
from app.postgres.records import audit_row
from app.service.ports.audit_log import AuditRow
from app.service.ports.events import (
    Backlog,
    EventPage,
    LoggedEvent,
    LogPosition,
    end_of,
)
from app.service.runtime.clock import time_of
from app.service.runtime.tasks import off_loop

Encode = Callable[[AuditRow], bytes]
"""Returns a row in JSON."""

_NEWEST: Final = """
    select log_position from audit_event where log_position > %(after)s
    order by log_position desc limit 1
    """

_WRITERS: Final = """
    select virtualtransaction from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock'
      and relation = cast('audit_event' as regclass)
      and database = (select oid from pg_database where datname = current_database())
    """
"""Whoever adds to the log holds this lock from before it draws a number until its transaction has
ended, and what it committed can be seen."""

_LOOK_AGAIN_S: Final = 0.01
_LOOKS: Final = 20
"""A transaction takes some milliseconds; one that takes longer is left for the next call."""

_NUMBERS_AT_ONCE: Final = 1_000
_ROWS_AT_ONCE: Final = 1_000

PAGE: Final = """
    select event.log_position, entity.ordinal, event.seq, event.event_type, event.occurred_at,
      event.at, event.alteration_id, request.payload as request, start.document as start,
      case when entity.seq > 0 and entity.verdict is not null then entity.document else (
        select document from audit_entity as earlier
        where earlier.received_at = entity.received_at
          and earlier.alteration_id = entity.alteration_id and earlier.ordinal = entity.ordinal
          and earlier.seq between 1 and entity.seq and earlier.verdict is not null
        order by earlier.seq desc limit 1
      ) end as conclusion
    from (
      select * from audit_event where log_position between %(event)s and %(up_to)s
      order by log_position limit %(numbers)s
    ) as event
    join audit_event as request on request.received_at = event.received_at
      and request.alteration_id = event.alteration_id and request.seq = 0
      and request.cluster_id = %(cluster_id)s
    join audit_entity as entity on entity.received_at = event.received_at
      and entity.alteration_id = event.alteration_id and entity.seq = event.seq
    join audit_entity as start on start.received_at = entity.received_at
      and start.alteration_id = entity.alteration_id and start.ordinal = entity.ordinal
      and start.seq = 0
    where event.log_position > %(event)s or entity.ordinal > %(ordinal)s
    order by event.log_position, entity.ordinal limit %(limit)s
    """
"""First the events by their index, whatever the planner thinks of the rest."""

_POSITION_OF: Final = """
    select event.log_position, entity.ordinal
    from audit_event as event join audit_event as request using (received_at, alteration_id)
      join audit_entity as entity using (received_at, alteration_id)
    where event.received_at = %(received_at)s and event.alteration_id = %(alteration_id)s
      and event.seq = %(number)s and request.seq = 0 and request.cluster_id = %(cluster_id)s
      and entity.seq = event.seq and entity.ordinal = %(ordinal)s
    """

_POSITION_AT: Final = """
    select log_position from audit_event
    where seq = 0 and cluster_id = %(cluster_id)s and at >= %(since)s - interval '1 minute'
    order by at, alteration_id limit 1
    """
"""Numbers are drawn after the times are taken: those of a minute are in order by a wide margin."""

_MEMBERS_OF_AN_ID: Final = 3
_LONGEST_NUMBER: Final = 5
_LARGEST_NUMBER: Final = 32_767


class PostgresEventLog:
    """The port ``EventLog`` on Postgres, for one reader: it remembers whom it waits for.

    Args:
        pool: Whose connections it takes.
        encode: Writes rows as JSON.
    """

    def __init__(self, pool: Pool, encode: Encode) -> None:
        self._pool = pool
        self._encode = encode
        self._settled = 0
        self._newest = 0
        self._writers: frozenset[str] = frozenset()

    async def settled(self) -> LogPosition:
        """See ``EventLog``: a number that was seen, once those have ended who were writing then."""
        if not self._writers:
            newest = await self._pool.rows(_NEWEST, {"after": self._settled})
            if not newest:
                return end_of(self._settled)
            ((self._newest,),) = newest
            self._writers = await self._writing()
        for _ in range(_LOOKS):
            if not self._writers:
                self._settled = self._newest
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
            self._writers &= await self._writing()
        return end_of(self._settled)

    async def _writing(self) -> frozenset[str]:
        return frozenset(name for (name,) in await self._pool.rows(_WRITERS))

    async def page(self, cluster_id: str, after: LogPosition, up_to: LogPosition) -> EventPage:
        """See ``EventLog``: at most a thousand numbers, and of their entities a thousand."""
        last = min(up_to.event, after.event + _NUMBERS_AT_ONCE)
        values = {
            "cluster_id": cluster_id,
            "event": after.event,
            "ordinal": after.ordinal,
            "up_to": last,
            "numbers": _NUMBERS_AT_ONCE + 1,
            "limit": _ROWS_AT_ONCE,
        }
        rows = await self._pool.rows(PAGE, values)
        events = await off_loop(len(rows), self._events, rows)
        if len(rows) == _ROWS_AT_ONCE:
            return EventPage(events, events[-1].position)
        return EventPage(events, max(after, end_of(last)))

    async def position_of(self, cluster_id: str, event_id: str) -> LogPosition | None:
        """See ``EventLog``."""
        alteration_id, *numbers = event_id.split("/")
        is_id = len(numbers) + 1 == _MEMBERS_OF_AN_ID and is_record_id(alteration_id)
        if not is_id or not all(map(_is_number, numbers)):
            return None
        values = {
            "received_at": time_of(alteration_id),
            "alteration_id": UUID(alteration_id),
            "cluster_id": cluster_id,
            "number": int(numbers[0]),
            "ordinal": int(numbers[1]),
        }
        rows = await self._pool.rows(_POSITION_OF, values)
        return LogPosition(*rows[0]) if rows else None

    async def position_at(self, cluster_id: str, since: datetime) -> LogPosition:
        """See ``EventLog``."""
        rows = await self._pool.rows(_POSITION_AT, {"cluster_id": cluster_id, "since": since})
        if rows:
            return end_of(rows[0].log_position - 1)
        return end_of(self._settled)

    def _events(self, rows: Sequence[Row]) -> list[LoggedEvent]:
        requests: dict[UUID, Any] = {}
        return [self._event(row, requests) for row in rows]

    def _event(self, row: Row, requests: dict[UUID, Any]) -> LoggedEvent:
        if row.alteration_id not in requests:
            requests[row.alteration_id] = json.loads(row.request)
        found = audit_row(
            row.at,
            requests[row.alteration_id],
            json.loads(row.start),
            None if row.conclusion is None else json.loads(row.conclusion),
        )
        return LoggedEvent(
            LogPosition(row.log_position, row.ordinal),
            row.event_type,
            row.seq,
            row.occurred_at.astimezone(UTC),
            found,
            self._encode(found),
        )


def _is_number(text: str) -> bool:
    """Tell whether a text is a number of an event or an entity, canonically written."""
    is_short = len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdecimal()
    return is_short and str(int(text)) == text and int(text) <= _LARGEST_NUMBER


_LEASE_S: Final = 15.0
"""Longer than a batch may take."""

_CLAIM: Final = """
    insert into events_topic as held (cluster_id, topic, owner, owned_until)
    values (%(cluster_id)s, %(topic)s, %(owner)s, now() + make_interval(secs => %(lease_s)s))
    on conflict (cluster_id, topic) do update
    set owner = excluded.owner, owned_until = excluded.owned_until
    where held.owner = excluded.owner or held.owned_until < now()
    returning log_position, ordinal
    """

_MOVE: Final = """
    update events_topic set log_position = %(event)s, ordinal = %(ordinal)s,
      owned_until = now() + make_interval(secs => %(lease_s)s)
    where cluster_id = %(cluster_id)s and topic = %(topic)s and owner = %(owner)s
    returning 1
    """

_GIVE_BACK: Final = """
    update events_topic set owned_until = '-infinity' where topic = %(topic)s and owner = %(owner)s
    """

_BACKLOG: Final = """
    select count(*) as number,
      coalesce(extract(epoch from clock_timestamp() - min(occurred_at)), 0)::float8 as oldest_s
    from (
      select occurred_at from audit_event
      where log_position > coalesce((select log_position from events_topic
        where cluster_id = %(cluster_id)s and topic = %(topic)s), 0)
      order by log_position limit 10000
    ) as missing
    """


class PostgresTopicPositions:
    """The port ``TopicPositions`` on Postgres; who is silent for 15 s has lost its lease."""

    def __init__(self, database: Database) -> None:
        self._pool = database.recovering

    async def claim(self, cluster_id: str, topic: str, owner: str) -> LogPosition | None:
        """See ``TopicPositions``."""
        values = {"cluster_id": cluster_id, "topic": topic, "owner": owner, "lease_s": _LEASE_S}
        rows = await self._pool.rows(_CLAIM, values)
        return LogPosition(*rows[0]) if rows else None

    async def move(self, cluster_id: str, topic: str, owner: str, to: LogPosition) -> bool:
        """See ``TopicPositions``."""
        values = {"cluster_id": cluster_id, "topic": topic, "owner": owner, "lease_s": _LEASE_S}
        return bool(await self._pool.rows(_MOVE, {**values, **to._asdict()}))

    async def give_back(self, topic: str, owner: str) -> None:
        """See ``TopicPositions``."""
        await self._pool.rows(_GIVE_BACK, {"topic": topic, "owner": owner})

    async def backlog(self, cluster_id: str, topic: str) -> Backlog:
        """See ``TopicPositions``."""
        (row,) = await self._pool.rows(_BACKLOG, {"cluster_id": cluster_id, "topic": topic})
        return Backlog(row.number, row.oldest_s)
