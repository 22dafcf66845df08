"""Group commit: alterations that arrive while one is in flight share the next request.

A broker forwards alterations to the controller one at a time, each for as long as the metadata
log lingers: about 27 ms. One request of many entities takes as long as one of one.
"""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES, encoded_bytes
from app.service.clock import boot_time
from app.service.cluster_ports import AlterAnswer, ClientQuotaAdmin, EntityVerdict
from app.service.shared_turns import SharedTurns

PATIENCE_S: Final = 1.0
"""A request without an answer for so long holds up nobody else."""

LARGEST_SHARING: Final = 500
"""A request of more entities goes by itself: it is its own group."""


@dataclass(frozen=True, slots=True)
class _Passenger:
    """What one caller sends, and until when by ``boot_time``."""

    alterations: Sequence[ClientQuotaAlteration]
    broker_id: int | None
    send_by: float


class SharedSending:
    """Sends alterations whose intents are committed; each caller gets his own verdicts.

    Source of the bounds: ``QuorumController.MAX_RECORDS_PER_USER_OP``; the controller refuses a
    request beyond them as a whole, so a neighbour's size must not count.
    """

    def __init__(self, admin: ClientQuotaAdmin) -> None:
        self._admin = admin
        self._turns = SharedTurns(self._send, _Request, patience_s=PATIENCE_S)

    async def send(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        broker_id: int | None,
        send_by: float,
    ) -> AlterAnswer:
        """Alter, in one request with whoever else is waiting.

        Args:
            alterations: Of entities that nobody else alters meanwhile.
            broker_id: The broker to send through; null picks one.
            send_by: Until when it may be handed over, by ``boot_time``.

        Raises:
            NotSentError: Not one byte was handed to a socket, or it was too late for that.
            QuotaError: As ``ClientQuotaAdmin.alter_client_quotas``.
        """
        return await self._turns.take(_Passenger(alterations, broker_id, send_by))

    async def _send(self, passengers: Sequence[_Passenger]) -> Sequence[AlterAnswer | Exception]:
        in_time = _in_time(passengers)
        while in_time:
            try:
                answer = await self._admin.alter_client_quotas(
                    [each for one in in_time for each in one.alterations],
                    validate_only=False,
                    broker_id=in_time[0].broker_id,
                    send_by=min(one.send_by for one in in_time),
                )
            except NotSentError:
                before, in_time = in_time, _in_time(in_time)
                if len(in_time) == len(before):
                    raise  # it was not for lack of time
            else:
                sent = set(map(id, in_time))
                return [
                    _part_of(answer, one) if id(one) in sent else _too_late() for one in passengers
                ]
        return [_too_late() for _ in passengers]


def _in_time(passengers: Sequence[_Passenger]) -> list[_Passenger]:
    now = boot_time()
    return [one for one in passengers if one.send_by >= now]


class _Request:
    """One request while it fills."""

    def __init__(self) -> None:
        self._brokers: set[int | None] = set()
        self._entities: set[ClientQuotaEntity] = set()
        self._changes = 0
        self._bytes = 0

    def __call__(self, passenger: _Passenger) -> bool:
        """Take one more in, if the controller takes them all and no entity is there twice."""
        entities = {one.entity for one in passenger.alterations}
        brokers = self._brokers | {passenger.broker_id}
        changes = self._changes + sum(len(one.ops) for one in passenger.alterations)
        if len(entities) > LARGEST_SHARING:
            size = MAX_ENCODED_BYTES + 1
        else:
            size = self._bytes + sum(map(encoded_bytes, passenger.alterations))
        fits = (
            len(brokers) == 1
            and changes <= MAX_CHANGES
            and size <= MAX_ENCODED_BYTES
            and self._entities.isdisjoint(entities)
        )
        if fits or not self._brokers:
            self._brokers, self._changes, self._bytes = brokers, changes, size
            self._entities |= entities
        return fits


class _LatePart:
    """One caller's part of an answer that is still listened for."""

    def __init__(self, late: Awaitable[AlterAnswer], passenger: _Passenger) -> None:
        self._late = late
        self._passenger = passenger

    def __await__(self) -> Generator[Any, None, AlterAnswer]:
        """Wait for it as the whole."""
        answer = yield from self._late.__await__()
        return _part_of(answer, self._passenger)


def _part_of(answer: AlterAnswer, passenger: _Passenger) -> AlterAnswer:
    verdicts: Mapping[ClientQuotaEntity, EntityVerdict] = {
        one.entity: answer.verdicts[one.entity] for one in passenger.alterations
    }
    late = None if answer.late is None else _LatePart(answer.late, passenger)
    return replace(answer, verdicts=verdicts, late=late)


def _too_late() -> NotSentError:
    return NotSentError("Not sent: it was too late after the intent.")
