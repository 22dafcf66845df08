"""What of a request must survive the way from one worker to another: who sent it, and how.

It travels in a header that nobody reads but the application behind a worker's Unix socket.
"""

import json
from collections.abc import Sequence
from typing import Final

from starlette.types import Scope

HEADER: Final = b"x-quotas-handed-on"

RawHeaders = list[tuple[bytes, bytes]]

_OF_THE_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        HEADER,
    }
)
"""Headers that one connection has for itself. Source: RFC 9110, 7.6.1."""

_MADE_AGAIN: Final = frozenset({b"connection", b"date", b"keep-alive", b"transfer-encoding"})
"""Headers that the server puts on each of its answers, or that are of the connection."""


def headers_to_send(scope: Scope) -> RawHeaders:
    """Return the headers of a request without a body as another worker is sent them."""
    kept = [pair for pair in scope["headers"] if pair[0].lower() not in _OF_THE_CONNECTION]
    tls = scope.get("extensions", {}).get("tls")
    carried = {name: scope.get(name) for name in ("client", "server", "scheme")} | {"tls": tls}
    return [*kept, (HEADER, json.dumps(carried).encode("ascii"))]


def headers_to_answer(headers: Sequence[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of another worker's answer as the caller is sent them."""
    return [(name, value) for name, value in headers if name.lower() not in _MADE_AGAIN]


def as_it_came(scope: Scope) -> Scope:
    """Return a request as the worker had it that handed it on.

    Raises:
        ValueError: Nothing was handed on.
    """
    carried = [value for name, value in scope["headers"] if name == HEADER]
    if len(carried) != 1:
        message = "this socket takes what another worker hands on, and nothing else"
        raise ValueError(message)
    came = json.loads(carried[0])
    client, server = (came[name] and tuple(came[name]) for name in ("client", "server"))
    extensions = {} if came["tls"] is None else {"tls": came["tls"]}
    return {
        **scope,
        "headers": [pair for pair in scope["headers"] if pair[0] != HEADER],
        "client": client,
        "server": server,
        "scheme": came["scheme"],
        "extensions": extensions,
    }
