"""What callers write stays inside the log line that repeats it, in either format."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import P, change
from tests.testkit.http import connected, head
from tests.testkit.kafka import unique
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service, write_tokens

FORGED = '{"event":"forged","level":"error"}'
ODD = (
    f"line\n{FORGED}\n",
    f"return\r{FORGED}",
    f"escape\x1b[2J\x1b]0;title\x07{FORGED}",
    f"next\x85{FORGED}\u2028{FORGED}\u2029",
    f"override\u202e{FORGED}\u2066",
)
"""Texts that are more than a line, or more than text, to a terminal or to a reader of lines."""

PRINCIPALS = ODD[3:]
"""Those that a principal may be called: it has no control characters of ASCII."""

RAW_LINES = (
    f"GET /quotas/{quote(ODD[0])} HTTP/1.1",
    f"GET /{quote(ODD[2])}?{quote(ODD[1])}={quote(ODD[3])} HTTP/1.1",
    f"GET /quotas?filter=user%3D{quote(ODD[0])}&max_age_ms={quote(ODD[2])} HTTP/1.1",
    f"DELETE /{quote(ODD[3])} HTTP/1.1",
    "GET /quotas\x1b[2J HTTP/1.1",
    "GE\x1bT / HTTP/1.1",
)
HEADERS = (
    f"X-Request-Id: {ODD[2]}",
    f"User-Agent: {ODD[2]}",
    "Authorization: Bearer a\x1b[2Jb",
    "Idempotency-Key: a\x1b[2Jb",
    "X-Forwarded-For: 192.0.2.1\x1b[2J",
)


def token_of(principal: str) -> str:
    return principal if principal == "alice" else principal.encode().hex()


@pytest.fixture(params=["json", "text"])
def talkative(
    request: pytest.FixtureRequest,
    broker: LocalKafka,
    postgres: LocalPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    _, url = migrated_database(postgres, f"talkative_{request.param}")
    folder = tmp_path_factory.mktemp("talkative")
    tokens = write_tokens(folder, ("alice", *PRINCIPALS), token_of, "odd.json")
    options = {"log_format": request.param, "log_level": "DEBUG", "tokens_file": str(tokens)}
    with running_service(folder, broker.bootstrap_servers, url, **options) as running:
        yield running


def test_no_caller_writes_a_line_of_the_log(talkative: RunningService) -> None:
    before = len(talkative.log_path.read_bytes().split(b"\n"))
    requests = 0
    for text in ODD:
        name = unique(text)
        for body in (
            {"alterations": [change({"user": name}, {P: 1024})], "reason": text},
            {"alterations": [change({"user": name}, {text: 1024})]},
            {"alterations": [{"entity": {text: name}, "ops": []}], text: text},
        ):
            talkative.api().post("/quotas/alterations", json=body)
            requests += 1
        talkative.api().get("/quotas/resolve", params={"user": text, text: text})
        talkative.api().get("/audit", params={"entity": f"user={text}", "actor": text})
        requests += 2
    for principal in PRINCIPALS:
        caller = {"Authorization": f"Bearer {token_of(principal)}"}
        assert talkative.api().get("/me", headers=caller).status_code == 200
        assert talkative.api().get("/quotas", headers=caller).status_code == 403
        requests += 2
    for line in RAW_LINES:
        ask(talkative, head(line, "Connection: close"))
    for header in HEADERS:
        ask(talkative, head("GET /quotas HTTP/1.1", header, "Connection: close"))
    assert talkative.stop() == 0
    written = talkative.log_path.read_bytes()
    lines = written.decode().removesuffix("\n").split("\n")[before - 1 :]
    odd = {
        hex(ord(sign))
        for sign in re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066]", written.decode())
    }
    assert odd == set()
    assert not [line for line in lines if line.startswith(FORGED[:8] + ':"forged')]
    if talkative.environ["QUOTAS_LOG_FORMAT"] == "json":
        events = [entry["event"] for entry in talkative.lines()]
        assert "forged" not in events
        assert events.count("request") >= requests


def ask(service: RunningService, request: bytes) -> None:
    """Send bytes, and wait until the service ends the connection."""
    with connected(service) as connection:
        connection.sendall(request)
        while connection.recv(65536):
            pass
