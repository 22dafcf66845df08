"""Requests as bytes, what serves them, and what refuses them."""

import json
from collections.abc import Callable

from app.http.receive_limits import ReceiveLimits
from tests.unit.http.raw_server import RawServer

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
GATE = b"GET /gate HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

Serve = Callable[[ReceiveLimits], RawServer]


async def refusal(server: RawServer, code: str, *pieces: bytes) -> int:
    """Send, and return the status of the refusal, after which the connection ends."""
    caller = await server.connect()
    for piece in pieces:
        caller.send(piece)
    answer = await caller.rest()
    head, _, body = answer.partition(b"\r\n\r\n")
    document = json.loads(body)
    assert (document["code"], document["sent_to_cluster"]) == (code, "no")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    assert f"x-request-id: {document['request_id']}".encode() in head.lower()
    caller.close()
    return int(head.split()[1])
