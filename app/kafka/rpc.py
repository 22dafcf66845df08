"""Requests to a broker: repeated where they only read, coded beside the event loop where large."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    NotSentError,
    Retry,
    UnsupportedVersionError,
)
from app.kafka.cluster_client import Brokers
from app.kafka.connection import UNREACHABLE, AnswerLostError, BrokerConnection, Loss, framed_body
from app.kafka.pool import BrokerLease, Purpose
from app.kafka.quota_messages import NEWEST_VERSION
from app.service.runtime.offload import off_loop

T = TypeVar("T")

_TRIES: Final = 3


async def read(
    brokers: Brokers,
    question: Callable[[BrokerLease], Awaitable[T]],
    *,
    broker_id: int | None = None,
    timeout_s: float,
    purpose: Purpose = Purpose.READ,
) -> T:
    """Put a question that changes nothing to a broker; null picks one.

    Where it is about the quorum the broker passes it on, so that its silence is not its own.

    Raises:
        NotSentError: No broker could be reached, or it did not answer in time.
        BrokerError: The answer cannot be read.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    tries = 0
    while True:
        tries += 1
        lease = await brokers.lease(broker_id, purpose, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                return await question(lease)
        except AnswerLostError as lost:
            brokers.mark_failed(lease.address)
            if lost.loss is not Loss.CLOSED or tries == _TRIES:
                raise _failure(lost) from lost
        except TimeoutError as error:
            if purpose is Purpose.QUORUM:
                brokers.invalidate_metadata()
            else:
                brokers.mark_failed(lease.address)
            detail = f"Broker {lease.broker_id} did not answer within {timeout_s:g} s."
            raise NotSentError(detail, code=UNREACHABLE) from error
        finally:
            lease.release()


def _failure(lost: AnswerLostError) -> BrokerError | NotSentError:
    match lost.loss:
        case Loss.CLOSED:
            return NotSentError(f"No broker answered: {lost.detail}", code=UNREACHABLE)
        case Loss.TOO_LARGE:
            return BrokerError(lost.detail, code="broker-answer-too-large")
        case Loss.UNREADABLE:
            detail = f"The broker's answer cannot be read: {lost.detail}"
            return BrokerError(detail, code="broker-answer-unreadable", retry=Retry.SAFE)


_BYTES_OF_AN_ENTRY: Final = 300
"""Reading so many takes as long as one item of other work."""


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
        frame = await off_loop(entries, encode)
    except (ValueError, struct.error) as error:
        detail = f"Kafka's protocol cannot say this: {error}."
        raise InvalidRequestError(detail, kafka_error="INVALID_REQUEST") from error
    return frame, version


async def decoded(
    read: Callable[[bytes | bytearray, int], T], payload: bytes | bytearray, version: int
) -> T:
    """Read an answer; a large one in a thread."""
    return await off_loop(len(payload) // _BYTES_OF_AN_ENTRY, read, payload, version)


def _version(api_key: int, connection: BrokerConnection) -> int:
    oldest, newest = connection.api_versions.get(api_key, (-1, -1))
    if newest < 0 or oldest > NEWEST_VERSION:
        detail = f"The broker does not offer API key {api_key}: it is older than Kafka 2.6."
        raise UnsupportedVersionError(detail, kafka_error="UNSUPPORTED_VERSION")
    return min(newest, NEWEST_VERSION)
