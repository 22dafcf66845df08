"""The active controller of a fake cluster, and the queue of requests that a broker forwards to it.

The controller handles one event after the other and writes the metadata log. A broker forwards one
request at a time, first in first out, until the connection is lost: then everything is queued again
in reverse order.

Source: ``NodeToControllerRequestThread``, ``InterBrokerSendThread`` of Kafka 4.3.1.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple

from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_kafka.quotas import (
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


class NoAnswer(Enum):
    """What a request is answered with that waited too long."""

    TIMED_OUT = auto()


@dataclass(frozen=True)
class Patience:
    """How long a broker waits, in seconds.

    Attributes:
        socket_s: For one answer, before it drops the connection (``controller.socket.timeout.ms``).
        queue_s: From the arrival of a request on, before it answers REQUEST_TIMED_OUT.
    """

    socket_s: float = 30.0
    queue_s: float = 60.0


@dataclass(eq=False)
class _Item:
    work: Callable[[], Any]
    arrived: float
    answer: "asyncio.Future[Any]"


@dataclass(eq=False)
class _Attempt:
    """One sending of an item; what comes after the connection was lost reaches nobody."""

    item: _Item
    answered: "asyncio.Future[Any]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ForwardQueue:
    """What one broker forwards; ``losses`` counts how often it lost its connection."""

    def __init__(self, controller: FakeController, patience: Patience) -> None:
        self._controller = controller
        self._patience = patience
        self.losses = 0
        self._waiting: list[_Item] = []
        self._attempt: _Attempt | None = None
        self._held: dict[str, Callable[[], None] | None] = {}
        self._severed = False
        self._running = asyncio.Event()
        self._running.set()
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    async def ask(self, work: Callable[[], Any]) -> Any:
        """Forward a request; the answer may be ``NoAnswer``."""
        loop = asyncio.get_running_loop()
        item = _Item(work, loop.time(), loop.create_future())
        self._waiting.append(item)
        self._changed.set()
        loop.call_later(self._patience.queue_s, self._expire, item)
        return await item.answer

    @property
    def depth(self) -> int:
        """How many requests wait or are in flight."""
        return len(self._waiting) + (self._attempt is not None)

    def hold(self, what: str) -> None:
        """Hold ``requests`` or ``answers`` in flight."""
        self._held.setdefault(what, None)

    def let_go(self) -> None:
        """Let everything arrive that was held."""
        stuck, self._held = list(self._held.values()), {}
        for arrive in stuck:
            if arrive is not None:
                arrive()

    def cut(self) -> None:
        """Lose the connection and what is in flight; it is opened again at once."""
        self.losses += 1
        self._held = dict.fromkeys(self._held)
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.answered.done():
            self._conclude(attempt)
            return
        self._attempt = None
        attempt.answered.cancel()
        self._queue_again(attempt.item)

    def sever(self) -> None:
        """Lose the connection for a while."""
        self._severed = True
        self.cut()

    def mend(self) -> None:
        """Let the connection be opened again."""
        self._severed = False
        self._changed.set()

    def freeze(self) -> None:
        """Let the broker hang."""
        self._running.clear()

    def thaw(self) -> None:
        """Let it go on."""
        self._running.set()

    def forget(self) -> None:
        """Lose every request, as a broker that is killed; what was delivered stays delivered."""
        self._waiting.clear()
        if self._attempt is not None:
            self._attempt.answered.cancel()
            self._attempt = None

    def close(self) -> None:
        """Stop forwarding."""
        self._task.cancel()

    async def _work(self) -> None:
        while True:
            await self._running.wait()
            if self._severed or not self._waiting:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._attempt = attempt = _Attempt(self._waiting.pop(0))
            self._send_through("requests", partial(self._deliver, attempt))
            await asyncio.wait({attempt.answered}, timeout=self._patience.socket_s)
            await self._running.wait()
            self._conclude(attempt)

    def _conclude(self, attempt: _Attempt) -> None:
        if attempt is not self._attempt:
            return
        if not attempt.answered.done():
            self.cut()
            return
        self._attempt = None
        if not attempt.item.answer.done():
            attempt.item.answer.set_result(attempt.answered.result())

    def _deliver(self, attempt: _Attempt) -> None:
        def answered(answer: "asyncio.Future[Any]") -> None:
            self._send_through("answers", lambda: self._arrive(attempt, answer.result()))

        self._controller.deliver(attempt.item.work).add_done_callback(answered)

    def _arrive(self, attempt: _Attempt, result: Any) -> None:
        if attempt is self._attempt and not attempt.answered.done():
            attempt.answered.set_result(result)

    def _send_through(self, what: str, arrive: Callable[[], None]) -> None:
        if what in self._held:
            self._held[what] = arrive
        else:
            arrive()

    def _queue_again(self, in_flight: _Item) -> None:
        """Put first what was last, one by one, as the broker does."""
        again = [in_flight, *self._waiting]
        self._waiting.clear()
        for item in again:
            if asyncio.get_running_loop().time() - item.arrived >= self._patience.queue_s:
                self._time_out(item)
            else:
                self._waiting.insert(0, item)
        self._changed.set()

    def _expire(self, item: _Item) -> None:
        if item in self._waiting:
            self._waiting.remove(item)
            self._time_out(item)

    @staticmethod
    def _time_out(item: _Item) -> None:
        if not item.answer.done():
            item.answer.set_result(NoAnswer.TIMED_OUT)
