"""The command without a configuration, before a service that says what it is told to say."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.event_loops import Silent, served


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SERVER", "TOKEN_FILE", "PROFILE"):
        monkeypatch.delenv(f"KAFKA_CLIENT_QUOTAS_{name}", raising=False)


@dataclass(frozen=True)
class Reply:
    """One answer; a status of 0 drops the connection without one."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ScriptedService:
    """Gives its replies in order, the last one for ever, and keeps what it was asked."""

    replies: list[Reply]
    url: str = ""
    asked: list[tuple[str, str, Mapping[str, str], Any]] = field(default_factory=list)

    def next_reply(self) -> Reply:
        """Return the reply to the next request."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def scripted_service(*replies: Reply) -> Iterator[ScriptedService]:
    """Answer on a free port until the block ends."""
    service = ScriptedService(list(replies))
    with served(partial(_Handler, service)) as service.url:
        yield service


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
        content = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()
