"""Look for what would make results wrong or missing, on this machine and in the data.

Each check is ok, warn or fail, with a sentence that says what to do. Warnings and failures are
findings.
"""

import argparse
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.java import JavaMissingError, find_java
from app.pipeline.errors import InfrastructureError
from app.pipeline.job import Job
from app.pipeline.options import read_file
from app.pipeline.results import Scope
from app.pipeline.summary import Results
from app.pipeline.table_checks import FAIL, OK, WARN, Check, data_checks, fail, ok, table_checks

_CALLBACK: Final = "quota callback"
_TIMEOUT_S: Final = 10.0


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
    for status in (OK, WARN, FAIL):
        job.counts[status] = sum(check.status == status for check in checks)
    job.findings = job.counts[WARN] + job.counts[FAIL]
    if job.options.json:
        job.counts["checks"] = [check._asdict() for check in checks]


def _checks(job: Job) -> Iterator[Check]:
    yield from _machine_checks()
    if not job.options.dry_run:
        started = _spark_check(job)
        yield started
        if started.status == OK and job.options.input:
            lakes = job.lakes()
            found = list(table_checks(lakes))
            yield from found
            if all(check.status != FAIL for check in found):
                yield from data_checks(Results(lakes, Scope.of(job)), datetime.now(UTC))
    if job.options.server:
        file = job.options.token_file
        token = None if file is None else read_file("--token-file", file).strip()
        yield _callback_check(job.options.server, token)


def _machine_checks() -> Iterator[Check]:
    """Look at Java, and name the versions that results depend on."""
    try:
        yield ok("java", f"{find_java()} is new enough.")
    except JavaMissingError as error:
        yield fail("java", str(error))
    yield ok("python", f"Python {platform.python_version()} at {sys.executable}.")
    for package in ("pyspark", "pyarrow"):
        yield ok(package, f"{package} {version(package)}.")


def _spark_check(job: Job) -> Check:
    """Start Spark, and count to a hundred."""
    try:
        with job.spark() as session:
            counted = session.range(100).count()
            release, master = session.version, session.conf.get("spark.master")
    except InfrastructureError as error:
        return fail("spark", f"{error} Look at --master and --conf, and at the lines above.")
    if counted != 100:
        return fail("spark", f"Spark {release} on {master} counts wrong: {counted} of 100 rows.")
    return ok("spark", f"Spark {release} starts on {master} and counts.")


def _callback_check(server: str, token: str | None) -> Check:
    """Ask the service whether a broker has a ``client.quota.callback.class`` of its own.

    Such a broker applies limits of its own making, which no stored quota tells.

    Source: KIP-257.
    """
    if urlsplit(server).scheme not in {"http", "https"}:
        return fail(_CALLBACK, f"--server {server} is no http:// or https:// address.")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        response = httpx.get(
            f"{server.rstrip('/')}/quotas/resolve",
            params={"user": "ANONYMOUS"},
            headers=headers,
            timeout=_TIMEOUT_S,
        )
        document = response.json()
    except (httpx.HTTPError, ValueError) as error:
        return fail(_CALLBACK, f"{server} does not answer ({error}): see that the service runs.")
    if not isinstance(document, dict) or response.status_code != httpx.codes.OK:
        code = document.get("code") if isinstance(document, dict) else None
        status = f"{server} answers {response.status_code} {code or ''}".rstrip()
        return fail(_CALLBACK, f"{status}: give --token-file of a principal that may describe.")
    if document.get("authoritative") is True:
        return ok(_CALLBACK, "no broker has a callback of its own: results are authoritative.")
    sentence = (
        "a broker has client.quota.callback.class set: limits and buckets of these results are "
        "what is configured, not what is enforced. Do not act on them without asking its owner."
    )
    return fail(_CALLBACK, sentence)
