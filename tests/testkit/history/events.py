"""What clients saw, and what the cluster has written; all times are by the clock of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from app.domain.entities import ClientQuotaEntity


class Write(NamedTuple):
    """One key of one entity set to a value, or removed (null).

    Every alteration uses values that no other uses, so that a record of the cluster names it.
    """

    entity: ClientQuotaEntity
    key: str
    value: float | None


class LogRecord(NamedTuple):
    """One client-quota record of the metadata log; a value of null is a removal.

    Attributes:
        at: Not earlier was it written, and
        latest: not later.
    """

    at: datetime
    write: Write
    latest: datetime


class End(StrEnum):
    """How a call ended, as its client must see it; one that never came back is UNKNOWN too."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Call:
    """One request to alter.

    Attributes:
        number: Unique in the run.
        client: Who called.
        writes: What was asked for, in the order of the request.
        expected: The values that had to hold, by entity and key (null: not set).
        idempotency_key: Null where none was sent.
        end: How it ended.
        answer: The status and the members of the answer that say what became of it.
    """

    number: int
    client: str
    writes: tuple[Write, ...]
    began: datetime
    expected: tuple[Write, ...] = ()
    idempotency_key: str | None = None
    ended: datetime | None = None
    end: End = End.UNKNOWN
    answer: "Answer | None" = None

    @property
    def entities(self) -> tuple[ClientQuotaEntity, ...]:
        return tuple(dict.fromkeys(write.entity for write in self.writes))

    @property
    def outcomes(self) -> Mapping[ClientQuotaEntity, str]:
        """What the answer says of each entity; empty where it says nothing."""
        fields = self.answer.outcomes if self.answer else ()
        return dict(zip(self.entities, fields, strict=False))


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer says.

    Attributes:
        alteration_id: Whose outcome it tells; null where nothing was recorded.
        outcomes: One for each entity, in the order of the request; empty where it has none.
        retry: ``safe``, ``same-key-only``, ``never``, or null where all went well.
        replayed: Whether it answers an earlier request with the same key.
    """

    status: int
    code: str | None = None
    sent_to_cluster: str | None = None
    retry: str | None = None
    alteration_id: str | None = None
    outcomes: tuple[str, ...] = ()
    replayed: bool = False

    @property
    def end(self) -> End:
        if self.status in {200, 207}:
            return End.OK
        return End.FAIL if self.sent_to_cluster == "no" else End.UNKNOWN


def answer_of(status: int, document: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
    """Read an answer; the alteration that a busy entity waits for is another one's."""
    busy = document.get("code") == "entity-busy"
    return Answer(
        status,
        document.get("code"),
        document.get("sent_to_cluster"),
        document.get("retry"),
        None if busy else document.get("alteration_id"),
        tuple(result["outcome"] for result in document.get("results") or ()),
        headers.get("Idempotent-Replayed") == "true",
    )


class History:
    """The calls of a run, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    @property
    def calls(self) -> list[Call]:
        return list(self._calls)

    def begin(
        self,
        client: str,
        writes: tuple[Write, ...],
        expected: tuple[Write, ...] = (),
        idempotency_key: str | None = None,
    ) -> int:
        """Note that a call begins, and return its number."""
        number = len(self._calls)
        began = datetime.now(UTC)
        self._calls.append(Call(number, client, writes, began, expected, idempotency_key))
        return number

    def end(self, number: int, answer: Answer | None) -> None:
        end = answer.end if answer else End.UNKNOWN
        ended = datetime.now(UTC)
        self._calls[number] = replace(self._calls[number], ended=ended, end=end, answer=answer)
