"""Requests that never end, connections that are too many, and clients that are slow."""

import asyncio
import itertools
import json
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from app.http.connections import OTHER_FILES, ConnectionLimits, raise_fd_limit
from app.http.receiving import ReceiveLimits
from tests.testkit.certificates import Authority, person
from tests.unit.http.raw_server import (
    LARGE_ANSWER,
    LONG,
    MANY,
    Caller,
    RawServer,
    Tls,
    eventually,
    raw_server,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
GATE = b"GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

Serve = Callable[..., RawServer]


async def refusal(server: RawServer, code: str, *chunks: bytes) -> int:
    """Send, and return the status of the refusal, after which the connection ends."""
    caller = await server.connect()
    for chunk in chunks:
        caller.send(chunk)
    answer = await caller.rest()
    head, _, body = answer.partition(b"\r\n\r\n")
    document = json.loads(body)
    assert (document["code"], document["sent_to_cluster"]) == (code, "no")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    assert f"x-request-id: {document['request_id']}".encode() in head.lower()
    caller.close()
    return int(head.split()[1])


async def calling(server: RawServer, request: bytes) -> Caller:
    """Open a connection and send."""
    caller = await server.connect()
    caller.send(request)
    return caller


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Return a function that serves with these limits until the test ends."""
    servers: list[RawServer] = []
    with ExitStack() as stack:

        def begin(
            limits: ReceiveLimits, most: ConnectionLimits = MANY, tls: Tls = None
        ) -> RawServer:
            server = stack.enter_context(raw_server(limits, most, tls))
            servers.append(server)
            return server

        yield begin
        for server in servers:
            await server.hang_up()
        await asyncio.to_thread(stack.close)


ENDLESS = {
    "a header": (b"GET / HTTP/1.1\r\nx: ", b"x" * 65536),
    "headers": (b"GET / HTTP/1.1\r\nx: ", b"x: y\r\n" * 10_000),
    "a path": (b"GET /", b"x" * 65536),
    "a trailer": (CHUNKED + b"1\r\nx\r\n0\r\nx: ", b"y" * 65536),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_what_has_no_end_is_refused_while_it_comes(serve: Serve, name: str):
    server = serve(LONG)
    begun, chunk = ENDLESS[name]
    assert await refusal(server, "headers-too-large", begun, *[chunk] * 81) == 431
    assert server.rejected("headers-too-large") == 1
    assert bool(server.echo.scopes) == (name == "a trailer")


async def test_trailers_are_no_headers(serve: Serve):
    server = serve(LONG)
    caller = await calling(server, CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer stolen\r\n\r\n")
    assert await caller.answer() == (200, b"x")
    (scope,) = server.echo.scopes
    assert [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]
    caller.close()


async def test_a_chunk_may_come_after_its_length(serve: Serve):
    server = serve(LONG)
    caller = await calling(server, CHUNKED)
    await eventually(lambda: len(server.echo.scopes) == 1)
    for length, chunk in ((b"3\r\n", b"abc"), (b"\r\n2\r\n", b"de"), (b"\r\n0\r\n", b"\r\n")):
        come = server.protocol()._bare_bytes + len(length)
        caller.send(length)
        await eventually(lambda come=come: server.protocol()._bare_bytes == come)
        caller.send(chunk)
        await eventually(lambda: server.protocol()._bare_bytes == 0)
    assert await caller.answer() == (200, b"abcde")


async def test_a_body_that_nobody_reads_is_not_taken_in(serve: Serve):
    server = serve(LONG)
    caller = await server.connect()
    size = 64 * 1024 * 1024
    caller.send(b"POST /gate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
    caller.send(b"x" * size)
    await asyncio.to_thread(server.echo.reached.wait)
    await eventually(lambda: server.protocol().flow.read_paused)
    assert len(server.protocol().cycle.body) < 512 * 1024
    server.echo.gate.set()
    assert await caller.answer() == (200, b"gate")
    caller.send(GET)
    assert await caller.answer() == (200, b"")


async def test_a_connection_is_idle_again_once_an_unread_body_has_come(serve: Serve):
    server = serve(replace(LONG, idle_s=0.1))
    caller = await calling(server, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nha")
    assert await caller.answer() == (200, b"")
    caller.send(b"lf")
    assert await caller.rest() == b""
    assert server.closed("idle") == 1


async def test_a_body_in_tiny_chunks_is_no_header(serve: Serve):
    server = serve(replace(LONG, header_bytes=1000))
    caller = await calling(server, CHUNKED)
    for _ in range(2000):
        caller.send(b"1\r\nx\r\n")
        await caller.writer.drain()
    caller.send(b"0\r\n\r\n")
    assert await caller.answer() == (200, b"x" * 2000)
    caller.close()


MALFORMED = [
    *(b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\r\nHost: a\r\n\r\n"),
    *(b"GET / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n", "GET /\u00e4 HTTP/1.1\r\n\r\n".encode()),
    *(b"GET / HTTP/%s\r\nHost: a\r\n\r\n" % version for version in (b"0.9", b"2.0", b"9.9")),
    *(b"%s / HTTP/1.1\r\n\r\n" % method for method in (b"QUOTA", b"get", b"PO ST", b"\xff")),
    *(
        b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host
        for host in (b"a\r\nHost: a", b"a, b", b"a/b", b"a@b", b"a b", b"a:b")
    ),
    *(
        POST + b"%s\r\n\r\n" % header
        for header in (
            *(b"Content-Length: %s" % text for text in (b"x", b"-1", b"+1", b"1, 2", b"0x10")),
            b"Content-Length: %d" % (2**64 + 1),
            b"Content-Length: 1\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: chunked\r\nContent-Length: 1",
            b"Content-Length: 0\r\nTransfer-Encoding: chunked",
            b"Content-Length: 1\r\nContent-Length: 2",
            *(b"Transfer-Encoding: chunked, chunked\r\n\r\n0", b"Transfer-Encoding: gzip"),
            *(b"a b: c", b"a: \x00", b": nothing", b"X-Folded: a\r\n b", b"a : b"),
        )
    ),
    b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    *(CHUNKED + length for length in (b"zz\r\n", b"xyz\r\n\r\n", b"-1\r\n\r\n")),
]
COMPRESSED = [
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: x\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
]


async def test_what_http_forbids_is_a_problem_too(serve: Serve, subtests: pytest.Subtests):
    server = serve(LONG)
    refusals = [
        *((501, "unsupported-transfer-coding", chunk) for chunk in COMPRESSED),
        *((400, "malformed-http", chunk) for chunk in MALFORMED),
    ]
    for status, code, chunk in refusals:
        with subtests.test(chunk=chunk):
            before = server.rejected(code)
            assert await refusal(server, code, chunk) == status
            assert server.rejected(code) == before + 1
            assert chunk.startswith(CHUNKED) or not server.echo.scopes
            server.echo.scopes.clear()


async def test_a_host_may_be_any_that_a_url_has(serve: Serve, subtests: pytest.Subtests):
    server = serve(LONG)
    hosts = ("", "a", "A.b-c:80", "10.0.0.1", "[2001:db8::1]", "[::1]:8080", "%61", "_a._tcp")
    requests = [f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n" for host in hosts]
    for request in [*requests, "GET / HTTP/1.0\r\n\r\n"]:
        with subtests.test(request=request):
            caller = await calling(server, request.encode())
            assert await caller.answer() == (200, b"")
            caller.close()


@pytest.mark.parametrize("rubbish", [b"\x00rubbish", b"GET / HTTP/1.1\r\nx: " + b"x" * 200_000])
async def test_a_refusal_is_never_taken_for_the_answer_to_the_request_before(
    serve: Serve, rubbish: bytes
):
    server = serve(LONG)
    caller = await calling(server, GATE)
    await asyncio.to_thread(server.echo.reached.wait)
    caller.send(rubbish)
    refused = "malformed-http" if b"\x00" in rubbish else "headers-too-large"
    await eventually(lambda: server.rejected(refused) == 1)
    server.echo.gate.set()
    assert await caller.answer() == (200, b"gate")
    assert await caller.rest() == b""


async def test_requests_that_came_at_once_are_answered_in_order(serve: Serve):
    caller = await serve(LONG).connect()
    caller.send(b"".join(POST + b"Content-Length: 1\r\n\r\n%d" % number for number in range(3)))
    assert [await caller.answer() for _ in range(3)] == [(200, b"0"), (200, b"1"), (200, b"2")]


async def test_an_absolute_address_means_its_path_and_no_other_protocol_is_taken(serve: Serve):
    server = serve(LONG)
    caller = await calling(
        server, b"GET http://elsewhere.example/large?a=b HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    assert (await caller.answer())[0] == 200
    assert (server.echo.scopes[0]["path"], server.echo.scopes[0]["query_string"]) == (
        "/large",
        b"a=b",
    )
    websocket = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    for offer in (b"Upgrade: h2c\r\n", b"Upgrade: websocket\r\n" + websocket):
        caller = await calling(server, GET[:-2] + b"Connection: Upgrade\r\n" + offer + b"\r\n")
        assert await caller.answer() == (200, b"")


OFFERS = (
    b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n",
    b"POST /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: x, upgrade\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n",
)
BODIES = (
    (b"Content-Length: %d\r\n\r\n" % len(GET), GET),
    (b"Transfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n" + GET),
)


async def test_a_body_beside_an_upgrade_is_never_read_as_a_request(
    serve: Serve, subtests: pytest.Subtests
):
    server = serve(LONG)
    for offer, (length, body), at_once in itertools.product(OFFERS, BODIES, (True, False)):
        with subtests.test(offer=offer, length=length, at_once=at_once):
            before = server.rejected("malformed-http")
            caller = await calling(server, offer + length + (body if at_once else b""))
            await eventually(lambda before=before: server.rejected("malformed-http") == before + 1)
            if not at_once:
                caller.send(body)
            answers = await caller.rest()
            assert answers.startswith(b"HTTP/1.1 400 ")
            assert answers.count(b"HTTP/1.1 ") == 1
            assert server.echo.scopes == []


async def test_requests_behind_an_upgrade_that_is_not_taken_are_answered(
    serve: Serve, subtests: pytest.Subtests
):
    server = serve(LONG)
    for offer in OFFERS[:2]:
        with subtests.test(offer=offer):
            caller = await calling(server, offer + b"\r\n" + POST + b"Content-Length: 2\r\n\r\nab")
            assert [await caller.answer() for _ in range(2)] == [(200, b""), (200, b"ab")]


async def test_many_requests_at_once_on_one_connection_are_cut_off(serve: Serve):
    server = serve(LONG)
    caller = await calling(server, GATE)
    await asyncio.to_thread(server.echo.reached.wait)
    caller.send(GET * 1000)
    await eventually(lambda: server.rejected("malformed-http") == 1)
    server.echo.gate.set()
    answers = await caller.rest()
    assert answers.count(b"HTTP/1.1 200") < 100


OTHER = "127.0.0.2"


async def answers(caller: Caller) -> bool:
    """Tell whether a request on this connection is answered."""
    caller.send(GET)
    return await caller.answer() == (200, b"")


async def working(server: RawServer, source: str = "127.0.0.1") -> Caller:
    """Return a connection whose request is being answered until the gate opens."""
    caller, before = await server.connect(source), len(server.echo.scopes)
    caller.send(GATE)
    await eventually(lambda: len(server.echo.scopes) == before + 1)
    return caller


async def test_one_connection_too_many_is_refused_while_all_are_at_work(serve: Serve):
    server = serve(LONG, ConnectionLimits(all=3))
    callers = [await working(server) for _ in range(3)]
    assert await refusal(server, "too-many-connections", GET) == 503
    assert server.dropped("refused") == 1
    callers.pop().close()
    await eventually(lambda: len(server.open_for) == 2)
    assert await answers(await server.connect())
    server.echo.gate.set()
    for caller in callers:
        assert await caller.answer() == (200, b"gate")


async def test_where_it_is_full_the_connection_goes_that_was_idle_for_longest(serve: Serve):
    server = serve(LONG, ConnectionLimits(all=3))
    busy = await working(server)
    first, second = await server.connect(), await server.connect()
    assert await answers(second)
    assert await answers(first)
    third = await server.connect()
    assert await second.rest() == b""
    assert await answers(third)
    assert await answers(first)
    server.echo.gate.set()
    assert await busy.answer() == (200, b"gate")
    assert (server.dropped("all"), server.dropped("refused")) == (1, 0)
    assert len(server.open_for) == 3


async def test_a_flood_of_connections_is_not_even_answered(serve: Serve):
    server = serve(LONG, ConnectionLimits(all=2))
    busy = [await working(server) for _ in range(2)]
    callers = [await server.connect() for _ in range(60)]
    ends = await asyncio.gather(*(caller.rest() for caller in callers))
    assert sum(not end for end in ends) >= 1
    assert server.dropped("refused") == 60
    server.echo.gate.set()
    for caller in busy:
        assert await caller.answer() == (200, b"gate")


async def test_an_address_has_its_share_and_a_proxy_has_all(serve: Serve):
    most = ConnectionLimits(
        all=20, of_an_address=5, is_exempt=lambda address: address == "127.0.0.3"
    )
    server = serve(LONG, most)
    other = await server.connect(OTHER)
    crowd = [await server.connect() for _ in range(12)]
    assert [await caller.rest() for caller in crowd[:7]] == [b""] * 7
    assert server.dropped("address") == 7
    assert [await answers(caller) for caller in (other, *crowd[7:])] == [True] * 6
    proxied = [await server.connect("127.0.0.3") for _ in range(14)]
    assert [await answers(caller) for caller in (*proxied, other)] == [True] * 15


async def test_an_address_that_is_at_work_everywhere_is_refused_and_others_are_not(serve: Serve):
    server = serve(LONG, ConnectionLimits(all=20, of_an_address=2))
    for _ in range(2):
        await working(server)
    assert await refusal(server, "too-many-connections", GET) == 503
    assert await answers(await server.connect(OTHER))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of the server and of its callers."""
    folder, authority = tmp_path_factory.mktemp("tls"), Authority()
    authority.sign(person("server"), host="127.0.0.1").write(folder / "server.pem")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=authority.own.pem)


async def test_handshakes_are_counted_and_leave_a_slot_to_others(
    serve: Serve, tls: tuple[ssl.SSLContext, ssl.SSLContext]
):
    theirs, ours = tls
    server = serve(LONG, ConnectionLimits(all=50, of_an_address=30, handshakes=16), theirs)
    secure = await server.connect(OTHER, ssl=ours)
    assert await answers(secure)
    silent = [await server.connect() for _ in range(100)]
    assert [await caller.rest() for caller in silent[:96]] == [b""] * 96
    assert server.dropped("handshakes") == 96
    assert len(server.open_for) == 5
    assert await answers(secure)
    for source in (OTHER, "127.0.0.1"):
        assert await answers(await server.connect(source, ssl=ours))


async def test_a_handshake_that_fails_leaves_nothing(
    serve: Serve, tls: tuple[ssl.SSLContext, ssl.SSLContext]
):
    server = serve(LONG, MANY, tls[0])
    for beginning in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x00", b""):
        caller = await calling(server, beginning)
        caller.writer.write_eof()
        await caller.rest()
        caller.close()
    await eventually(lambda: len(server.open_for) == 0)


def filling(listening: socket.socket) -> Iterator[int]:
    """Yield new descriptors until there are no more."""
    with suppress(OSError):
        while True:
            yield os.dup(listening.fileno())


async def test_without_a_descriptor_the_oldest_idle_connection_goes_and_nobody_else(serve: Serve):
    server = serve(LONG)
    busy = await working(server)
    idle = [await server.connect() for _ in range(3)]
    await eventually(lambda: len(server.open_for) == 4)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as late:
        late.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
        holes = list(filling(late))
        try:
            await asyncio.get_running_loop().sock_connect(late, ("127.0.0.1", server.port))
            assert await idle[0].rest() == b""
            await eventually(lambda: len(server.open_for) == 4)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for hole in holes:
                os.close(hole)
        late.send(GET)
        received = await asyncio.get_running_loop().sock_recv(late, 100)
        assert received.startswith(b"HTTP/1.1 200")
    assert server.dropped("descriptors") == 1
    assert [await answers(caller) for caller in idle[1:]] == [True, True]
    server.echo.gate.set()
    assert await busy.answer() == (200, b"gate")


async def test_two_hundred_slow_callers_do_not_disturb_a_healthy_caller(serve: Serve):
    server = serve(replace(LONG, headers_s=1.0, body_s=1.0))
    slow = [await server.connect() for _ in range(200)]
    for number, caller in enumerate(slow):
        caller.send(b"GET / HTTP/1.1\r\nx: " if number % 2 else POST + b"Content-Length: 9\r\n\r\n")
    ends = [asyncio.create_task(caller.rest()) for caller in slow[1::2]]
    healthy = await server.connect()
    while not all(end.done() for end in ends):
        for caller in slow:
            caller.send(b"x")
        healthy.send(GET)
        assert await healthy.answer() == (200, b"")
    assert server.closed("headers") == 100
    for caller in (*slow, healthy):
        caller.close()
    await eventually(lambda: server.connections() == 0)


async def test_requests_in_time_are_answered_on_one_connection(serve: Serve):
    server = serve(ReceiveLimits())
    caller = await server.connect()
    for _ in range(3):
        caller.send(GET)
        assert await caller.answer() == (200, b"")
        caller.send(POST + b"Content-Length: 5\r\n\r\nhel")
        caller.send(b"lo")
        assert await caller.answer() == (200, b"hello")
        caller.send(CHUNKED + b"3\r\nabc\r\n")
        caller.send(b"2\r\nde\r\n0\r\n\r\n")
        assert await caller.answer() == (200, b"abcde")
    caller.close()
    await eventually(lambda: server.connections() == 0)


UNREAD_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf"
LATE = [
    *(("idle", begun, False) for begun in (b"", b"\r\n", b"\r\n\r\n")),
    ("idle", GET, True),
    *(("headers", begun, False) for begun in (b"G", b"GET / HTTP/1.1\r\n", GET[:-2], GET[:-1])),
    ("body", UNREAD_BODY, True),
]


async def test_a_connection_is_closed_in_the_stage_that_lasts_too_long(
    serve: Serve, subtests: pytest.Subtests
):
    for stage, begun, is_answered in LATE:
        with subtests.test(stage=stage, begun=begun):
            server = serve(replace(LONG, **{f"{stage}_s": 0.1}))
            caller = await calling(server, begun)
            if is_answered:
                assert await caller.answer() == (200, b"")
            assert await caller.rest() == b""
            assert server.closed(stage) == 1
            assert bool(server.echo.scopes) == is_answered


UNREAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("stage", "begun", "is_answered", "drop"),
    [
        ("idle", GET, True, b"\r\n"),
        ("headers", b"GET / HTTP/1.1\r\nX: ", False, b"x"),
        ("body", UNREAD, True, b"1\r\nx\r\n"),
    ],
)
async def test_a_few_bytes_at_a_time_make_no_stage_last_longer(
    serve: Serve, stage: str, begun: bytes, drop: bytes, *, is_answered: bool
):
    server = serve(replace(LONG, **{f"{stage}_s": 0.2}))
    caller = await calling(server, begun)
    if is_answered:
        assert await caller.answer() == (200, b"")
    end = asyncio.create_task(caller.rest())
    while not end.done():
        caller.send(drop)
        await asyncio.sleep(0.01)
    assert server.closed(stage) == 1


async def test_what_is_being_answered_is_never_cut(serve: Serve):
    server = serve(ReceiveLimits(idle_s=0.05, headers_s=0.05, body_s=0.05, answer_s=0.05))
    whole, half_body, half_next = [await server.connect() for _ in range(3)]
    half_body.send(b"POST /gate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
    half_next.send(GATE + b"GET / HT")
    whole.send(GATE)
    other = await server.connect()
    assert await other.rest() == b""
    await eventually(lambda: len(server.echo.scopes) == 3)
    for _ in range(10):
        other = await server.connect()
        assert await other.rest() == b""
    server.echo.gate.set()
    for caller in (whole, half_body, half_next):
        assert await caller.answer() == (200, b"gate")
        assert await caller.rest() == b""
    assert server.closed("idle") == 12
    assert server.closed("body") == 1
    assert server.closed("headers") == 1


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
async def test_an_answer_that_is_never_read_is_cut_off(serve: Serve, last: bytes):
    server = serve(replace(LONG, answer_s=0.2))
    caller = await server.connect()
    caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
    caller.send(b"GET /large HTTP/1.1\r\nHost: a\r\n" + last + b"\r\n")
    await eventually(lambda: server.closed("answer") == 1)
    await eventually(lambda: server.connections() == 0)
    caller.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert len(await caller.rest()) < LARGE_ANSWER
    caller.close()


async def test_a_slow_reader_gets_the_whole_answer(serve: Serve):
    server = serve(replace(LONG, idle_s=0.1, answer_s=20.0))
    caller = await calling(server, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    head = await caller.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    read = 0
    while read < LARGE_ANSWER:
        read += len(await caller.reader.readexactly(LARGE_ANSWER // 64))
        await asyncio.sleep(0.01)
    assert await caller.rest() == b""
    assert (server.closed("answer"), server.closed("idle")) == (0, 1)


INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "limit", "after"),
    [
        ((5000, 5000), 1000, (5000, 5000)),
        ((1000 + OTHER_FILES, 5000), 1000, (1000 + OTHER_FILES, 5000)),
        ((256, 5000), 1000, (1000 + OTHER_FILES, 5000)),
        ((256, INFINITE), 1000, (1000 + OTHER_FILES, INFINITE)),
        ((256, 512), 512 - OTHER_FILES, (512, 512)),
        ((256, 256), 256 - OTHER_FILES, (256, 256)),
        ((50, 50), 1, (50, 50)),
        ((INFINITE, INFINITE), 1000, (INFINITE, INFINITE)),
    ],
)
def test_as_many_connections_fit_as_files_are_granted(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], limit: int, after: tuple[int, int]
):
    granted = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: granted[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: granted.append(limits))
    assert raise_fd_limit(1000) == limit
    assert granted[-1] == after
