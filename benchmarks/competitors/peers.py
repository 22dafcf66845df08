"""Other clients: their jobs, and their processes, warm or from start to end.

A job is ``{"do": "alter", "entities": [names], "values": {key: number}}``, every entity in one
request, or ``{"do": "describe"}``, which asks for everything. The result is ``{"ms", "entities"}``,
or ``{"error"}``, each one line of JSON. The milliseconds are those of the client's call, from the
library's own objects to its own objects: neither the reading of the line nor the building of the
objects counts.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measures import BenchmarkError
from benchmarks.wire import Entities

CURL: Final = "curl"
DESCRIBE: Final = json.dumps({"do": "describe"})
_DEADLINE_S: Final = 120.0


class Result(NamedTuple):
    """What a call took, and how many entities were altered or described."""

    ms: float
    entities: int


def alter_job(entities: Entities, value: int) -> str:
    """Return the job that sets each key of each entity."""
    names = [entities.names(index) for index in range(entities.count)]
    values = dict.fromkeys(entities.keys, value)
    return json.dumps({"do": "alter", "entities": names, "values": values})


def read_result(peer: str, line: str) -> Result:
    """Read a result.

    Raises:
        BenchmarkError: The peer failed, or ended without one.
    """
    try:
        result = json.loads(line)
        return Result(float(result["ms"]), int(result["entities"]))
    except (ValueError, TypeError, KeyError) as error:
        raise BenchmarkError(f"{peer} has failed: {line.strip() or 'it ended'}") from error


@dataclass(frozen=True)
class Peer:
    """A program that does the jobs of its standard input.

    Attributes:
        name: For the tables.
        version: Of the library and of what it runs on.
        command: The bootstrap servers follow.
        environ: All of its environment.
    """

    name: str
    version: str
    command: Sequence[str]
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Peers:
    """Those that can run here, and why others cannot."""

    present: Sequence[Peer] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_curl(self) -> bool:
        """Whether the service can be called from a shell as its users do."""
        return CURL not in self.left_out

    @contextmanager
    def warm(self, bootstrap_servers: str) -> Iterator[list["Worker"]]:
        """Start the peers, which keep their connections; end them with the block."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(
                    worker(peer.name, [*peer.command, bootstrap_servers], peer.environ)
                )
                for peer in self.present
            ]


@dataclass(frozen=True)
class Worker:
    """A process that answers each line of its input with a line; ``worker`` starts it."""

    name: str
    process: subprocess.Popen[str]

    async def ask(self, job: str) -> str:
        """Have a job done; return nothing where the process ended.

        Raises:
            BenchmarkError: It was not done within 120 s.
        """
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return await asyncio.to_thread(self._exchange, job)
        except TimeoutError as error:
            raise BenchmarkError(f"{self.name} does not answer") from error

    def _exchange(self, job: str) -> str:
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise BenchmarkError(f"{self.name} has no pipes")
        try:
            stdin.write(job + "\n")
            stdin.flush()
        except BrokenPipeError:
            return ""
        return stdout.readline()


@contextmanager
def worker(name: str, command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Worker]:
    """Start a process; end it with the block."""
    with subprocess.Popen(
        command, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Worker(name, process)
        finally:
            process.kill()


class Start(NamedTuple):
    """A process to start: its command, its environment, and its standard input."""

    command: Sequence[str]
    environ: Mapping[str, str]
    stdin: str = ""


def run_to_end(start: Start, directory: Path | None = None, deadline_s: float = _DEADLINE_S) -> str:
    """Run a process from its start to its end; return its standard output.

    Raises:
        BenchmarkError: There is no such program, it failed, or it took too long.
    """
    try:
        done = subprocess.run(
            start.command,
            cwd=directory,
            env=dict(start.environ),
            input=start.stdin,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError(f"{start.command[0]} did not run: {error}") from error
    if done.returncode != 0:
        raise BenchmarkError(f"{start.command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
