"""Metrics of a real broker, as the jobs of the pipeline collect and read them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.localdev.kafka import LocalKafka

PIPELINE = [sys.executable, "-m", "app.pipeline.main"]


def pipeline(job: str, *arguments: str | Path) -> dict[str, Any]:
    """Run a job, and return its report."""
    command = [*PIPELINE, job, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def collecting(kafka: LocalKafka, folder: Path, interval_s: int) -> Iterator[None]:
    """Collect the broker's metrics while the block runs."""
    arguments = ["--endpoint", f"1={kafka.metrics_url}", "--interval", str(interval_s)]
    cluster = ["--cluster", kafka.cluster_id, "--out", str(folder)]
    with subprocess.Popen(
        [*PIPELINE, "collect", *arguments, *cluster], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("broker 1 answers" in line for line in iter(process.stderr.readline, ""))
        try:
            yield
        finally:
            process.terminate()
            process.communicate()
    assert process.returncode == 0
