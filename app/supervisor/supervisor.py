"""The parent: it starts workers, starts those again that die, and stops them together.

A fork copies the one thread that calls it. So the parent has no other thread, no event loop and
no connection: nothing whose copy would be spoilt, or hold a lock for ever.
"""

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from app.supervisor.life import HEARD, Inherited, Work, fork

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
LIVED_LONG_S: Final = 10.0
"""Who lived so long is followed after the first pause; otherwise each pause is twice the last."""

_LONGEST_WAIT_S: Final = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """What the workers do.

    Attributes:
        work: Called in each worker.
        ended: Told the number of a worker that has ended, in the parent.
        stopping: Called in the parent when a stop begins.
        stop_within_s: Workers that have not stopped by then are killed.
    """

    work: Work
    ended: Callable[[int], None]
    stopping: Callable[[], None]
    stop_within_s: float


@dataclass(eq=False, slots=True)
class Place:
    """One worker's place, which another one takes when it dies.

    Attributes:
        number: From 1 on.
        pid: Of its process; 0 where there is none.
        status: The end of a pipe that it writes to when it serves; null once it has, or never will.
        due_at: When the next one is started.
        begun_at: When the present one was.
        serves: Whether it does.
        was_proven: Whether one in this place ever has.
        short_lives: How many in a row did not live long.
    """

    number: int
    pid: int = 0
    status: int | None = None
    due_at: float = float("inf")
    begun_at: float = 0.0
    serves: bool = False
    was_proven: bool = False
    short_lives: int = 0

    def has_ended(self, now: float) -> float:
        """Note the end; return after how many seconds the next one is due."""
        self.short_lives = 1 if now - self.begun_at >= LIVED_LONG_S else self.short_lives + 1
        pause_s: float = FIRST_PAUSE_S * 2 ** (self.short_lives - 1)
        pause_s = min(LONGEST_PAUSE_S, pause_s)
        self.pid, self.serves, self.due_at = 0, False, now + pause_s
        return pause_s


class Supervisor:
    """Keeps the workers alive.

    The first one shows that a worker can start; then the others follow. One that cannot, in a place
    where none ever could or while no other serves, ends the service with its exit code.

    Args:
        number: Of workers.
        task: What they do.
    """

    def __init__(self, number: int, task: Task) -> None:
        self._places = [Place(each) for each in range(1, number + 1)]
        self._task = task
        self._alive = os.pipe()
        self._signals: tuple[int, int] = (-1, -1)
        self._stop_by: float | None = None
        self._code = 0

    def run(self) -> int:
        """Supervise until a stop is asked for, or a worker cannot start; return the exit code."""
        self._places[0].due_at = time.monotonic()
        with _signals() as self._signals:
            while self._stop_by is None or self._running():
                self._start()
                self._wait()
                self._look_after()
        return self._code

    def _running(self) -> list[Place]:
        return [place for place in self._places if place.pid]

    def _start(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if self._stop_by is None and place.due_at <= now:
                place.begun_at, place.due_at = now, float("inf")
                try:
                    self._begin(place)
                except OSError as error:  # the system has no process or file left for it
                    who = f"worker {place.number} could not be begun ({error.strerror})"
                    self._is_without(place, who, 1)

    def _begin(self, place: Place) -> None:
        """Start a worker.

        Raises:
            OSError: The system cannot now.
        """
        mine, its = os.pipe()
        try:
            told = [one.status for one in self._places if one.status is not None]
            foreign = (self._alive[1], mine, *told, *self._signals)
            place.pid = fork(self._task.work, place.number, Inherited(self._alive[0], its, foreign))
        except OSError:
            os.close(mine)
            raise
        finally:
            os.close(its)
        place.status = mine

    def _wait(self) -> None:
        """Wait for a signal, for the word of a worker, or until something is due."""
        due_at = min(place.due_at for place in self._places)
        if self._stop_by is not None:
            due_at = self._stop_by
        wait_s = min(_LONGEST_WAIT_S, max(0.0, due_at - time.monotonic()))
        told = {place.status: place for place in self._places if place.status is not None}
        heard = self._signals[0]
        ready, _, _ = select.select([heard, *told], [], [], wait_s)
        for file in ready:
            if file == heard:
                for number in set(os.read(heard, 1024)):
                    self._heard(signal.Signals(number))
            else:
                self._was_told(told[file])

    def _was_told(self, place: Place) -> None:
        """Note that a worker serves, or that it has ended before it could."""
        if place.status is None:
            return
        place.serves = os.read(place.status, 1) != b""
        os.close(place.status)
        place.status = None
        if place.serves:
            place.was_proven = True
            logger.info("worker %d serves: process %d", place.number, place.pid)
            for other in self._places:
                if not other.begun_at:
                    other.due_at = min(other.due_at, time.monotonic())

    def _heard(self, number: signal.Signals) -> None:
        if number in {signal.SIGTERM, signal.SIGINT}:
            self._stop(0)
        elif number == signal.SIGHUP:
            self._send(number)

    def _stop(self, code: int) -> None:
        """Stop every worker; the first reason to stop says with which exit code."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self._task.stop_within_s
            self._code = code
            self._task.stopping()
            self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for place in self._running():
            os.kill(place.pid, number)

    def _look_after(self) -> None:
        for place in self._running():
            ended, status = os.waitpid(place.pid, os.WNOHANG)
            if ended:
                self._has_ended(place, os.waitstatus_to_exitcode(status))
        if self._stop_by is not None and time.monotonic() >= self._stop_by:
            for place in self._running():
                logger.error("worker %d did not stop in time and is killed", place.number)
            self._send(signal.SIGKILL)
            self._stop_by = float("inf")

    def _has_ended(self, place: Place, code: int) -> None:
        """Start the next one, or stop; ``code`` is negative for a signal."""
        self._was_told(place)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        self._is_without(place, f"worker {place.number} (process {place.pid}) ended {how}", code)

    def _is_without(self, place: Place, who: str, code: int) -> None:
        others_serve = any(one.serves for one in self._places)
        could_start = place.serves or (place.was_proven and others_serve)
        pause_s = place.has_ended(time.monotonic())
        self._task.ended(place.number)
        if self._stop_by is not None:
            if code:
                logger.error("%s during the stop", who)
                self._code = self._code or _exit_code(code)
        elif could_start:
            logger.warning("%s; the next one starts in %g s", who, pause_s)
        else:
            logger.error("%s and could not start; so the service ends", who)
            self._stop(_exit_code(code) or 1)


def _exit_code(code: int) -> int:
    """Return what a shell would show. Source: POSIX, 2.8.2 Exit Status for Commands."""
    return code if code >= 0 else 128 - code


@contextmanager
def _signals() -> Iterator[tuple[int, int]]:
    """Yield a pipe from which the numbers of the signals that come can be read."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = {number: signal.signal(number, lambda *_: None) for number in HEARD}
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read, write
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
