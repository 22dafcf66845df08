"""Checks of the machine, of Spark, and of how the brokers decide; what a check is."""

import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.java import JavaMissingError, find_java
from app.pipeline.errors import InfrastructureError
from app.pipeline.job import Job

_CALLBACK: Final = "quota callback"
_TIMEOUT_S: Final = 10.0


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        check: Its name.
        status: ``warn`` makes results doubtful or incomplete, ``fail`` wrong or impossible.
        detail: What was found, and what to do about it.
    """

    check: str
    status: Status
    detail: str

    def as_json(self) -> dict[str, str]:
        """Return it as the report shows it."""
        return {name: str(value) for name, value in asdict(self).items()}


def ok(check: str, detail: str) -> Check:
    """Return a check without a complaint."""
    return Check(check, Status.OK, detail)


def warn(check: str, detail: str) -> Check:
    """Return a check that makes results doubtful or incomplete."""
    return Check(check, Status.WARN, detail)


def fail(check: str, detail: str) -> Check:
    """Return a check that makes results wrong or impossible."""
    return Check(check, Status.FAIL, detail)


def machine_checks() -> Iterator[Check]:
    """Look at Java, and name the versions that results depend on."""
    try:
        yield ok("java", f"{find_java()} is new enough.")
    except JavaMissingError as error:
        yield fail("java", str(error))
    yield ok("python", f"Python {platform.python_version()} at {sys.executable}.")
    for package in ("pyspark", "pyarrow"):
        yield ok(package, f"{package} {version(package)}.")


def spark_check(job: Job) -> Check:
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


def callback_check(server: str, token: str | None) -> Check:
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
