"""The active controller of a fake cluster, and the queue of requests that a broker forwards to it.

The controller handles one event after the other and writes the metadata log. A broker forwards one
request at a time, first in first out, until the connection is lost: then everything is queued again
in reverse order.

Source: ``NodeToControllerRequestThread``, ``InterBrokerSendThread`` of Kafka 4.3.1.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_kafka.messages import Alteration
from tests.testkit.fake_kafka.quotas import Values, Verdict, apply, changes_of, for_all
from tests.testkit.history.events import LogRecord, Write

CONTROLLER_ID: Final = 100
FIRST_OFFSET: Final = 10
_CLOCKS_DIFFER: Final = timedelta(milliseconds=1)


class FakeController:
    """Handles what is delivered in order; while paused, what is delivered stays in its buffers.

    Attributes:
        apply_log: Every record that was ever appended: the oracle.
        quotas: What holds now, by the log.
    """

    def __init__(self) -> None:
        self.epoch = 1
        self.apply_log: list[LogRecord] = []
        self.quotas: dict[ClientQuotaEntity, Values] = {}
        self._inbox: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._paused = False

    def deliver(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Put an event into the queue; its answer may never come."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.append((work, answer))
        self._handle_inbox()
        return answer

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        """Let it go on, with everything that was delivered meanwhile."""
        self._paused = False
        self._handle_inbox()

    def change(self) -> None:
        """Let another take over: what was delivered to this one and not handled is gone."""
        self.epoch += 1
        self._inbox.clear()
        self._paused = False

    def alter(self, alteration: Alteration, refused: int | None = None) -> list[Verdict]:
        """Append what follows from an alteration, unless it is refused with a code."""
        if refused is None and not alteration.validate_only:
            self.append(changes_of(alteration.entries, self.quotas))
        return for_all(alteration.entries, refused or 0, None)

    def append(self, changes: Sequence[Write]) -> None:
        """Write records as one batch, which becomes visible as a whole."""
        at = datetime.now(UTC)
        for change in changes:
            apply(change, self.quotas)
            self.apply_log.append(LogRecord(at, change, at + _CLOCKS_DIFFER))

    def _handle_inbox(self) -> None:
        while self._inbox and not self._paused:
            work, answer = self._inbox.pop(0)
            answer.set_result(work())


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
        self._running = asyncio.Event()
        self._running.set()
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    async def ask(self, work: Callable[[], Any]) -> Any:
        """Forward a request; the answer is null where it waited too long."""
        loop = asyncio.get_running_loop()
        item = _Item(work, loop.time(), loop.create_future())
        self._waiting.append(item)
        self._changed.set()
        loop.call_later(self._patience.queue_s, self._expire, item)
        return await item.answer

    def hold(self, what: str) -> None:
        """Hold ``requests`` or ``answers`` in flight."""
        self._held.setdefault(what, None)

    def let_go(self) -> None:
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

    def freeze(self) -> None:
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    def forget(self) -> None:
        """Lose every request, as a broker that is killed; what was delivered stays delivered."""
        self._waiting.clear()
        if self._attempt is not None:
            self._attempt.answered.cancel()
            self._attempt = None

    def close(self) -> None:
        self._task.cancel()

    async def _work(self) -> None:
        while True:
            await self._running.wait()
            if not self._waiting:
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
            item.answer.set_result(None)
