"""A worker: a copy of the parent that does the work, and ends when the parent has ended."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn

HEARD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""What the parent hears; a worker hears nothing of it before it is a worker."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a worker has of its parent.

    Attributes:
        number: Of the worker, from 1 on; the one that follows a dead one has the same.
        parent: A file that ends when the parent has ended, however it did.
        status: Takes one byte from a worker that serves.
    """

    number: int
    parent: int
    status: int

    def serves(self) -> None:
        """Tell the parent that this worker serves."""
        os.write(self.status, b"1")
        os.close(self.status)

    def watch_parent(self, gone: Callable[[], None], *, end_within_s: float) -> None:
        """Have ``gone`` called, in a thread, when the parent has ended; then end in any case."""

        def watch() -> None:
            os.read(self.parent, 1)
            gone()
            time.sleep(end_within_s)
            os._exit(1)

        threading.Thread(target=watch, name="parent", daemon=True).start()


Work = Callable[[Life], int]
"""Serves until SIGTERM, and returns the exit code."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """Files of the parent that a worker has after the fork.

    Attributes:
        parent: What ends when the parent ends.
        status: What the worker tells the parent by.
        foreign: What is the parent's alone, so that a worker closes it.
    """

    parent: int
    status: int
    foreign: Sequence[int]


def fork(work: Work, number: int, files: Inherited) -> int:
    """Begin a worker and return its process id; in the worker this never returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    try:
        pid = os.fork()
        if pid == 0:
            for file in files.foreign:
                os.close(file)
            _work(work, Life(number, files.parent, files.status))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    return pid


def _work(work: Work, life: Life) -> NoReturn:
    """Do the work, and leave nothing of the parent's to be done at the end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        code = work(life)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - it would go on as the parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(_number: int, _frame: FrameType | None) -> None:
    """Stop a worker that does not serve yet."""
    raise SystemExit(0)
