"""JSON as bytes, for every text that a caller may have sent."""

import json
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send


def json_bytes(document: Any) -> bytes:
    """Encode a document; lone surrogates are escaped, integers may have any size.

    Numbers that JSON lacks must be text already: see ``quota_value_json``.
    """
    try:
        return orjson.dumps(document)
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_texts(scalars: Sequence[Any]) -> list[bytes]:
    """Encode many strings and numbers, each like ``json_bytes``, in one call.

    Each stands on a line of its own: no text in JSON holds a line break.
    """
    if not scalars:
        return []
    try:
        whole = orjson.dumps(scalars, option=orjson.OPT_INDENT_2)
    except TypeError:
        return [json_bytes(one) for one in scalars]
    return whole.removeprefix(b"[\n  ").removesuffix(b"\n]").split(b",\n  ")


class JsonResponse(Response):
    """A JSON answer, encoded with ``json_bytes``."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return json_bytes(content)


class JsonBytes(Response):
    """A JSON answer that is encoded already."""

    def __init__(self, content: bytes) -> None:
        self.status_code = 200
        self.background = None
        self.body = content
        self.raw_headers = [
            (b"content-length", str(len(content)).encode("ascii")),
            (b"content-type", b"application/json"),
        ]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it; no listener speaks anything that would wrap the messages."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})
