"""Reads: what may be asked again on another connection when one breaks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from app.domain.errors import BrokerError, NotSentError, Retry
from app.kafka.broker_lease import BrokerLease
from app.kafka.brokers import Brokers
from app.kafka.connection import UNREACHABLE, AnswerLostError, Loss
from app.kafka.pool import Purpose

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
            brokers.distrust(lease.address)
            if lost.loss is not Loss.CLOSED or tries == _TRIES:
                raise _failure(lost) from lost
        except TimeoutError as error:
            if purpose is Purpose.QUORUM:
                brokers.doubt()
            else:
                brokers.distrust(lease.address)
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
