"""An alteration that was handed over: from here on it is never repeated, only listened for."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import ClientQuotaEntity
from app.kafka.broker_lease import BrokerLease
from app.kafka.connection import LARGEST_ANSWER_BYTES, AnswerLostError, closed_before
from app.kafka.messages import read_verdicts
from app.kafka.off_loop import decoded
from app.kafka.reader import UnreadableAnswerError
from app.service.cluster_ports import AlterAnswer, EntityVerdict

LISTEN_FOR_S: Final = 95.0
"""How long the answer to an alteration is listened for: 60 s in the broker's queue, 30 s of its
socket, 5 s more. Source: ``NodeToControllerChannelManager``, ``controller.socket.timeout.ms``."""


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """What is altered, encoded for one connection."""

    alterations: Sequence[ClientQuotaAlteration]
    validate_only: bool
    frame: bytes
    version: int


class LateAnswer:
    """What comes of listening on; whoever awaits it may go away without cutting that."""

    def __init__(self, listening: "asyncio.Task[AlterAnswer]") -> None:
        self._listening = listening

    def __await__(self) -> Generator[Any, None, AlterAnswer]:
        """Wait for the answer, or for the certainty that none will come."""
        return asyncio.shield(self._listening).__await__()


class AlterationUnderWay:
    """Owns the connection until the answer has come, or cannot come any more."""

    def __init__(self, request: AlterRequest, lease: BrokerLease) -> None:
        """Hand the request over; the lease is this object's only if that succeeds.

        Raises:
            NotSentError: The connection is closed; nothing was sent.
        """
        if not lease.connection.quiet:
            raise closed_before()
        self.request = request
        self._lease = lease
        self._sent_at = datetime.now(UTC)
        self._payload = lease.connection.hand_over(request.frame, LARGEST_ANSWER_BYTES)

    async def listen(self, listen_for_s: float) -> AlterAnswer:
        """Return what the broker says, or UNKNOWN; raise nothing."""
        try:
            async with asyncio.timeout(listen_for_s):
                payload = await self._payload
            verdicts = await decoded(self._read, payload, self.request.version)
        except TimeoutError:
            return self.unknown(f"No answer came within {listen_for_s:g} s.")
        except AnswerLostError as lost:
            return self.unknown(f"The broker's answer was lost: {lost.detail}")
        except UnreadableAnswerError as error:
            return self.unknown(f"The broker's answer cannot be read: {error}.")
        finally:
            self._lease.release()
        for name in {one.error.kafka_error for one in verdicts.values() if one.error}:
            self._lease.connection.note_error(name or "unnamed")
        return self._answer(verdicts, "The broker's answer does not mention this entity.")

    async def outlast_the_caller(self) -> None:
        """Listen on in a place of those who only listen; a validation is given up."""
        if self.request.validate_only:
            self._lease.connection.abort()
        else:
            await self._lease.lease.step_aside()

    def unknown(self, reason: str) -> AlterAnswer:
        """Return UNKNOWN for every entity: it may have been applied."""
        return self._answer({}, reason)

    def _read(self, payload: bytearray, version: int) -> Mapping[ClientQuotaEntity, EntityVerdict]:
        return read_verdicts(payload, version, validate_only=self.request.validate_only)

    def _answer(
        self, verdicts: Mapping[ClientQuotaEntity, EntityVerdict], otherwise: str
    ) -> AlterAnswer:
        missing = EntityVerdict(Outcome.UNKNOWN, KafkaRefusal(None, otherwise))
        entities = (alteration.entity for alteration in self.request.alterations)
        return AlterAnswer(
            {entity: verdicts.get(entity, missing) for entity in entities},
            self._lease.broker_id,
            self._sent_at,
            datetime.now(UTC),
        )
