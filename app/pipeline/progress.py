"""How far Spark is: one line that changes on the standard error, or plain lines in a log."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

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


@contextmanager
def progress(session: SparkSession, say: Callable[[str], None]) -> Iterator[None]:
    """Watch the stages of a session in a thread, for the length of a block.

    Args:
        session: Whose.
        say: Prints a plain line, where the standard error is no terminal.
    """
    done, reported = threading.Event(), ReportedStages()
    look: Callable[[], Iterable[Stage]] = partial(running_stages, session)
    if is_remote():
        session.registerProgressHandler(reported)
        look = reported.running
    thread = threading.Thread(target=_watch, args=(look, say, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if is_remote():
            session.removeProgressHandler(reported)


def _watch(
    look: Callable[[], Iterable[Stage]], say: Callable[[str], None], done: threading.Event
) -> None:
    is_terminal, is_displayed, printed_at = sys.stderr.isatty(), False, time.monotonic()
    while not done.wait(_LOOK_S):
        stages = list(look())
        line = describe(stages) if stages else ""
        if is_terminal and (line or is_displayed):
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
            is_displayed = bool(line)
        elif line and not is_terminal and time.monotonic() - printed_at >= _PLAIN_LINE_EVERY_S:
            printed_at = time.monotonic()
            say(line)
    if is_displayed:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def running_stages(session: SparkSession) -> Iterator[Stage]:
    """Yield the stages that run now."""
    # What the pages and the REST interface of Spark show; it is there without them as well.
    active = session.sparkContext._jsc.sc().statusStore().activeStages()  # noqa: SLF001
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


class ReportedStages:
    """The stages of a Spark Connect server, which reports those of a query while it runs.

    Source: ``pyspark.sql.connect.shell.progress.ProgressHandler``.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._begun: dict[int, float] = {}
        self._queries: dict[str, list[Stage]] = {}

    def __call__(
        self,
        *,
        stages: Iterable[Any] | None,
        inflight_tasks: int,  # noqa: ARG002 - PySpark names it
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Take a report of a query; it has no numbers of rows."""
        query, now = operation_id or "", time.monotonic()
        if done:
            self._queries.pop(query, None)
            return
        self._queries[query] = [
            Stage(
                stage.stage_id,
                stage.num_tasks,
                stage.num_completed_tasks,
                0,
                now - self._begun.setdefault(stage.stage_id, now),
            )
            for stage in stages or ()
            if not stage.done
        ]

    def running(self) -> list[Stage]:
        """Return the stages that run now."""
        return [stage for stages in list(self._queries.values()) for stage in stages]
