"""The whole answer of ``GET /quotas`` in JSON, whose entities are written already."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from starlette.responses import StreamingResponse

from app.http.quotas.formats import QuotasAnswer, json_frame
from app.http.quotas.json_pieces import SEPARATOR, Piece

_AT_ONCE: Final = 4
"""Pieces in a message: about 200 KB."""


class PiecesResponse(StreamingResponse):
    """Sends pieces as fast as the caller takes them; there is nothing to wait for in a thread."""

    def __init__(
        self, answer: QuotasAnswer, pieces: Sequence[Piece], headers: Mapping[str, str]
    ) -> None:
        head, tail = json_frame(answer)
        texts = [piece.text for piece in pieces]
        separators = max(0, len(texts) - 1) * len(SEPARATOR)
        length = len(head) + sum(map(len, texts)) + separators + len(tail)
        bodies = _bodies(head, texts, tail)
        super().__init__(bodies, headers={**headers, "Content-Length": str(length)})


async def _bodies(head: bytes, texts: Sequence[bytes], tail: bytes) -> AsyncIterator[bytes]:
    yield head
    for begin in range(0, len(texts), _AT_ONCE):
        body = SEPARATOR.join(texts[begin : begin + _AT_ONCE])
        yield SEPARATOR + body if begin else body
    yield tail
