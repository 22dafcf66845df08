"""Every subcommand before a server that answers anything: one sentence, and no traceback."""

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from app.client import http
from app.client.cli import main
from app.client.output import Context
from tests.testkit.event_loops import Silent, served

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
"""Sets a title, clears the screen, turns the direction of writing."""

DEEP = b'{"quotas":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ENTITY = {"user": ESCAPES}
QUOTA = {"entity": ENTITY, "values": {ESCAPES: ESCAPES}}
LEVEL = {"entity": ENTITY, "value": ESCAPES}
RESOLVED = {
    "value": ESCAPES,
    "unit": ESCAPES,
    "scope": ESCAPES,
    "source": {"entity": ENTITY, "name": ESCAPES},
    "overridden": [LEVEL],
}
RESULT = {"entity": ENTITY, "outcome": ESCAPES, "before": {ESCAPES: 1}, "after": {ESCAPES: ESCAPES}}
ROW = {
    "at": ESCAPES,
    "principal": ESCAPES,
    "action": ESCAPES,
    "outcome": ESCAPES,
    "entity": ENTITY,
    "ops": [{"key": ESCAPES, "value": ESCAPES}],
    "before": {ESCAPES: ESCAPES},
    "after": None,
    "reason": ESCAPES,
    "alteration_id": ESCAPES,
}
IMPACT = {"change": "set", "factor": 2, "source": None, "more_specific": 0, "effective_after": 1}
ESCAPING = {
    "quotas": [QUOTA],
    "results": [{**RESULT, "identity": ENTITY, "quotas": {ESCAPES: RESOLVED}, "notes": [ESCAPES]}],
    "notes": [ESCAPES],
    "rows": [ROW],
    "next_page_token": None,
    "users": [{"user": ESCAPES}],
    "principal": ESCAPES,
    "cluster_id": ESCAPES,
    "authentication": ESCAPES,
    "client_address": ESCAPES,
    "permissions": {ESCAPES: True, "audit": False},
    "policy": [{ESCAPES: ESCAPES}],
    "alteration_id": ESCAPES,
    "outcome": ESCAPES,
    "validate_only": False,
    "reason": ESCAPES,
    "history": [{"at": ESCAPES, "event": ESCAPES, "detail": ESCAPES}],
    "plan_id": ESCAPES,
    "expires_at": ESCAPES,
    "owner": ESCAPES,
    "changes": [
        {
            "entity": ENTITY,
            "ops": [{"key": ESCAPES, "value": ESCAPES}],
            "before": {ESCAPES: ESCAPES},
            "impact": {"keys": {ESCAPES: IMPACT}},
        }
    ],
    "conflicts": [],
    "kept": [{"entity": ENTITY, "key": ESCAPES, "value": ESCAPES}],
    "warnings": [{"entity": ENTITY, "detail": ESCAPES}],
    "restricted_to": ESCAPES,
}
WRONG: tuple[Any, ...] = (None, 7, "text", [7], {"a": 7}, [{"entity": 7, "values": 7}], [[]])


def wrong_types() -> Iterator[bytes]:
    for value in WRONG:
        yield json.dumps(dict.fromkeys(ESCAPING, value)).encode()


PROBLEM = {
    "title": ESCAPES,
    "detail": [ESCAPES],
    "code": {"a": ESCAPES},
    "errors": [7, {"pointer": 7, "detail": {}, "values": {"current": {"a": ESCAPES}}}, ESCAPES],
    "request_id": ESCAPES,
    "kafka_error": ESCAPES,
    "retry": [],
}
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "nothing": (200, {}, b""),
    "no text": (200, {}, b"\xff\xfe\x00"),
    "deep": (200, {}, DEEP),
    "a list": (200, {}, b"[]"),
    "a long number": (200, {}, b'{"quotas": ' + b"9" * 10_000 + b"}"),
    "escapes": (200, {}, json.dumps(ESCAPING).encode()),
    "raw escapes": (200, {"Content-Type": "application/yaml"}, ESCAPES.encode()),
    **{f"wrong types {n}": (200, {}, body) for n, body in enumerate(wrong_types())},
    "an odd pause": (429, {"Retry-After": "²"}, b"{}"),
    "a long pause": (409, {"Retry-After": "9" * 400}, b"{}"),
    "a problem": (422, {"Location": ESCAPES.replace("\x1b", "")}, json.dumps(PROBLEM).encode()),
    "errors that are none": (403, {}, b'{"errors": {"a": 7}, "sent_to_cluster": []}'),
    "a redirect": (302, {"Location": "http://127.0.0.1:1/"}, b""),
    "a redirect to no address": (302, {"Location": "javascript:1"}, b""),
    "an odd status": (299, {}, b"{}"),
    "an odd encoding": (200, {"Content-Encoding": "zstd"}, b"{}"),
    "no gzip": (200, {"Content-Encoding": "gzip"}, b"{}"),
}
DOCUMENT = "{apiVersion: quotas/v1, quotas: [{entity: {user: a}, values: {producer_byte_rate: 1}}]}"
COMMANDS = (
    "--describe",
    "--describe --show-overridden",
    "--describe --output yaml",
    "--describe --output csv",
    "--describe --output json",
    "--resolve --names user=a --show-overridden",
    "--resolve --names user=a --output csv",
    "--alter --yes --names user=a --add producer_byte_rate=1",
    "--alter --names user=a --add producer_byte_rate=1",
    "export",
    "plan FILE",
    "apply FILE",
    "apply --plan p1",
    "resolve IDENTITIES --what-if FILE",
    "lint",
    "budgets",
    "advice",
    "advice --document",
    "temporary",
    "keep a1",
    "audit",
    "audit --output csv",
    "revert a1",
    "show a1",
    "whoami",
)


class _Handler(Silent, BaseHTTPRequestHandler):
    def __init__(self, answer: tuple[int, dict[str, str], bytes], *connection: Any) -> None:
        self.answer = answer
        super().__init__(*connection)

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, headers, body = self.answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def send_header(self, keyword: str, value: str) -> None:
        line = f"{keyword}: {value}\r\n".encode()
        self._headers_buffer: list[bytes] = [*getattr(self, "_headers_buffer", []), line]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(http, "_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(http, "_LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(Context, "is_watched", False)
    document, identities = tmp_path / "document.yaml", tmp_path / "identities.csv"
    document.write_text(DOCUMENT)
    identities.write_text("user\nalice\n")
    return {"FILE": str(document), "IDENTITIES": str(identities)}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_of_any_kind_ends_in_one_sentence(
    kind: str, files: dict[str, str], capsysbinary: pytest.CaptureFixture[bytes]
):
    with served(partial(_Handler, ANSWERS[kind])) as url:
        for command in COMMANDS:
            words = [files.get(word, word) for word in command.split()]
            code = main(["--server", url, *words])
            out, err = (stream.decode(errors="replace") for stream in capsysbinary.readouterr())
            # In a pipe these are the service's own bytes.
            is_raw = command == "export" or command.endswith(("yaml", "csv"))
            text = err if is_raw else out + err
            assert code in range(6), command
            assert [line for line in text.split("\n") if not line.isprintable()] == [], command
            assert "Traceback" not in text, command
            if command.startswith(("--alter --yes", "revert")) and kind.startswith("wrong types"):
                assert code == 4, "what was sent may be done"


def test_a_packed_answer_is_unpacked_no_further_than_memory_is_for(
    capsys: pytest.CaptureFixture[str],
):
    packed = gzip.compress(b"[" + b" " * 2**28)
    headers = {"Content-Encoding": "gzip"}
    with served(partial(_Handler, (200, headers, packed))) as url:
        for command in ("--describe", "--describe --output csv", "export"):
            tracemalloc.start()
            try:
                code = main(["--server", url, *command.split()])
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert (code, "longer than any of" in capsys.readouterr().err) == (5, True)
            assert peak < 2**26


def test_an_ordinary_packed_answer_is_read(capsys: pytest.CaptureFixture[str]):
    quotas = [{"entity": {"user": f"user-{n}"}, "values": {"k": n}} for n in range(30_000)]
    packed = gzip.compress(json.dumps({"quotas": quotas}).encode())
    with served(partial(_Handler, (200, {"Content-Encoding": "gzip"}, packed))) as url:
        assert main(["--server", url, "--describe"]) == 0
    assert capsys.readouterr().out.count("\n") == 3 * 30_000 - 1
