"""Requests as bytes, for what no well-behaved client would send."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final
from urllib.parse import urlsplit

import httpx

from tests.testkit.service import RunningService

DEADLINE_S: Final = 30.0


@contextmanager
def connected(service: RunningService) -> Iterator[socket.socket]:
    """Connect to the service."""
    parts = urlsplit(service.url)
    assert parts.hostname is not None
    assert parts.port is not None
    with socket.create_connection((parts.hostname, parts.port), DEADLINE_S) as connection:
        yield connection


def head(line: str, *headers: str, principal: str = "alice") -> bytes:
    """Return a request's head: its line, a host, a credential and further header lines."""
    lines = [line, "Host: quotas", *headers]
    if principal:
        lines.append(f"Authorization: Bearer {principal}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def exchange(service: RunningService, *parts: bytes) -> httpx.Response:
    """Send the bytes on a connection of their own and return the first answer.

    A server may answer and close before it has read everything.
    """
    with connected(service) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        with connection.makefile("rb") as stream:
            return read_answer(stream)


def read_answer(stream: IO[bytes]) -> httpx.Response:
    """Read one answer; more may follow on the stream."""
    line = stream.readline().decode("latin-1")
    assert line, "the service closed the connection without an answer"
    headers = httpx.Headers()
    while field := stream.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = field.partition(": ")
        headers[name] = value
    content = stream.read(int(headers.get("Content-Length", 0)))
    return httpx.Response(int(line.split(" ")[1]), headers=headers, content=content)
