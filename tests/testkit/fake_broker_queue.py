"""The way from a broker to the controller: one request at a time, first in first out.

That is, until the connection is lost: then everything is queued again in reverse order.

Source: ``NodeToControllerRequestThread``, ``InterBrokerSendThread`` of Kafka 4.3.1.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

from tests.testkit.fake_broker_controller import FakeController


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
        """How many requests wait or are under way."""
        return len(self._waiting) + (self._attempt is not None)

    def hold(self, what: str) -> None:
        """Keep ``requests`` or ``answers`` on their way."""
        self._held.setdefault(what, None)

    def let_go(self) -> None:
        """Let everything arrive that was held."""
        stuck, self._held = list(self._held.values()), {}
        for arrive in stuck:
            if arrive is not None:
                arrive()

    def cut(self) -> None:
        """Lose the connection and what is on its way; it is opened again at once."""
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
            self._on_its_way("requests", partial(self._deliver, attempt))
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
        def told(answer: "asyncio.Future[Any]") -> None:
            self._on_its_way("answers", lambda: self._arrive(attempt, answer.result()))

        self._controller.deliver(attempt.item.work).add_done_callback(told)

    def _arrive(self, attempt: _Attempt, result: Any) -> None:
        if attempt is self._attempt and not attempt.answered.done():
            attempt.answered.set_result(result)

    def _on_its_way(self, what: str, arrive: Callable[[], None]) -> None:
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
