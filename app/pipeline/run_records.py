"""The record of a run in ``pipeline_run``.

A row that says ``running`` belongs to a process that holds the advisory lock of its ``seq``. The
lock ends with the process, so others can tell a run that goes on from one that died.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.job import Job
from app.pipeline.options import read_file
from app.pipeline.results import Reach

URL_VARIABLE: Final = "QUOTAS_PIPELINE_DATABASE_URL"
"""The address of the database, where ``--pg`` names no file."""

LOCK: Final = 7_052_812
"""The first half of a run's advisory lock; the second is its ``seq``."""

_OPTIONS: Final = "-c timezone=UTC -c application_name=quota-pipeline"
_UNRECORDED: Final = frozenset(
    {"job", "pg", "master", "conf", "json", "explain", "dry_run", "command", "plot", "token_file"}
)

_NOT_MIGRATED: Final = ("42P01", "42703", "42501")
"""Postgres' codes of a missing table or column, and of a missing privilege."""

_OWN: Final = """
    insert into pipeline_run (run_id, job, options, cluster_id, state, started_at)
    values (%s, %s, %s, %s, 'running', clock_timestamp()) returning seq
"""
_DIED: Final = """
    with free as materialized (
      select seq, pg_try_advisory_xact_lock(%(lock)s, seq::integer) as is_free
      from pipeline_run where state = 'running')
    update pipeline_run set state = 'failed', ended_at = clock_timestamp(),
      error = 'The process that ran it died.'
    where state = 'running' and seq in (select seq from free where is_free)
"""
_PUBLISHED: Final = """
    update pipeline_run set run_id = coalesce(%(run_id)s, run_id), state = 'succeeded',
      ended_at = clock_timestamp(), error = null,
      cluster_id = coalesce(%(cluster_id)s, cluster_id), data_through = %(data_through)s,
      coverage = %(coverage)s, rows_in = %(rows_in)s,
      rows_out = coalesce(rows_out, 0) + %(rows_out)s, published = published || %(tables)s::text[]
    where seq = %(seq)s
"""
_ENDED: Final = """
    update pipeline_run set state = %(state)s, ended_at = clock_timestamp(), error = %(error)s
    where seq = %(seq)s and (state = 'running' or %(error)s::text is not null)
"""
"""Who has published succeeded by that, unless something fails later, such as the advice of a run:
what it has published stays, and is read."""


def database_of(job: Job) -> str:
    """Return the address of the database that ``--pg`` names: of its file, else the environment.

    Raises:
        UsageError: There is none, or the file cannot be read.
    """
    file: str | None = job.options.pg
    if file and "://" in file:
        message = (
            "--pg takes a file that holds the address, since others can read command lines: put it "
            f"into a file, or set {URL_VARIABLE} and give --pg alone."
        )
        raise UsageError(message)
    url = (read_file("--pg", file) if file else os.environ.get(URL_VARIABLE, "")).strip()
    if not url:
        message = f"Set {URL_VARIABLE}, or name a file that holds postgresql://… after --pg."
        raise UsageError(message)
    scheme, separator, rest = url.partition("://")
    return f"postgresql://{rest}" if separator and scheme.startswith("postgres") else url


@contextmanager
def connect(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect for a block; each statement is its own transaction unless a block says otherwise.

    Raises:
        UsageError: The address cannot be read.
        InfrastructureError: Postgres cannot be reached, or refuses what the block asks for.
    """
    try:
        with psycopg.connect(
            url, autocommit=True, connect_timeout=10, keepalives_idle=30, options=_OPTIONS
        ) as connection:
            yield connection
    except psycopg.ProgrammingError as error:
        if error.sqlstate is None:
            message = "The database's address is not postgresql://user:password@host:port/database."
            raise UsageError(message) from None
        raise _infrastructure(error) from error
    except psycopg.Error as error:
        raise _infrastructure(error) from error


@contextmanager
def record_run(job: Job) -> Iterator[None]:
    """Record a run for a block; inside another such block it is the same record.

    Raises:
        InfrastructureError: Postgres cannot be reached.
    """
    if job.record is not None:
        yield
        return
    options = {name: value for name, value in vars(job.options).items() if name not in _UNRECORDED}
    recorded = {name.replace("_", "-"): value for name, value in options.items() if value}
    with connect(database_of(job)) as connection:
        # It starts Spark, which takes longer than to find that nobody listens there.
        run_id, text = job.fingerprint(), json.dumps(recorded, default=str)
        values = [run_id, job.name, text, job.options.cluster]
        with connection.transaction():
            connection.execute(_DIED, {"lock": LOCK})
            (job.record,) = connection.execute(_OWN, values).fetchone() or (0,)
            connection.execute("select pg_advisory_lock(%s, %s::integer)", [LOCK, job.record])
        try:
            yield
        except BaseException as error:
            with suppress(psycopg.Error):
                connection.execute(_ENDED, {**_end_of(error), "seq": job.record})
            raise
        connection.execute(_ENDED, {"state": "succeeded", "error": None, "seq": job.record})


def _end_of(error: BaseException) -> dict[str, str]:
    if isinstance(error, KeyboardInterrupt):
        return {"state": "cancelled", "error": "stopped by a signal"}
    name = "" if isinstance(error, PipelineError) else f"{type(error).__name__}: "
    return {"state": "failed", "error": f"{name}{error}"}


def record_published(
    connection: psycopg.Connection[Any],
    job: Job,
    reach: Reach,
    tables: Mapping[str, int],
    clusters: Sequence[str],
) -> None:
    """Say, in the transaction that publishes, that the run succeeded.

    Args:
        job: Is being recorded. The id of the run follows from inputs that were not found when it
            began.
        tables: How many rows of which table were published.
    """
    values = {
        **reach._asdict(),
        "run_id": job.run_id,
        "cluster_id": clusters[0] if len(clusters) == 1 else None,
        "rows_in": job.counts.get("rows_in"),
        "rows_out": sum(tables.values()),
        "tables": list(tables),
        "seq": job.record,
    }
    connection.execute(_PUBLISHED, values)


def _infrastructure(error: psycopg.Error) -> InfrastructureError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    if error.sqlstate in _NOT_MIGRATED:
        reason = "the tables are missing or may not be used; run `kafka-quota-service migrate`"
    return InfrastructureError(f"Postgres: {reason}")
