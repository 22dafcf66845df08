"""The whole answer of ``GET /quotas`` in JSON, whose entities are written already."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.http.formats import QuotasAnswer, json_frame
from app.http.json_pieces import SEPARATOR, Piece

_AT_ONCE: Final = 4
"""Pieces in a message: about 200 KB."""


class PiecesResponse(Response):
    """Sends pieces as fast as the caller takes them; there is nothing to wait for in a thread."""

    def __init__(
        self, answer: QuotasAnswer, pieces: Sequence[Piece], headers: Mapping[str, str]
    ) -> None:
        self.status_code = 200
        self.background = None
        self._head, self._tail = json_frame(answer)
        self._texts = [piece.text for piece in pieces]
        separators = max(0, len(pieces) - 1) * len(SEPARATOR)
        length = len(self._head) + sum(map(len, self._texts)) + separators + len(self._tail)
        self.init_headers({**headers, "Content-Length": str(length)})

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it; no listener speaks anything that would wrap the messages."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        for body in chain([self._head], self._bodies()):
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": self._tail})

    def _bodies(self) -> Iterator[bytes]:
        for begin in range(0, len(self._texts), _AT_ONCE):
            body = SEPARATOR.join(self._texts[begin : begin + _AT_ONCE])
            yield SEPARATOR + body if begin else body
