"""The command without a configuration, before a service that says what it is told to say."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.client.cli import main
from tests.testkit.event_loops import Silent, served


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SERVER", "TOKEN_FILE", "PROFILE"):
        monkeypatch.delenv(f"KAFKA_CLIENT_QUOTAS_{name}", raising=False)


@dataclass(frozen=True)
class Reply:
    """One answer, as JSON or as it is; a status of 0 drops the connection without one."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ScriptedService:
    """Gives its replies in order, the last one for ever; stores what it was asked."""

    replies: list[Reply]
    url: str = ""
    asked: list[tuple[str, str, Mapping[str, str], Any]] = field(default_factory=list)

    def next_reply(self) -> Reply:
        """Return the reply to the next request."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    @property
    def keys(self) -> set[str]:
        """The idempotency keys."""
        return {headers["Idempotency-Key"] for _, _, headers, _ in self.asked}


@contextmanager
def scripted_service(*replies: Reply) -> Iterator[ScriptedService]:
    """Answer on a free port until the block ends."""
    service = ScriptedService(list(replies))
    with served(partial(_Handler, service)) as service.url:
        yield service


class Ran(NamedTuple):
    """One run of the command, and the service that it asked."""

    code: int
    out: str
    err: str
    service: ScriptedService


Run = Callable[..., Ran]


def raising(error: type[BaseException]) -> Callable[..., None]:
    """Return what raises an error whenever it is called."""

    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command before a service that gives these replies."""

    def run(words: str | Sequence[str], *replies: Reply) -> Ran:
        words = words.split() if isinstance(words, str) else words
        with scripted_service(*replies) as service:
            code = main([*words, "--server", service.url, "--color", "never"])
        return Ran(code, *capsys.readouterr(), service)

    return run


class _Handler(Silent, BaseHTTPRequestHandler):
    def __init__(self, service: ScriptedService, *connection: Any) -> None:
        self.service = service
        super().__init__(*connection)

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.service.asked.append((self.command, self.path, dict(self.headers), body))
        reply = self.service.next_reply()
        if not reply.status:
            self.close_connection = True
            return
        is_raw = isinstance(reply.body, bytes)
        content = reply.body if is_raw else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()


PLAN: Any = {
    "plan_id": "p1",
    "owner": "team-a",
    "prune": False,
    "expires_at": "2026-11-22T00:00:00.000Z",
    "changes": [
        {
            "entity": {"user": "alice"},
            "ops": [
                {"key": "producer_byte_rate", "value": 2048},
                {"key": "request_percentage", "remove": True},
            ],
            "before": {"producer_byte_rate": 1024, "request_percentage": 50},
            "after": {"producer_byte_rate": 2048},
            "impact": {
                "keys": {
                    "producer_byte_rate": {
                        "change": "raised",
                        "factor": 2.0,
                        "effective_after": 2048,
                        "source": {"entity": {"user": "alice"}},
                        "more_specific": 1,
                    },
                    "request_percentage": {
                        "change": "removed",
                        "factor": None,
                        "effective_after": 80.5,
                        "source": {"entity": {"user": None}},
                        "more_specific": 0,
                    },
                }
            },
        }
    ],
    "conflicts": [
        {
            "entity": {"user": "alice"},
            "key": "producer_byte_rate",
            "owner": "team\x1b[b",
            "held": 1024,
            "current": 1024,
            "proposed": 2048,
        }
    ],
    "kept": [{"entity": {"user": "bob"}, "key": "producer_byte_rate", "value": 7}],
    "warnings": [{"entity": {"user": "*"}, "code": "literal-default", "detail": "No\x1b default."}],
}
"""An answer of ``POST /quotas/plans``."""
