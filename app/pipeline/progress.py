"""How far Spark is, on the standard error: one line that changes, or plain lines in a log."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from pyspark.sql import SparkSession

_LOOK_S: Final = 0.5
_PLAIN_LINE_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a stage is.

    Attributes:
        number: Of the stage.
        tasks: In all.
        done: Of them, those that have ended.
        rows: Read so far.
        seconds: Since it began.
    """

    number: int
    tasks: int
    done: int
    rows: int
    seconds: float


def describe(stages: Sequence[Stage]) -> str:
    """Say what runs now, what it has read, and how long it takes if all tasks are alike."""
    names = ", ".join(f"stage {stage.number}" for stage in stages)
    done, tasks = sum(stage.done for stage in stages), sum(stage.tasks for stage in stages)
    line = f"{names}: {done} of {tasks} tasks done"
    rows = sum(stage.rows for stage in stages)
    if rows:
        line += f", {rows:,} rows"
    if all(stage.done for stage in stages):
        left = max(stage.seconds * (stage.tasks / stage.done - 1) for stage in stages)
        line += f", about {left:.0f} s left"
    return line


class Progress:
    """Watches the stages of a session in a thread of its own, for the length of a block."""

    def __init__(self, session: SparkSession, say: Callable[[str], None]) -> None:
        """Take what prints a plain line."""
        # What the pages and the REST interface of Spark show; it is there without them as well.
        self._store = session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
        self._say = say
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._terminal = sys.stderr.isatty()
        self._is_displayed = False
        self._printed_at = time.monotonic()

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
            stages = list(self._stages())
            line = describe(stages) if stages else ""
            if not line:
                self._clear()
            elif self._terminal:
                print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
                self._is_displayed = True
            elif time.monotonic() - self._printed_at >= _PLAIN_LINE_EVERY_S:
                self._printed_at = time.monotonic()
                self._say(line)

    def _stages(self) -> Iterator[Stage]:
        """Yield the stages that run now."""
        active = self._store.activeStages()
        for position in range(active.size()):
            stage = active.apply(position)
            begun = stage.submissionTime()
            yield Stage(
                stage.stageId(),
                stage.numTasks(),
                stage.numCompleteTasks(),
                stage.inputRecords() + stage.shuffleReadRecords(),
                time.time() - begun.get().getTime() / 1000 if begun.isDefined() else 0.0,
            )

    def _clear(self) -> None:
        if self._is_displayed:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._is_displayed = False
