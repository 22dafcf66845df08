"""Peers as processes: long-lived and warm, or one from start to end."""

import asyncio
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, cast

from benchmarks.competitors.jobs import Result, read_result
from benchmarks.competitors.peer import Peer, Peers
from benchmarks.errors import BenchmarkError

_DEADLINE_S = 120.0


class WarmPeer:
    """A peer that has started and keeps its connection; ``warm`` makes it."""

    def __init__(self, name: str, jobs: IO[str], results: IO[str]) -> None:
        self.name = name
        self._jobs = jobs
        self._results = results

    async def ask(self, job: str) -> Result:
        """Have a job done.

        Raises:
            BenchmarkError: It failed, or was not done within 120 s.
        """
        try:
            async with asyncio.timeout(_DEADLINE_S):
                line = await asyncio.to_thread(self._exchange, job)
        except TimeoutError as error:
            raise BenchmarkError(f"{self.name} does not answer") from error
        return read_result(self.name, line)

    def _exchange(self, job: str) -> str:
        try:
            self._jobs.write(job + "\n")
            self._jobs.flush()
        except BrokenPipeError:
            return ""
        return self._results.readline()


@contextmanager
def warm(peers: Peers, bootstrap_servers: str) -> Iterator[list[WarmPeer]]:
    """Start the peers; end them with the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(_started(peer, bootstrap_servers)) for peer in peers.present]


@contextmanager
def _started(peer: Peer, bootstrap_servers: str) -> Iterator[WarmPeer]:
    with subprocess.Popen(
        [*peer.command, bootstrap_servers],
        env=dict(peer.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            jobs, results = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
            yield WarmPeer(peer.name, jobs, results)
        finally:
            process.kill()


@dataclass(frozen=True)
class Start:
    """A process to start: its command, its environment, and its standard input."""

    command: Sequence[str]
    environ: Mapping[str, str]
    stdin: str = ""


def run_to_end(start: Start) -> str:
    """Run a process from its start to its end; return its standard output.

    Raises:
        BenchmarkError: There is no such program, it failed, or it took longer than 120 s.
    """
    try:
        done = subprocess.run(
            start.command,
            env=dict(start.environ),
            input=start.stdin,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError(f"{start.command[0]} did not run: {error}") from error
    if done.returncode != 0:
        raise BenchmarkError(f"{start.command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
