"""Whatever a broker stores is read back: through every writer of ours, and every reader."""

import asyncio
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from app.client.cli import main
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QUOTA_KEY_RULES, keys_for
from tests.testkit.event_loops import Silent, served
from tests.testkit.sizes import size
from tests.unit.http.fake_service import Answer, FakeService, credentials, send

PLANS = "/quotas/plans"

HOSTILE = [
    *("<default>", "~", "null", "yes", "NaN", "unset", "1e3", "0x10", "- a", "# a", "a: b", "{a}"),
    *(f"{mark}{rest}" for mark in "=+-@'\t\r\n" for rest in ("", "1+1", "'")),
    *(f"a{mark}b" for mark in "\v\f\x1c\x1d\x85\u2028\u2029\ufeff\x7f\x80\x9f\x01\x1b,;\"'\\\r\n"),
    *("\u202eabc", "\u05d0\u05d1", "e\u0301", "\U0001f600", "\uffff", " a ", "W" * 512),
    *("\u00fc" * 256, "\n" * 512, "apiVersion: quotas/v1", "User:alice", "*"),
]
"""Legal names: at most 512 bytes, without U+0000."""

FLOATS = [1.7976931348623157e308, 5e-324, 1e100, 2.0**63, 2.0**53, 0.1, 1e22, 1e16, -0.5, 1e-7]
NO_NUMBERS = [math.nan, math.inf]
NAMES = (
    st.none()
    | st.sampled_from(HOSTILE)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=128)
)
ENTITIES = st.sampled_from([("user",), ("user", "client-id"), ("client-id",), ("ip",)]).flatmap(
    lambda kinds: st.fixed_dictionaries(dict.fromkeys(kinds, NAMES))
)
VALUES = st.dictionaries(
    st.sampled_from([*QUOTA_KEY_RULES]), st.floats() | st.sampled_from(FLOATS), min_size=1
)
World = Mapping[ClientQuotaEntity, Mapping[str, float]]
WORLDS = st.dictionaries(ENTITIES.map(ClientQuotaEntity.of), VALUES, max_size=6)
EVERY_NAME: World = {
    ClientQuotaEntity.of({"user": name, "client-id": None}): {"request_percentage": 0.1}
    for name in HOSTILE
}
EVERY_VALUE: World = {
    ClientQuotaEntity.of({"user": f"u{number}"}): dict.fromkeys(
        ("controller_mutation_rate", "producer_byte_rate", "request_percentage"), value
    )
    for number, value in enumerate([*FLOATS, *NO_NUMBERS])
}


class _Bridge(Silent, BaseHTTPRequestHandler):
    """Passes a request on to a service in this process, as alice."""

    def __init__(self, service: FakeService, *connection: Any) -> None:
        self.service = service
        super().__init__(*connection)

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = ask(self.service, self.command, self.path, body, self.headers["Accept"])
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        for name in ("content-type", "location"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.end_headers()
        self.wfile.write(answer.body)

    def do_POST(self) -> None:
        self.do_GET()


def ask(
    service: FakeService, method: str, path: str, body: bytes = b"", accept: str = "*/*"
) -> Answer:
    headers = [*credentials("alice"), (b"accept", accept.encode())]
    if body:
        headers.append((b"content-type", b"application/json"))
    return asyncio.run(send(service.app, method, path, headers=headers, body=[body]))


@contextmanager
def serving(world: World) -> Iterator[tuple[FakeService, str]]:
    service = FakeService()
    service.brokers.quotas.update({entity: dict(values) for entity, values in world.items()})
    with capture_logs(), served(partial(_Bridge, service)) as url:
        yield service, url


def printed(url: str, *words: str) -> bytes:
    """Return what the command writes to a pipe; it must succeed."""
    pipe, errors = io.BytesIO(), io.StringIO()
    with redirect_stdout(io.TextIOWrapper(pipe, encoding="utf-8")), redirect_stderr(errors):
        code = main([*words, "--server", url])
        sys.stdout.flush()
        assert code == 0, errors.getvalue()
        return pipe.getvalue()


COMMANDS = [
    *(("export", "--output", form) for form in ("yaml", "json", "csv")),
    *(("--describe", "--output", form) for form in ("yaml", "json", "csv")),
]
MEDIA_TYPES = {"application/yaml": "yaml", "text/csv": "csv", "application/json": "yaml"}


@pytest.mark.usefixtures("no_configuration")
@given(world=WORLDS)
@example(world=EVERY_NAME)
@example(world=EVERY_VALUE)
@settings(max_examples=size(3, 150))
def test_whatever_is_stored_plans_to_nothing(world: World):
    with serving(world) as (service, url), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "quotas"
        for command in COMMANDS:
            file.write_bytes(printed(url, *command))
            plan = printed(url, "plan", str(file)).decode()
            assert plan.splitlines()[-1] == "No changes.", command
        for media_type, document_format in MEDIA_TYPES.items():
            text = ask(service, "GET", "/quotas", accept=media_type).body
            file.write_bytes(text)
            assert printed(url, "plan", str(file)).endswith(b"No changes.\n"), media_type
            assert changes(service, text.decode(), format=document_format) == []
        lines = ask(service, "GET", "/quotas", accept="application/x-ndjson").body.decode()
        quotas = [json.loads(line) for line in lines.split("\n")[:-1]]
        assert changes(service, {"apiVersion": "quotas/v1", "quotas": quotas}) == []


def changes(service: FakeService, document: Any, **more: str) -> Any:
    answer = ask(service, "POST", PLANS, json.dumps({"document": document, **more}).encode())
    assert answer.status == 200, answer.body
    return answer.document["changes"]


@pytest.mark.usefixtures("no_configuration")
@given(
    values=st.dictionaries(
        st.sampled_from(keys_for(frozenset({"user"}))),
        st.floats(min_value=5e-324, allow_infinity=False) | st.sampled_from(FLOATS[:8]),
        min_size=1,
    ),
    java=st.booleans(),
)
@example(values=dict.fromkeys(keys_for(frozenset({"user"})), FLOATS[0]), java=True)
@settings(max_examples=size(5, 200))
def test_whatever_is_imported_is_read_back(values: dict[str, float], *, java: bool):
    entity = ClientQuotaEntity.of({"user": "alice"})
    with serving({entity: values}) as (_, url), tempfile.TemporaryDirectory() as folder:
        foreign, file = Path(folder) / "foreign", Path(folder) / "quotas"
        texts = {
            key: repr(value).upper().replace("E+", "E") if java else f"{value:.17g}"
            for key, value in values.items()
        }
        listed = ", ".join(f"{key}={text}" for key, text in texts.items())
        foreign.write_text(f"Quota configs for user-principal 'alice' are {listed}\n")
        for form in ("yaml", "json"):
            file.write_bytes(printed(url, "import", str(foreign), "--output", form))
            assert printed(url, "plan", str(file)) == b"No changes.\n"
