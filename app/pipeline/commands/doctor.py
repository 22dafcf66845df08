"""Look for what would make results wrong or missing, on this machine and in the data.

Each check is ok, warn or fail, with a sentence that says what to do. Warnings and failures are
findings.
"""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from app.pipeline.doctor.checks import Check, Status
from app.pipeline.doctor.data import data_checks
from app.pipeline.doctor.environment import (
    callback_check,
    folder_checks,
    machine_checks,
    spark_check,
)
from app.pipeline.doctor.tables import Inputs
from app.pipeline.errors import UsageError
from app.pipeline.folders import local_folder
from app.pipeline.job import Job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which service to ask."""
    parser.add_argument(
        "--server", metavar="URL", help="of the service, to ask whether brokers decide otherwise"
    )
    parser.add_argument("--token-file", metavar="FILE", help="holds a token for it")
    parser.epilog = "A finding is a warning or a failure. --dry-run leaves Spark alone."


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
    options = job.options
    yield from machine_checks()
    if not options.dry_run:
        yield spark_check(options.master, dict(options.conf))
    folders = [local_folder(uri) for uri in options.input or ()]
    yield from folder_checks(folders, local_folder(options.out) if options.out else None)
    inputs = Inputs([folder for folder in folders if folder.is_dir()], options.cluster)
    tables = list(inputs.table_checks())
    yield from tables
    if all(check.status is not Status.FAIL for check in tables):
        yield from data_checks(inputs, datetime.now(UTC))
    if options.server:
        yield callback_check(options.server, _token(options.token_file))


def _token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"--token-file {file} cannot be read: {error}"
        raise UsageError(message) from error
