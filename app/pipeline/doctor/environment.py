"""Whether this machine can run the jobs, and the brokers decide as the jobs do."""

import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.java import JavaMissingError, find_java
from app.pipeline.doctor.checks import Check, fail, ok
from app.pipeline.errors import InfrastructureError
from app.pipeline.spark import spark_session

_OLDEST_PYTHON: Final = (3, 11)
_PACKAGES: Final[Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "pyspark": ((4, 1, 4), (4, 4)),
    "pyarrow": ((18,), (1_000,)),
}
"""From (inclusive) and to (exclusive), as in pyproject.toml."""

_CALLBACK: Final = "quota callback"
_TIMEOUT_S: Final = 10.0


def machine_checks() -> Iterator[Check]:
    """Look at Java, Python and the packages."""
    yield _java()
    yield _python()
    for package in _PACKAGES:
        yield _package(package)


def spark_check(master: str | None, settings: Mapping[str, str]) -> Check:
    """Start Spark, count to a hundred, and stop it."""
    try:
        with spark_session("quota-pipeline doctor", master=master, settings=settings) as session:
            counted = session.range(100).count()
            release, where = session.version, session.sparkContext.master
    except InfrastructureError as error:
        return fail("spark", f"{error} Look at --master and --conf, and at the lines above.")
    if counted != 100:
        return fail("spark", f"Spark {release} on {where} counts wrong: {counted} of 100 rows.")
    return ok("spark", f"Spark {release} starts on {where} and counts.")


def folder_checks(inputs: list[Path], out: Path | None) -> Iterator[Check]:
    """Look whether the inputs can be read and the output written."""
    for folder in inputs:
        yield _readable(folder)
    if out is not None:
        yield _writable(out)


def callback_check(server: str, token: str | None) -> Check:
    """Ask the service whether a broker has a ``client.quota.callback.class`` of its own.

    Such a broker applies limits of its own making, which no stored quota tells.

    Source: KIP-257.
    """
    if urlsplit(server).scheme not in {"http", "https"}:
        return fail(_CALLBACK, f"--server {server} is no http:// or https:// address.")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.get(
            f"{server.rstrip('/')}/quotas/resolve",
            params={"user": "ANONYMOUS"},
            headers=headers,
            timeout=_TIMEOUT_S,
        )
        told = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        return fail(_CALLBACK, f"{server} does not answer ({error}): see that the service runs.")
    if answer.status_code != httpx.codes.OK:
        code = told.get("code") if isinstance(told, dict) else None
        line = f"{server} answers {answer.status_code} {code or ''}".rstrip()
        return fail(_CALLBACK, f"{line}: give --token-file of a principal that may describe.")
    return _callback_of(told)


def _java() -> Check:
    try:
        return ok("java", f"{find_java()} is new enough.")
    except JavaMissingError as error:
        return fail("java", str(error))


def _python() -> Check:
    release = platform.python_version()
    if sys.version_info < _OLDEST_PYTHON:
        return fail(
            "python", f"Python {release} is too old: run `make install` with 3.11 or newer."
        )
    return ok("python", f"Python {release} at {sys.executable}.")


def _package(name: str) -> Check:
    oldest, newest = _PACKAGES[name]
    try:
        found = version(name)
    except PackageNotFoundError:
        return fail(name, f"{name} is not installed: run `make install`.")
    numbers = tuple(int(part) for part in found.split(".") if part.isdecimal())
    if not oldest <= numbers < newest:
        return fail(name, f"{name} {found} was never tried with these jobs: run `make install`.")
    return ok(name, f"{name} {found}.")


def _readable(folder: Path) -> Check:
    try:
        entries = sum(1 for _ in folder.iterdir())
    except OSError as error:
        told = f"{folder} cannot be read ({error.strerror}): name the --out of the job before."
        return fail("input", told)
    return ok("input", f"{folder} can be read; it has {entries} entries.")


def _writable(folder: Path) -> Check:
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return ok("output", f"{folder} can be written.")
    except OSError as error:
        told = f"{folder} cannot be written ({error.strerror}): name another --out, or give rights."
        return fail("output", told)


def _callback_of(told: object) -> Check:
    if isinstance(told, dict) and told.get("authoritative") is True:
        return ok(_CALLBACK, "no broker has a callback of its own: results are authoritative.")
    line = (
        "a broker has client.quota.callback.class set: limits and buckets of these results are "
        "what is configured, not what is enforced. Do not act on them without asking its owner."
    )
    return fail(_CALLBACK, line)
