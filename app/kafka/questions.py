"""Small questions to a broker, asked and answered in kafka-python's messages."""

import struct
from typing import Any, Final

from app.domain.errors import UnsupportedVersionError
from app.kafka.configuration import CLIENT_ID
from app.kafka.connection import AnswerLostError, BrokerConnection, Loss

_SMALL_ANSWER_BYTES: Final = 131_072
_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhih")
_CLIENT_ID: Final = CLIENT_ID.encode()
_NOT_DECODABLE: Final = (ValueError, LookupError, TypeError, AssertionError, struct.error)
"""What kafka-python raises on bytes that are no answer."""


def framed(request: Any, version: int, correlation_id: int) -> bytes:
    """Encode a whole request, its length and header first.

    Raises:
        ValueError: A text is not Unicode, such as a lone surrogate.
        struct.error: A text is longer than the protocol can say.
    """
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=CLIENT_ID)
    return bytes(request.encode(header=True, framed=True))


def framed_body(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Put length and header before the body of a quota request. Source: KIP-482."""
    no_tags = b"\0" if version >= 1 else b""
    header = _HEADER.pack(api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID + no_tags
    return b"".join((_LENGTH.pack(len(header) + len(body)), header, body))


def newest_common(connection: BrokerConnection, request: Any) -> int:
    """Return the newest version of a request class that the broker and kafka-python know.

    Raises:
        UnsupportedVersionError: There is none.
    """
    offered = connection.api_versions.get(request.API_KEY)
    if offered is None or offered[0] > request.max_version:
        detail = f"The broker does not offer {request.name} in a version that is known here."
        raise UnsupportedVersionError(detail, kafka_error="UNSUPPORTED_VERSION")
    return int(min(offered[1], request.max_version))


async def ask(
    connection: BrokerConnection,
    request: Any,
    version: int,
    response: Any,
    largest_answer: int = _SMALL_ANSWER_BYTES,
) -> Any:
    """Send a request and return the answer, decoded by the ``response`` class.

    Raises:
        AnswerLostError: No answer, or none that can be read.
        NotSentError: The connection is closed.
    """
    frame = framed(request, version, connection.next_correlation_id())
    payload = await connection.hand_over(frame, largest_answer)
    try:
        return response.decode(bytes(payload), version=version, header=True)
    except _NOT_DECODABLE as error:
        detail = f"The broker's answer to {request.name} cannot be read."
        raise AnswerLostError(Loss.UNREADABLE, detail) from error
