"""Requests per second: from wrk where it is installed, else from a generator of our own."""

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, NamedTuple, Protocol, cast

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import prepared


@dataclass(frozen=True)
class Target:
    """One route of one server."""

    port: int
    path: str
    token: str | None = None


class Load(NamedTuple):
    """The figures of a window of load."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float


PACED_LEAD_S: Final = 2.0


class PacedLoad(NamedTuple):
    """The figures of a window of requests at fixed times."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Generator(Protocol):
    """Something that keeps connections busy for a while."""

    name: str

    def run(self, target: Target, connections: int, seconds: float) -> Load:
        """Load a route, each connection asking again when it is answered."""
        ...


class Wrk:
    """The program ``wrk``, with one thread."""

    def __init__(self, program: str) -> None:
        self._program = program
        printed = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False
        )
        self.name = " ".join((printed.stdout + printed.stderr).split()[:2])

    def run(self, target: Target, connections: int, seconds: float) -> Load:
        """See ``Generator``."""
        command = [
            self._program,
            "-t1",
            f"-c{connections}",
            f"-d{math.ceil(seconds)}s",
            "--latency",
        ]
        if target.token is not None:
            command += ["-H", f"Authorization: Bearer {target.token}"]
        command.append(f"http://127.0.0.1:{target.port}{target.path}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return read_wrk(done.stdout + done.stderr)


_RATE: Final = re.compile(r"^Requests/sec:\s+([0-9.]+)$", re.MULTILINE)
_PERCENTILE: Final = r"^\s+{}%\s+([0-9.]+)(us|ms|s)$"
_MS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def read_wrk(text: str) -> Load:
    """Read what wrk prints.

    Raises:
        BenchmarkError: It failed, or some of the answers were no success.
    """
    rate = _RATE.search(text)
    percentiles = [re.search(_PERCENTILE.format(p), text, re.MULTILINE) for p in (50, 99)]
    if rate is None or None in percentiles or "Non-2xx" in text or "Socket errors" in text:
        raise BenchmarkError(f"wrk says:\n{text}")
    p50, p99 = (float(found[1]) * _MS[found[2]] for found in percentiles if found)
    return Load(float(rate[1]), p50, p99)


class OwnGenerator:
    """``benchmarks.generator`` in a process of its own."""

    name = "this project's own (asyncio, uvloop, httptools; a process of its own)"

    def __init__(self, jobs: IO[str], results: IO[str]) -> None:
        self._jobs = jobs
        self._results = results

    def run(self, target: Target, connections: int, seconds: float) -> Load:
        """See ``Generator``."""
        result = self._result(_job(target, connections, seconds))
        return Load(result["answers"] / result["seconds"], result["p50_ms"], result["p99_ms"])

    def run_paced(self, target: Target, connections: int, seconds: float, rate: float) -> PacedLoad:
        """Send so many requests a second, whatever becomes of those before.

        The same go on for ``PACED_LEAD_S`` before, and are not counted.
        """
        pace = {"rate": rate, "lead_s": PACED_LEAD_S}
        result = self._result({**_job(target, connections, seconds), **pace})
        return PacedLoad(**{name: result[name] for name in PacedLoad._fields})

    def _result(self, job: dict[str, Any]) -> dict[str, Any]:
        self._jobs.write(json.dumps(job) + "\n")
        self._jobs.flush()
        line = self._results.readline()
        if not line:
            raise BenchmarkError("the load generator ended; see its error above")
        result: dict[str, Any] = json.loads(line)
        return result


def _job(target: Target, connections: int, seconds: float) -> dict[str, Any]:
    request = prepared("GET", target.path, token=target.token).decode()
    job = {"port": target.port, "request": request}
    return {**job, "connections": connections, "seconds": seconds}


@contextmanager
def load_generator() -> Iterator[Generator]:
    """Give wrk where it is installed, else start our own; end it with the block."""
    program = shutil.which("wrk")
    if program is not None:
        yield Wrk(program)
        return
    with own_generator() as generator:
        yield generator


@contextmanager
def own_generator() -> Iterator[OwnGenerator]:
    """Start our own; end it with the block."""
    command = [sys.executable, "-m", "benchmarks.generator"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield OwnGenerator(cast("IO[str]", process.stdin), cast("IO[str]", process.stdout))
        finally:
            process.kill()
