"""Encoding and decoding that leaves the event loop where it would hold it up."""

import asyncio
import struct
from collections.abc import Callable
from typing import Final, TypeVar

from app.domain.errors import InvalidRequestError, UnsupportedVersionError
from app.kafka.connection import BrokerConnection
from app.kafka.messages import NEWEST_VERSION
from app.kafka.questions import framed_body

T = TypeVar("T")

_LARGE_BYTES: Final = 65_536
_MANY_ENTRIES: Final = 500


async def encoded(
    write: Callable[[int], bytes], api_key: int, connection: BrokerConnection, entries: int
) -> tuple[bytes, int]:
    """Return a quota request as bytes for this connection, and the version that it is in.

    Raises:
        UnsupportedVersionError: The broker does not have the API.
        InvalidRequestError: The protocol cannot say it.
    """
    version = _version(api_key, connection)
    correlation_id = connection.next_correlation_id()

    def encode() -> bytes:
        return framed_body(api_key, version, correlation_id, write(version))

    try:
        frame = encode() if entries < _MANY_ENTRIES else await asyncio.to_thread(encode)
    except (ValueError, struct.error) as error:
        detail = f"Kafka's protocol cannot say this: {error}."
        raise InvalidRequestError(detail, kafka_error="INVALID_REQUEST") from error
    return frame, version


async def decoded(read: Callable[[bytearray, int], T], payload: bytearray, version: int) -> T:
    """Read an answer; a large one in a thread."""
    if len(payload) < _LARGE_BYTES:
        return read(payload, version)
    return await asyncio.to_thread(read, payload, version)


def _version(api_key: int, connection: BrokerConnection) -> int:
    oldest, newest = connection.api_versions.get(api_key, (-1, -1))
    if newest < 0 or oldest > NEWEST_VERSION:
        detail = f"The broker does not offer API key {api_key}: it is older than Kafka 2.6."
        raise UnsupportedVersionError(detail, kafka_error="UNSUPPORTED_VERSION")
    return min(newest, NEWEST_VERSION)
