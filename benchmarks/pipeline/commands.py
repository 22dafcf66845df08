"""The pipeline's own command, timed from outside as a user sees it."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pipeline.memory import PeakMemory


@dataclass(frozen=True)
class Done:
    """What a command took.

    Attributes:
        seconds: From the start of its process to its end.
        peaks: Resident bytes by program.
        report: Its own.
    """

    seconds: float
    peaks: Mapping[str, int]
    report: Mapping[str, Any]


def run_job(*arguments: str) -> Done:
    """Run a job of the pipeline.

    Raises:
        RuntimeError: It failed.
    """
    command = [sys.executable, "-m", "app.pipeline.main", *arguments, "--json"]
    begun = time.monotonic()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        PeakMemory(process.pid) as memory,
    ):
        stdout, _ = process.communicate()
    if process.returncode != 0:
        message = f"{' '.join(command)} ended with {process.returncode}"
        raise RuntimeError(message)
    return Done(time.monotonic() - begun, memory.peaks, json.loads(stdout))


def made_up(folder: Path, observations: int, entities: int) -> Path:
    """Return the folder of a synth run of that size, made now unless it is there."""
    data = folder / f"synth-{observations}-{entities}"
    if not (data / "complete").exists():
        sizes = ("--observations", str(observations), "--entities", str(entities))
        run_job("synth", "--seed", "1", *sizes, "--shape", "parquet", "--out", str(data))
        (data / "complete").touch()
    return data


def run_chain(data: Path, out: Path) -> Done:
    """Run the chain from tidy Parquet to incidents."""
    options = ("--format", "parquet", "--input", str(data / "parquet"), "--quotas", str(data))
    return run_job("run", *options, "--out", str(out))
