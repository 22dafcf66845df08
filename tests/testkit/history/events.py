"""What clients saw: one JSON line when a call begins, one when it ends."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from app.domain.entities import ClientQuotaEntity


class Write(NamedTuple):
    """One key of one entity set to a value, or removed (null).

    Every alteration uses values that no other uses, so that a record of the cluster names it.
    """

    entity: ClientQuotaEntity
    key: str
    value: float | None


def wall_clock(monotonic: float) -> datetime:
    """Return when that was, in UTC."""
    return datetime.fromtimestamp(time.time() - time.monotonic() + monotonic, UTC)


class End(StrEnum):
    """How a call ended, as its client must see it; one that never came back is UNKNOWN too."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Call:
    """One request to alter; times by the monotonic clock, in seconds.

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
    began: float
    expected: tuple[Write, ...] = ()
    idempotency_key: str | None = None
    ended: float | None = None
    end: End = End.UNKNOWN
    answer: "Answer | None" = None

    @property
    def entities(self) -> tuple[ClientQuotaEntity, ...]:
        """The entities of the request, in its order."""
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
        """What the client may conclude."""
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


class HistoryLog:
    """Writes the history; any thread may."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")
        self._numbers = count(1)
        self._lock = threading.Lock()

    def invoke(
        self,
        client: str,
        writes: Sequence[Write],
        expected: Sequence[Write] = (),
        idempotency_key: str | None = None,
    ) -> int:
        """Note that a call begins, and return its number."""
        number = next(self._numbers)
        self._write(
            event="invoke",
            call=number,
            client=client,
            writes=[_to_json(write) for write in writes],
            expected=[_to_json(item) for item in expected],
            idempotency_key=idempotency_key,
        )
        return number

    def ended(self, number: int, answer: Answer | None) -> None:
        """Note how a call ended; null where no answer came."""
        end = answer.end if answer else End.UNKNOWN
        fields = {name: getattr(answer, name) for name in _ANSWER} if answer else None
        self._write(event=end.value, call=number, answer=fields)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **members: Any) -> None:
        with self._lock:
            line = json.dumps({"at": time.monotonic(), **members}, ensure_ascii=True)
            self._file.write(line + "\n")
            self._file.flush()


_ANSWER = tuple(Answer.__dataclass_fields__)


def read_history(path: Path) -> list[Call]:
    """Return the calls in the order in which they began."""
    calls: dict[int, Call] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        number = event["call"]
        if event["event"] == "invoke":
            calls[number] = _invoked(event)
        else:
            calls[number] = _ended(calls[number], event)
    return list(calls.values())


def _invoked(event: Mapping[str, Any]) -> Call:
    return Call(
        event["call"],
        event["client"],
        tuple(_from_json(write) for write in event["writes"]),
        event["at"],
        tuple(_from_json(item) for item in event["expected"]),
        event["idempotency_key"],
    )


def _ended(call: Call, event: Mapping[str, Any]) -> Call:
    fields = event["answer"]
    answer = Answer(**{**fields, "outcomes": tuple(fields["outcomes"])}) if fields else None
    return replace(call, ended=event["at"], end=End(event["event"]), answer=answer)


def _to_json(write: Write) -> list[Any]:
    return [write.entity.as_dict(), write.key, write.value]


def _from_json(document: Sequence[Any]) -> Write:
    entity, key, value = document
    return Write(ClientQuotaEntity.of(entity), key, value)
