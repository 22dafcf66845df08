"""Servers that are down for the length of a block, and what to ask meanwhile."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.service import RunningService

DEADLINE_S: Final = 30.0
PATIENCE_S: Final = 30.0
"""How long a caller waits for any answer while something is down."""

OUTAGES: Final[Mapping[str, tuple[str, str]]] = {
    "stopped": ("stop", "start"),
    "killed": ("kill", "start"),
    "paused": ("pause", "resume"),
}
"""How a server goes down, and up again."""


@contextmanager
def outage(server: LocalKafka | LocalPostgres, kind: str) -> Iterator[None]:
    """Keep a server down, one of ``OUTAGES``."""
    down, up = OUTAGES[kind]
    getattr(server, down)()
    try:
        yield
    finally:
        getattr(server, up)()


def change(name: str, value: float = 1024, **options: Any) -> dict[str, Any]:
    """Return the body that sets one key of one user."""
    op = {"key": "producer_byte_rate", "value": value}
    return {"alterations": [{"entity": {"user": name}, "ops": [op]}], **options}


def ask(
    service: RunningService, method: str, path: str, body: Any = None, principal: str = "alice"
) -> httpx.Response:
    """Ask as a caller who waits for an answer, not for ever."""
    return service.api(principal).request(method, path, json=body, timeout=PATIENCE_S)


def until(holds: Callable[[], bool], what: str) -> None:
    """Ask until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def until_done(asks: Callable[[], httpx.Response], what: str) -> None:
    """Ask until the answer is 200; a failure tells what was answered last."""
    deadline = time.monotonic() + DEADLINE_S
    while (answer := asks()).status_code != httpx.codes.OK:
        assert time.monotonic() < deadline, f"{what}: {answer.status_code} {answer.text}"
        time.sleep(0.05)
