"""How far Spark is, on the standard error: one line that changes, or plain lines in a log."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from pyspark.sql import SparkSession

_LOOK_S: Final = 0.5
_PLAIN_LINE_EVERY_S: Final = 10.0


class Progress:
    """Watches the stages of a session in a thread of its own, for the length of a block."""

    def __init__(self, session: SparkSession, say: Callable[[str], None]) -> None:
        """Take what prints a plain line."""
        self._tracker = session.sparkContext.statusTracker()
        self._say = say
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._terminal = sys.stderr.isatty()
        self._shown = False
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching, and leave a clean line."""
        self._done.set()
        self._thread.join()
        self._clear()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            line = self._line()
            if line is None:
                self._clear()
            elif self._terminal:
                print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
                self._shown = True
            elif time.monotonic() - self._said_at >= _PLAIN_LINE_EVERY_S:
                self._said_at = time.monotonic()
                self._say(line)

    def _line(self) -> str | None:
        """Return what runs now; null between jobs."""
        stages = [self._tracker.getStageInfo(item) for item in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if not known:
            return None
        done = sum(stage.numCompletedTasks for stage in known)
        tasks = sum(stage.numTasks for stage in known)
        names = ", ".join(sorted({f"stage {stage.stageId}" for stage in known}))
        return f"{names}: {done} of {tasks} tasks done"

    def _clear(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False
