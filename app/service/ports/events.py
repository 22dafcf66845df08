"""Following the audit log: its events in order, a topic, and how far the topic has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from app.domain.entities import ClientQuotaEntity
from app.service.ports.audit_log import AuditRow


class LogPosition(NamedTuple):
    """A position in the log: behind one entity of one event.

    Attributes:
        event: The event's number in the log. Of one entity, events stand in the order of theirs.
        ordinal: The entity's in its alteration.
    """

    event: int
    ordinal: int


BEGINNING: Final = LogPosition(0, 0)
"""Before the first event."""

_LAST_ORDINAL: Final = 32_767


def end_of(event: int) -> LogPosition:
    """Return the position behind the last entity of an event."""
    return LogPosition(event, _LAST_ORDINAL)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One entity of one event of the log.

    Attributes:
        position: Where the log goes on behind it.
        kind: Of the event, as the log names it: ``intent``, ``outcome``, ``denied``, ``validated``,
            ``drift``, ``recovery``, ``superseded``.
        number: Of the event in its alteration.
        occurred_at: When it was recorded, by Postgres's clock.
        row: The entity's audit row as it was after the event.
        document: The row in JSON.
    """

    position: LogPosition
    kind: str
    number: int
    occurred_at: datetime
    row: AuditRow
    document: bytes

    @property
    def id(self) -> str:
        """The same each time that the event is read, and of no other."""
        return f"{self.row.alteration_id}/{self.number}/{self.position.ordinal}"

    @property
    def entity(self) -> ClientQuotaEntity | None:
        """Null where the event has none."""
        return self.row.entity


class EventPage(NamedTuple):
    """Some of the log in order.

    Attributes:
        events: Of one cluster.
        reached: Where the log goes on; further than the last event where others came between.
    """

    events: Sequence[LoggedEvent]
    reached: LogPosition


class EventLog(Protocol):
    """The log in its order; every method may raise ``NotSentError``."""

    async def settled(self) -> LogPosition:
        """Return a position up to which nothing can be added any more.

        Numbers are drawn before transactions are committed, so that a larger one may be seen first.
        """

    async def page(self, cluster_id: str, after: LogPosition, up_to: LogPosition) -> EventPage:
        """Return what follows a position, up to a settled one; a bounded part of it."""

    async def position_of(self, cluster_id: str, event_id: str) -> LogPosition | None:
        """Return the position of an event by its id; null where the log has no such event."""

    async def position_at(self, cluster_id: str, since: datetime) -> LogPosition:
        """Return a position before every event of what began then or later."""


class Backlog(NamedTuple):
    """How far a topic is behind the log.

    Attributes:
        events: That it does not have yet; counted up to 10,000.
        oldest_s: The age of the first of them, in seconds; 0 where there is none.
    """

    events: int
    oldest_s: float


class TopicPositions(Protocol):
    """How far topics have the log, in Postgres; every method may raise ``NotSentError``."""

    async def claim(self, cluster_id: str, topic: str, owner: str) -> LogPosition | None:
        """Become, or stay, the only one that produces; return the position, or null: another is."""

    async def move(self, cluster_id: str, topic: str, owner: str, to: LogPosition) -> bool:
        """Note that the topic has everything up to there; false where another produces now."""

    async def give_back(self, topic: str, owner: str) -> None:
        """Let another produce at once."""

    async def backlog(self, cluster_id: str, topic: str) -> Backlog:
        """Return what the topic does not have yet, whoever produces."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic; null as key is a record of no entity."""

    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]]


class Topic(Protocol):
    """A topic of some Kafka cluster."""

    name: str

    async def append(self, records: Sequence[Record]) -> None:
        """Append records in order; return once the brokers have acknowledged all of them.

        Without any it is checked that the topic exists and answers.

        Raises:
            NotSentError: Not all were acknowledged within 8 s; some may be in the topic.
        """

    async def close(self) -> None:
        """Give up what is not acknowledged."""
