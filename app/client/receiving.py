"""Answers as they are read: no more of them than memory is for, and JSON of any depth."""

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import httpx

MOST_BYTES: Final = 256 * 2**20
"""The longest answer: that of 1,000,000 entities has 200 MiB."""

_HIGHEST_RATIO: Final = 200
"""How many times longer than what was sent an unpacked answer may be; quotas reach 30."""

_CHUNK: Final = 2**16
_FREE: Final = 2**20
"""Up to so many bytes the ratio does not count."""

_OF_THE_TRANSFER: Final = ("content-encoding", "content-length", "transfer-encoding")


class TooLongError(httpx.HTTPError):
    """An answer is longer than any of the service."""


def send(
    client: httpx.Client, request: httpx.Request, *, redirects: bool = False
) -> httpx.Response:
    """Send a request and return the answer with its whole content.

    Raises:
        httpx.HTTPError: There is no answer, or it is too long.
    """
    try:
        answer = client.send(request, stream=True, follow_redirects=redirects)
    except httpx.InvalidURL as error:  # of its Location, which httpx reads even to ignore it
        raise httpx.RemoteProtocolError("it redirects to no address") from error
    try:
        content = b"".join(_content(answer))
    finally:
        answer.close()
    headers = [
        (name, text)
        for name, text in answer.headers.raw
        if name.decode("latin-1").lower() not in _OF_THE_TRANSFER
    ]
    return httpx.Response(
        answer.status_code, headers=headers, content=content, request=answer.request
    )


def _content(answer: httpx.Response) -> Iterator[bytes]:
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise TooLongError(f"its content is {encoding!r:.40}, which was not asked for")
    unpacking = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    received = length = 0
    for raw in answer.iter_raw(_CHUNK):
        received += len(raw)
        for chunk in [raw] if unpacking is None else _unpack(unpacking, raw):
            length += len(chunk)
            if length > MOST_BYTES or length > max(_FREE, _HIGHEST_RATIO * received):
                raise TooLongError("its answer is longer than any of the quota service")
            yield chunk


def _unpack(unpacking: Any, raw: bytes) -> Iterator[bytes]:
    try:
        while raw:
            yield unpacking.decompress(raw, _CHUNK)
            raw = unpacking.unconsumed_tail
    except zlib.error as error:
        raise httpx.DecodingError(str(error)) from error


def json_of(answer: httpx.Response) -> Any:
    """Return the JSON of an answer; null where it is none."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None
