"""The active controller of a fake cluster: one event after the other, and the metadata log."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_broker_quotas import (
    LARGEST_BATCH_BYTES,
    UNKNOWN_SERVER_ERROR,
    Change,
    Entry,
    Values,
    Verdict,
    apply,
    batch_bytes,
    for_all,
    judge,
)

CONTROLLER_ID: Final = 100
_FIRST_OFFSET: Final = 10
_UNEXPECTED: Final = "The server experienced an unexpected error when processing the request."

Codes = int | Mapping[ClientQuotaEntity, int]


class Applied(NamedTuple):
    """One record that was appended to the metadata log: the oracle.

    ``at`` is by ``time.monotonic``, which all processes of a machine share; ``value`` is null for a
    removal; ``request`` is the number of the alteration that it came with, 0 for none.
    """

    at: float
    entity: ClientQuotaEntity
    key: str
    value: float | None
    request: int


class Batch(NamedTuple):
    """Records that become visible together; ``end`` is the offset after the last."""

    end: int
    committed_at: float
    changes: Sequence[Change]


class _Delivery(NamedTuple):
    work: Callable[[], Any]
    answer: "asyncio.Future[Any]"
    epoch: int


class FakeController:
    """Handles what is delivered in order; while paused, what is delivered stays in its buffers.

    Attributes:
        apply_log: Every record that was ever appended.
        batches: The same as brokers fetch it.
        quotas: What holds now, by the log.
        commit_s: How long an append takes to be committed and answered, in seconds.
    """

    def __init__(self, resigned: Callable[[], None]) -> None:
        self.epoch = 1
        self.commit_s = 0.0
        self.apply_log: list[Applied] = []
        self.batches: list[Batch] = []
        self.quotas: dict[ClientQuotaEntity, Values] = {}
        self._resigned = resigned
        self._inbox: list[_Delivery] = []
        self._paused = False
        self._resigns = False

    @property
    def high_watermark(self) -> int:
        """The offset up to which everything is committed."""
        now = time.monotonic()
        ends = (batch.end for batch in self.batches if batch.committed_at <= now)
        return max(ends, default=_FIRST_OFFSET)

    def end_of(self, batches: int) -> int:
        """Return the log end offset of who has so many batches."""
        return self.batches[batches - 1].end if batches else _FIRST_OFFSET

    def deliver(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Put an event into the queue; its answer may never come."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Delivery(work, answer, self.epoch))
        self._handle_inbox()
        return answer

    def pause(self) -> None:
        """Let it hang."""
        self._paused = True

    def resume(self) -> None:
        """Let it go on, with everything that was delivered meanwhile."""
        self._paused = False
        self._handle_inbox()

    def change(self, epochs: int = 1) -> None:
        """Let another take over: what was delivered to this one and not handled is gone."""
        self.epoch += epochs
        self._inbox.clear()
        self._paused = False

    def alter(
        self,
        number: int,
        entries: Sequence[Entry],
        *,
        validate_only: bool,
        refused: Codes | None = None,
    ) -> list[Verdict]:
        """Judge an alteration and append what follows from it."""
        spared = [entry for entry in entries if code_of(refused, entry.entity) is None]
        verdicts, changes = judge(spared, self.quotas)
        verdicts += [
            Verdict(entry.entity, code, None)
            for entry in entries
            if (code := code_of(refused, entry.entity)) is not None
        ]
        if not validate_only:
            if batch_bytes(changes) > LARGEST_BATCH_BYTES:
                self._resigns = True
                return for_all(entries, UNKNOWN_SERVER_ERROR, _UNEXPECTED)
            self.append(number, changes)
        return verdicts

    def append(self, number: int, changes: Sequence[Change]) -> None:
        """Write records as one batch; without any nothing is written."""
        if not changes:
            return
        at = time.monotonic()
        self.batches.append(
            Batch(self.end_of(len(self.batches)) + len(changes), at + self.commit_s, changes)
        )
        for change in changes:
            apply(change, self.quotas)
            self.apply_log.append(Applied(at, *change, number))

    def _handle_inbox(self) -> None:
        loop = asyncio.get_running_loop()
        while self._inbox and not self._paused:
            delivery = self._inbox.pop(0)
            loop.call_later(self.commit_s, self._tell, delivery, delivery.work())

    def _tell(self, delivery: _Delivery, result: Any) -> None:
        if delivery.epoch == self.epoch and not delivery.answer.done():
            delivery.answer.set_result(result)
        if self._resigns:
            self._resigns = False
            delivery.answer.add_done_callback(lambda _: self._resigned())


def code_of(codes: Codes | None, entity: ClientQuotaEntity) -> int | None:
    """Return the code that is meant for an entity."""
    return codes if codes is None or isinstance(codes, int) else codes.get(entity)
