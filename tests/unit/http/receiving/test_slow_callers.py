"""Whoever sends nothing is not waited for; whoever is being answered is not cut."""

import asyncio
from dataclasses import replace

import pytest

from app.http.receive_limits import ReceiveLimits
from tests.unit.http.raw_server import LARGE_ANSWER, LONG, eventually
from tests.unit.http.receiving.requests import CHUNKED, GATE, GET, POST, Serve


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


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"\r\n\r\n"])
async def test_a_connection_without_a_request_is_closed(serve: Serve, begun: bytes):
    server = serve(replace(LONG, idle_s=0.1))
    caller = await server.connect()
    caller.send(begun)
    assert await caller.rest() == b""
    assert server.closed("idle") == 1


async def test_a_connection_is_closed_that_stays_idle_after_a_request(serve: Serve):
    server = serve(replace(LONG, idle_s=0.1))
    caller = await server.connect()
    caller.send(GET)
    assert await caller.answer() == (200, b"")
    assert await caller.rest() == b""
    assert server.closed("idle") == 1


async def test_blanks_between_requests_do_not_keep_a_connection(serve: Serve):
    server = serve(replace(LONG, idle_s=0.2))
    caller = await server.connect()
    caller.send(GET)
    await caller.answer()
    end = asyncio.create_task(caller.rest())
    while not end.done():
        caller.send(b"\r\n")
        await asyncio.sleep(0.01)
    assert server.closed("idle") == 1


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\n", GET[:-2], GET[:-1]])
async def test_headers_that_do_not_end_are_given_up(serve: Serve, begun: bytes):
    server = serve(replace(LONG, headers_s=0.1))
    caller = await server.connect()
    caller.send(begun)
    assert await caller.rest() == b""
    assert server.closed("headers") == 1
    assert not server.echo.scopes


async def test_one_byte_at_a_time_does_not_make_headers_last_longer(serve: Serve):
    server = serve(replace(LONG, headers_s=0.2))
    caller = await server.connect()
    caller.send(b"GET / HTTP/1.1\r\nX: ")
    end = asyncio.create_task(caller.rest())
    while not end.done():
        caller.send(b"x")
        await asyncio.sleep(0.01)
    assert server.closed("headers") == 1


async def test_a_body_that_nobody_reads_is_given_up_after_the_answer(serve: Serve):
    server = serve(replace(LONG, body_s=0.1))
    caller = await server.connect()
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
    assert await caller.answer() == (200, b"")
    assert await caller.rest() == b""
    assert server.closed("body") == 1


async def test_a_body_that_nobody_reads_and_that_comes_drop_by_drop_is_given_up(serve: Serve):
    server = serve(replace(LONG, body_s=0.2))
    caller = await server.connect()
    caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert await caller.answer() == (200, b"")
    end = asyncio.create_task(caller.rest())
    while not end.done():
        caller.send(b"1\r\nx\r\n")
        await asyncio.sleep(0.01)
    assert server.closed("body") == 1


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
async def test_an_answer_that_is_never_read_is_given_up(serve: Serve, last: bytes):
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
    caller = await server.connect()
    caller.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    head = await caller.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    read = 0
    while read < LARGE_ANSWER:
        read += len(await caller.reader.readexactly(LARGE_ANSWER // 64))
        await asyncio.sleep(0.01)
    assert await caller.rest() == b""
    assert (server.closed("answer"), server.closed("idle")) == (0, 1)
