"""``quota-pipeline worker``: start the runs that the service queues, one at a time.

Several workers share a queue. A worker holds an advisory lock for the run that it has taken; where
the lock is free and the row still says ``running``, the worker died, and the next one says so.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from app.domain.pipeline_runs import PUBLISHING, RUNNABLE, OptionKind, OptionValue, run_violations
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.run_records import LOCK, RUN_VARIABLE, URL_VARIABLE, connect, database_of

_TAKE: Final = """
    update pipeline_run set state = 'running', started_at = clock_timestamp()
    where seq = (select seq from pipeline_run where state = 'queued' order by seq
                 for update skip locked limit 1)
    returning seq, run_id, job,
      options || jsonb_strip_nulls(jsonb_build_object('cluster', cluster_id))
"""
_RUNNING: Final = "select seq from pipeline_run where state = 'running' order by seq"
_GIVE_UP: Final = """
    update pipeline_run set state = 'failed', ended_at = clock_timestamp(),
      error = 'The process that ran it died; queue the run again.'
    where seq = %s and state = 'running'
"""
_PROGRESS: Final = """
    update pipeline_run set progress = %s where seq = %s returning cancel_requested
"""
_END: Final = """
    update pipeline_run set
      state = case state when 'running' then %(state)s else state end,
      ended_at = coalesce(ended_at, clock_timestamp()),
      error = case state when 'running' then %(error)s else error end
    where seq = %(seq)s returning state
"""


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that a worker has taken."""

    seq: int
    run_id: str
    job: str
    options: Mapping[str, OptionValue]


class Queue:
    """The rows of ``pipeline_run``; its connection holds the locks of what was taken."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Take a connection on which each statement is its own transaction."""
        self._connection = connection

    def waiting(self) -> int:
        """Return how many runs are queued."""
        query = "select count(*) from pipeline_run where state = 'queued'"
        (number,) = self._connection.execute(query).fetchone() or (0,)
        return int(number)

    def take(self) -> QueuedRun | None:
        """Take the oldest run that waits and that no other worker takes; null if there is none."""
        with self._connection.transaction():
            row = self._connection.execute(_TAKE).fetchone()
            if row is None:
                return None
            seq, run_id, job, options = row
            self._connection.execute("select pg_advisory_lock(%s, %s::integer)", [LOCK, seq])
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in options.items()
        }
        return QueuedRun(seq, run_id, job, values)

    def give_up_dead(self) -> int:
        """Mark the runs whose process died as failed; return how many."""
        failed = 0
        for (seq,) in self._connection.execute(_RUNNING).fetchall():
            if self._lock(seq):
                failed += self._connection.execute(_GIVE_UP, [seq]).rowcount
                self._unlock(seq)
        return failed

    def progress(self, taken: QueuedRun, line: str) -> bool:
        """Say how far a run is; tell whether it is to end."""
        row = self._connection.execute(_PROGRESS, [line or None, taken.seq]).fetchone()
        return row is None or bool(row[0])

    def end(self, taken: QueuedRun, state: str, error: str | None) -> str:
        """Record how a run ended, unless it has done so itself; return the recorded state."""
        values = {"state": state, "error": error, "seq": taken.seq}
        row = self._connection.execute(_END, values).fetchone()
        self._unlock(taken.seq)
        return state if row is None else str(row[0])

    def _lock(self, seq: int) -> bool:
        query = "select pg_try_advisory_lock(%s, %s::integer)"
        row = self._connection.execute(query, [LOCK, seq]).fetchone()
        return row is not None and bool(row[0])

    def _unlock(self, seq: int) -> None:
        self._connection.execute("select pg_advisory_unlock(%s, %s::integer)", [LOCK, seq])


_LOOK_S: Final = 1.0
_STOP_WITHIN_S: Final = 20.0
_WHOLE_FOLDER: Final = ("input", "out")
"""Options that are the data folder itself where they are left out."""

_REPORTED_LINES: Final = 20
_READ_BYTES: Final = 65_536
_SUCCESS: Final = frozenset({0, 3, 4})
"""Exit codes of a run that did what it should, whatever it found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the data is, and when to end."""
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        required=True,
        help="the folder that runs may read and write; their options name folders below it",
    )
    parser.add_argument(
        "--once", action="store_true", help="do what is queued now, then end; for cron"
    )
    parser.epilog = f"The queue is in the database of --pg, or of {URL_VARIABLE}."


def run(job: Job) -> None:
    """Take runs until a signal ends it, or with ``--once`` until none is queued.

    Raises:
        UsageError: There is no data folder, or no address of Postgres.
        InfrastructureError: Postgres cannot be reached.
    """
    root = Path(job.options.data_dir).resolve()
    if not root.is_dir():
        message = f"--data-dir {root} is not a folder; make it, or name another."
        raise UsageError(message)
    url = database_of(job)
    job.counts.update({"succeeded": 0, "failed": 0, "cancelled": 0, "given_up": 0})
    with connect(url) as connection:
        queue = Queue(connection)
        if job.options.dry_run:
            job.counts["queued"] = queue.waiting()
        else:
            _work(job, queue, root, url)


def _work(job: Job, queue: Queue, root: Path, url: str) -> None:
    while True:
        job.counts["given_up"] += queue.give_up_dead()
        taken = queue.take()
        if taken is not None:
            job.say(f"{taken.job} {taken.run_id} begins.")
            state = _do(queue, taken, root, url)
            job.counts[state] += 1
            job.say(f"{taken.job} {taken.run_id} {state}.")
        elif job.options.once:
            return
        else:
            time.sleep(_LOOK_S)


def _do(queue: Queue, taken: QueuedRun, root: Path, url: str) -> str:
    """Run it; return the state that it ended in."""
    try:
        command = command_of(taken, root)
    except UsageError as error:
        return queue.end(taken, "failed", str(error))
    environ = {**os.environ, URL_VARIABLE: url, RUN_VARIABLE: taken.run_id}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        # In a group of its own: Spark's JVM is in it and would outlive it.
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            cancelled = _watch(queue, taken, process, log)
        except KeyboardInterrupt:
            queue.end(taken, "failed", "The worker was stopped; queue the run again.")
            raise
        finally:
            _stop(process)
        if cancelled:
            return queue.end(taken, "cancelled", None)
        if process.returncode in _SUCCESS:
            return queue.end(taken, "succeeded", None)
        return queue.end(taken, "failed", _last(log) or f"exit code {process.returncode}")


def command_of(taken: QueuedRun, root: Path) -> list[str]:
    """Return the command line of a run.

    Raises:
        UsageError: Its job or an option is not allowed, or names a folder outside the root.
    """
    violations = run_violations(taken.job, taken.options)
    if violations:
        raise UsageError(" ".join(violation.detail for violation in violations))
    rules = RUNNABLE[taken.job]
    defaults = [*_WHOLE_FOLDER, *(["quotas"] if "quotas" in rules else [])]
    options: Mapping[str, Any] = {**dict.fromkeys(defaults, "."), **taken.options}
    command = [sys.executable, "-m", "app.pipeline.main", taken.job]
    for name, value in options.items():
        for item in value if isinstance(value, tuple) else (value,):
            folder = rules[name].kind is OptionKind.FOLDER
            command.append(f"--{name}={_below(root, item, name) if folder else item}")
    return [*command, *(["--pg"] if taken.job in PUBLISHING else [])]


def _below(root: Path, name: str, option: str) -> Path:
    folder = (root / name).resolve()
    if not folder.is_relative_to(root):
        message = f"{option} must name a folder below the worker's data folder."
        raise UsageError(message)
    return folder


def _watch(queue: Queue, taken: QueuedRun, process: subprocess.Popen[bytes], log: Any) -> bool:
    """Keep the row up to date until the end; tell whether it was cancelled."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return False
        if queue.progress(taken, _last(log, lines=1)):
            return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a run that goes on, and what is left of its group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last(log: Any, lines: int = _REPORTED_LINES) -> str:
    """Return the last lines that the run has printed."""
    size = os.fstat(log.fileno()).st_size
    # Not by reading the file, whose position the run shares.
    end = os.pread(log.fileno(), _READ_BYTES, max(0, size - _READ_BYTES))
    printed = [line.strip() for line in end.decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n".join(printed[-lines:]).replace("\0", "\ufffd")
