"""Look for what would make results wrong or missing, on this machine and in the data.

Each check is ok, warn or fail, with a sentence that says what to do. Warnings and failures are
findings.
"""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from app.pipeline.doctor.data import data_checks, table_checks
from app.pipeline.doctor.environment import (
    Check,
    Status,
    callback_check,
    machine_checks,
    spark_check,
)
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.summary import Results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which service to ask."""
    parser.add_argument(
        "--server", metavar="URL", help="of the service, to ask whether brokers decide otherwise"
    )
    parser.add_argument("--token-file", metavar="FILE", help="holds a token for it")
    parser.epilog = (
        "--input names folders with metrics, quotas or results: before a run, too. A finding is a "
        "warning or a failure. --dry-run leaves Spark and the tables alone."
    )


def run(job: Job) -> None:
    """Make all checks and report them.

    Raises:
        UsageError: ``--token-file`` cannot be read.
    """
    checks = []
    for check in _checks(job):
        checks.append(check)
        if not job.options.json:
            print(f"{check.status.upper():4}  {check.check}: {check.detail}", flush=True)
    for status in Status:
        job.counts[status.value] = sum(check.status is status for check in checks)
    job.findings = job.counts["warn"] + job.counts["fail"]
    if job.options.json:
        job.counts["checks"] = [check.as_json() for check in checks]


def _checks(job: Job) -> Iterator[Check]:
    yield from machine_checks()
    if not job.options.dry_run:
        started = spark_check(job)
        yield started
        if started.status is Status.OK and job.options.input:
            yield from _table_checks(job)
    if job.options.server:
        yield callback_check(job.options.server, _token(job.options.token_file))


def _table_checks(job: Job) -> Iterator[Check]:
    lakes = job.lakes()
    found = list(table_checks(lakes))
    yield from found
    if all(check.status is not Status.FAIL for check in found):
        yield from data_checks(Results(lakes, job), datetime.now(UTC))


def _token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"--token-file {file} cannot be read: {error}"
        raise UsageError(message) from error
