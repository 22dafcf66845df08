"""The queue of runs, as a worker sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from app.domain.pipeline_runs import OptionValue
from app.pipeline.publish.runs import LOCK

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
