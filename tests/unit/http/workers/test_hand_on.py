"""Pages that another worker keeps: which request goes where, and what of it survives the way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from app.http.metrics import HttpMetrics
from app.http.page_tokens import PageTokens, query_fingerprint
from app.http.receive_limits import ReceiveLimits
from app.http.receiving import receiving_protocol
from app.http.workers.board import Board
from app.http.workers.carried import HEADER
from app.http.workers.hand_on import HandOn
from app.http.workers.private_app import COUNTED, PrivateApp
from app.http.workers.team import Team, new_team

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRINT = query_fingerprint("quotas", {})


class Answering:
    """An application that answers with what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body = json.dumps([self.name, scope["query_string"].decode()]).encode()
        headers = [(b"etag", b'"x"'), (b"x-request-id", b"r-1")]
        await send({"type": "http.response.start", "status": 203, "headers": headers})
        await send({"type": "http.response.body", "body": body[:3], "more_body": True})
        await send({"type": "http.response.body", "body": body[3:]})


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(3, tmp_path, Board(3), mine=1)


@asynccontextmanager
async def listening(app: Answering, path: Path) -> AsyncIterator[None]:
    """Have an application listen as a worker does."""
    config = uvicorn.Config(PrivateApp(app, lambda: b"counted"), log_config=None)
    config.load()
    state = uvicorn.Server(config).server_state
    connections = receiving_protocol(ReceiveLimits(), HttpMetrics())
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: connections(config, state, {}), str(path))
    try:
        yield
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def token(snapshot: object) -> str:
    return PageTokens(b"secret").make({"snapshot": snapshot, "position": 1}, PRINT)


def scope(query: str, **more: Any) -> Scope:
    return {
        "type": "http",
        "method": "GET",
        "path": "/quotas",
        "raw_path": b"/quotas",
        "query_string": query.encode(),
        "headers": [(b"host", b"q:1"), (b"authorization", b"Bearer a"), (b"connection", b"close")],
        "client": ("192.0.2.7", 4711),
        "server": ("127.0.0.1", 8080),
        "scheme": "https",
        "extensions": {"tls": {"client_cert_chain": [PEM]}},
        **more,
    }


async def ask(app: HandOn, asked: Scope) -> tuple[int, dict[bytes, bytes], Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await app(asked, receive, send)
    body = b"".join(message["body"] for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(body)


async def test_a_page_is_answered_by_the_worker_that_keeps_it(team: Team):
    here, there = Answering("here"), Answering("there")
    query = f"filter=user%3Da%2Bb&page_token={token('2.abc')}"
    async with listening(there, team.socket_of(2)):
        status, headers, body = await ask(HandOn(here, team), scope(query))
    assert (status, body) == (203, ["there", query])
    assert headers[b"etag"] == b'"x"'
    assert b"transfer-encoding" not in headers
    assert b"date" not in headers
    assert not here.scopes


async def test_the_head_of_a_page_is_asked_of_that_worker_too(team: Team):
    here, there = Answering("here"), Answering("there")
    asked = scope(f"page_token={token('2.abc')}", method="HEAD")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with listening(there, team.socket_of(2)):
        await HandOn(here, team)(asked, None, send)  # type: ignore[arg-type]
    assert [one["method"] for one in there.scopes] == ["HEAD"]
    assert (sent[0]["status"], sent[1]["body"]) == (203, b"")
    assert not here.scopes


async def test_who_asked_survives_the_way(team: Team):
    there = Answering("there")
    async with listening(there, team.socket_of(2)):
        await ask(HandOn(Answering("here"), team), scope(f"page_token={token('2.a')}"))
    (came,) = there.scopes
    assert came["client"] == ("192.0.2.7", 4711)
    assert came["scheme"] == "https"
    assert came["extensions"] == {"tls": {"client_cert_chain": [PEM]}}
    assert dict(came["headers"])[b"authorization"] == b"Bearer a"
    assert dict(came["headers"])[b"host"] == b"q:1"
    assert HEADER not in dict(came["headers"])


async def test_a_caller_cannot_say_who_it_is(team: Team):
    there = Answering("there")
    forged = (HEADER, json.dumps({"client": ["127.0.0.1", 1], "scheme": "https"}).encode())
    asked = scope(f"page_token={token('2.a')}")
    asked["headers"].append(forged)
    async with listening(there, team.socket_of(2)):
        await ask(HandOn(Answering("here"), team), asked)
    assert there.scopes[0]["client"] == ("192.0.2.7", 4711)


MINE = token("1.abc")


@pytest.mark.parametrize(
    ("query", "more"),
    [
        ("", {}),
        (f"page_token={MINE}", {}),
        (f"page_token={token('4.abc')}", {}),
        (f"page_token={token('0.abc')}", {}),
        (f"page_token={token('2')}", {}),
        (f"page_token={token('9' * 5000 + '.a')}", {}),
        (f"page_token={token(None)}", {}),
        (f"page_token={token({'a': 1})}", {}),
        (f"page_token={token('2.a')}&page_token={token('2.a')}", {}),
        (f"page_token={token('2.a')}", {"method": "POST"}),
        (f"page_token={token('2.a')}", {"path": "/audit"}),
        ("page_token=", {}),
        ("page_token=%00", {}),
        ("page_token=AAAA", {}),
    ],
    ids=[
        "no token",
        "a token of this worker",
        "a worker that does not exist",
        "the parent",
        "no snapshot",
        "a number that is too long",
        "null",
        "an object",
        "two tokens",
        "another method",
        "another path",
        "an empty token",
        "a null byte",
        "a token that is too short",
    ],
)
async def test_everything_else_is_answered_here(team: Team, query: str, more: dict[str, Any]):
    here, there = Answering("here"), Answering("there")
    async with listening(there, team.socket_of(2)):
        assert (await ask(HandOn(here, team), scope(query, **more)))[2][0] == "here"
    assert not there.scopes


@pytest.mark.parametrize("leave", [lambda path: None, lambda path: path.touch()])
async def test_a_worker_that_has_died_leaves_the_answer_to_this_one(
    team: Team, leave: Callable[[Path], None]
):
    leave(team.socket_of(2))
    answer = await ask(HandOn(Answering("here"), team), scope(f"page_token={token('2.a')}"))
    assert answer[2][0] == "here"


async def test_what_nobody_handed_on_is_refused_and_what_was_counted_is_told(team: Team):
    app = Answering("there")
    private = PrivateApp(app, lambda: b"[1]")
    assert (await ask(private, scope("", path=COUNTED)))[2] == [1]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hands on"):
        await ask(private, scope(""))  # type: ignore[arg-type]
    assert not app.scopes


def test_the_folder_of_a_team_is_for_its_user_alone_and_goes_with_it():
    team = new_team(2)
    assert team.folder.stat().st_mode & 0o777 == 0o700
    assert len(team.secret) == 32
    team.socket_of(2).touch()
    team.join(2)
    assert not team.socket_of(2).exists()
    assert (team.others(), team.board.mine) == ([1], 2)
    team.disband()
    assert not team.folder.exists()


def test_a_team_needs_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("app.http.workers.team._FOLDERS", (str(deep),))
    with pytest.raises(OSError, match="too long"):
        new_team(2)
    assert not list(deep.iterdir())
