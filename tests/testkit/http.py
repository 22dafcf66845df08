"""Requests as bytes, readers of formats, problem documents, and ports: silent or answering."""

import csv
import io
import json
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import yaml

from app.localdev.processes import HOST
from tests.testkit.event_loops import Silent, served
from tests.testkit.patience import DEADLINE_S
from tests.testkit.service import RunningService


@contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler], tuple[int, str]], tls: SSLContext | None = None
) -> Iterator[str]:
    """Serve each GET with a status and a text for the length of a block; give the address."""

    class Handler(Silent, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

    with served(Handler, tls) as address:
        yield address


@contextmanager
def connected(service: RunningService) -> Iterator[socket.socket]:
    url = urlsplit(service.url)
    assert url.hostname is not None
    assert url.port is not None
    with socket.create_connection((url.hostname, url.port), DEADLINE_S) as connection:
        yield connection


def head(line: str, *headers: str) -> bytes:
    """Return a request's head: its line, a host, alice's token and further header lines."""
    lines = [line, "Host: quotas", "Authorization: Bearer alice", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


MEMBERS: Final = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "request_id",
    "kafka_error",
    "sent_to_cluster",
    "retry",
    "errors",
}


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Return the problem document of an answer that has this status.

    Raises:
        AssertionError: It is not such an answer, or the document lacks something.
    """
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem.keys() >= MEMBERS
    assert problem["type"] == f"/problems/{problem['code']}"
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in answer.text
    return problem


@contextmanager
def closed_port() -> Iterator[int]:
    """Keep a port for the block: connections to it are refused, and nobody else can take it."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield taken.getsockname()[1]


Rows = list[tuple[dict[str, str | None], dict[str, float]]]


def read_json(body: bytes) -> Rows:
    return _rows(json.loads(body)["quotas"])


def read_ndjson(body: bytes) -> Rows:
    lines = body.decode().split("\n")
    assert lines.pop() == ""
    return _rows(json.loads(line) for line in lines)


def read_yaml(body: bytes) -> Rows:
    document = yaml.safe_load(body)
    assert document.keys() == {"apiVersion", "quotas"}
    assert document["apiVersion"] == "quotas/v1"
    return _rows(document["quotas"])


def _rows(quotas: Iterable[dict]) -> Rows:
    return [
        (quota["entity"], {key: float(value) for key, value in quota["values"].items()})
        for quota in quotas
    ]


def read_csv(body: bytes) -> Rows:
    """Read the rows of CSV, taking the guard against formulas off again."""
    rows: Rows = []
    for row in csv.DictReader(io.StringIO(body.decode(), newline=""), strict=True):
        entity = {
            kind: _unguarded(row[kind]) if row[column] == "name" else None
            for kind, column in (
                ("user", "user_kind"),
                ("client-id", "client_id_kind"),
                ("ip", "ip_kind"),
            )
            if row[column] != "absent"
        }
        if not rows or rows[-1][0] != entity:
            rows.append((entity, {}))
        rows[-1][1][_unguarded(row["key"])] = float(_unguarded(row["value"]))
    return rows


def _unguarded(cell: str) -> str:
    return cell.removeprefix("'")
