"""Listeners of ``GET /audit/stream``, and what they are sent."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.testkit.service import RunningService


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """One event: its id, and the row."""

    id: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listener:
    """An answer that does not end, and its events as they come."""

    answer: httpx.Response
    events: Iterator[StreamedEvent]

    def until(self, alteration_id: str, outcome: str) -> list[StreamedEvent]:
        """Return what comes, up to an alteration's row with that outcome."""
        read = []
        for event in self.events:
            read.append(event)
            if (event.row["alteration_id"], event.row["outcome"]) == (alteration_id, outcome):
                return read
        raise AssertionError(read)


@contextmanager
def listening(
    service: RunningService,
    principal: str = "auditor",
    last_event_id: str | None = None,
    **parameters: str,
) -> Iterator[Listener]:
    """Listen until the block ends; events are only sent once the headers have come."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    api = service.api(principal)
    with api.stream("GET", "/audit/stream", headers=headers, params=parameters) as answer:
        if answer.is_error:
            answer.read()
        yield Listener(answer, _events(answer))


def _events(answer: httpx.Response) -> Iterator[StreamedEvent]:
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, text = line.partition(": ")
            fields[name] = text
        else:
            if "data" in fields:
                yield StreamedEvent(fields["id"], json.loads(fields["data"]))
            fields = {}
