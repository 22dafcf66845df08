"""Too many requests on a connection, and too many connections, disturb nobody else."""

import asyncio
from dataclasses import replace

from tests.unit.http.raw_server import LONG, eventually
from tests.unit.http.receiving.requests import GATE, GET, POST, Serve, refusal


async def test_many_requests_at_once_on_one_connection_are_cut_off(serve: Serve):
    server = serve(LONG)
    caller = await server.connect()
    caller.send(GATE)
    await asyncio.to_thread(server.echo.reached.wait)
    caller.send(GET * 1000)
    await eventually(lambda: server.rejected("malformed-http") == 1)
    server.echo.gate.set()
    answers = await caller.rest()
    assert answers.count(b"HTTP/1.1 200") < 100


async def test_one_connection_too_many_is_refused(serve: Serve):
    server = serve(replace(LONG, connections=3))
    callers = [await server.connect() for _ in range(3)]
    for caller in callers:
        caller.send(GET)
        assert await caller.answer() == (200, b"")
    assert await refusal(server, "too-many-connections", GET) == 503
    callers.pop().close()
    await eventually(lambda: server.connections() == 2)
    caller = await server.connect()
    caller.send(GET)
    assert await caller.answer() == (200, b"")
    for caller in callers:
        caller.close()


async def test_a_flood_of_connections_is_not_even_answered(serve: Serve):
    server = serve(replace(LONG, connections=2))
    callers = [await server.connect() for _ in range(20)]
    ends = await asyncio.gather(*(caller.rest() for caller in callers[2:]))
    assert sum(not end for end in ends) >= 1
    callers[0].send(GET)
    assert await callers[0].answer() == (200, b"")
    assert server.rejected("too-many-connections") == 18
    for caller in callers:
        caller.close()


async def test_two_hundred_slow_callers_do_not_disturb_a_healthy_one(serve: Serve):
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
