"""What does not end, is too large or no HTTP is refused while it comes, and not taken in."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.http.raw_server import LONG, eventually
from tests.unit.http.receiving.requests import CHUNKED, GATE, GET, Serve, refusal


@pytest.mark.parametrize(
    "piece",
    [
        b"x" * 65536,
        b"x: y\r\n" * 10_000,
        b"GET /" + b"x" * 65536,
    ],
    ids=["one", "many", "path"],
)
async def test_endless_headers_are_refused_while_they_come(serve: Serve, piece: bytes):
    server = serve(LONG)
    begun = b"" if piece.startswith(b"GET") else b"GET / HTTP/1.1\r\nx: "
    pieces = [begun, piece, *[piece.removeprefix(b"GET /")] * 80]
    assert await refusal(server, "headers-too-large", *pieces) == 431
    assert server.rejected("headers-too-large") == 1
    assert not server.echo.scopes


async def test_endless_trailers_are_refused_while_they_come(serve: Serve):
    server = serve(LONG)
    pieces = [CHUNKED + b"1\r\nx\r\n0\r\nx: ", *[b"y" * 65536] * 80]
    assert await refusal(server, "headers-too-large", *pieces) == 431


async def test_trailers_are_no_headers(serve: Serve):
    server = serve(LONG)
    caller = await server.connect()
    caller.send(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer stolen\r\n\r\n")
    assert await caller.answer() == (200, b"x")
    (scope,) = server.echo.scopes
    assert [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]
    caller.close()


async def test_a_chunk_may_come_after_its_length(serve: Serve):
    server = serve(LONG)
    caller = await server.connect()
    caller.send(CHUNKED)
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
    caller = await server.connect()
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nha")
    assert await caller.answer() == (200, b"")
    caller.send(b"lf")
    assert await caller.rest() == b""
    assert server.closed("idle") == 1


async def test_a_body_in_tiny_chunks_is_no_header(serve: Serve):
    server = serve(replace(LONG, header_bytes=1000))
    caller = await server.connect()
    caller.send(CHUNKED)
    for _ in range(2000):
        caller.send(b"1\r\nx\r\n")
        await caller.writer.drain()
    caller.send(b"0\r\n\r\n")
    assert await caller.answer() == (200, b"x" * 2000)
    caller.close()


@pytest.mark.parametrize(
    "piece",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
        b"GET / HTTP/1.1\r\na: \x00\r\n\r\n",
        "GET /\u00e4 HTTP/1.1\r\n\r\n".encode(),
        CHUNKED + b"zz\r\n",
    ],
)
async def test_what_is_not_http_is_a_problem_too(serve: Serve, piece: bytes):
    server = serve(LONG)
    assert await refusal(server, "malformed-http", piece) == 400
    assert server.rejected("malformed-http") == 1


@pytest.mark.parametrize("rubbish", [b"\x00rubbish", b"GET / HTTP/1.1\r\nx: " + b"x" * 200_000])
async def test_a_refusal_is_never_taken_for_the_answer_to_the_request_before(
    serve: Serve, rubbish: bytes
):
    server = serve(LONG)
    caller = await server.connect()
    caller.send(GATE)
    await asyncio.to_thread(server.echo.reached.wait)
    caller.send(rubbish)
    refused = "malformed-http" if b"\x00" in rubbish else "headers-too-large"
    await eventually(lambda: server.rejected(refused) == 1)
    server.echo.gate.set()
    assert await caller.answer() == (200, b"gate")
    assert await caller.rest() == b""
