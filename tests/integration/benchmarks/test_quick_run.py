"""The benchmarks run: what they measure is a service, a broker and a database that work."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import psutil
import pytest

pytestmark = pytest.mark.long

DEADLINE_S = 280


def test_a_quick_run_measures_every_competitor_and_leaves_nothing_behind(tmp_path: Path):
    page = tmp_path / "page" / "benchmarks.md"
    page.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--peer", "kafka-python", "--page", page],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for arm in (
        "bare describe",
        "`GET /quotas`",
        "no-op route",
        "bare alter",
        "`POST`, `wait: none`",
        "`POST`, `wait: readable`",
        "`kafka-configs`, one process",
        "kafka-python, one process",
        "kafka-python",
        "image, nothing has changed",
    ):
        assert f"| {arm} | " in done.stdout
    assert "**extrapolated**" in done.stdout
    assert "| `curl` to the service, `wait: none` | 2 |" in done.stdout or not which("curl")
    assert "| 32 | `GET /quotas/resolve` | 3 |" in done.stdout
    for clients in (1, 8, 32):
        assert f"| {clients} | bare alter | 2 |" in done.stdout
        assert f"| {clients} | `POST`, `wait: none` | 2 |" in done.stdout
    phases = ("intent", "wait for the group", "barrier", "Kafka", "outcome")
    assert re.search(", ".join(rf"{phase} [\d.]+" for phase in phases), done.stdout)
    assert re.search(r"ms more than a bare alter \| at most 5 \| -?[\d.]+ \| ", done.stdout)
    for image in ("not renewed", "renewed, values change", "renewed, entities come and go"):
        assert f"| {image} | 1 | 50 |" in done.stdout
    assert page.read_text() in done.stdout
    pictures = re.findall(r"\((benchmarks/[a-z0-9-]+\.(?:png|csv))\)", page.read_text())
    assert len(pictures) == 10
    assert all((page.parent / picture).stat().st_size > 0 for picture in pictures)
    running = [str(process.info["cmdline"]) for process in psutil.process_iter(["cmdline"])]
    assert [line for line in running if str(tmp_path) in line] == []
    assert list(tmp_path.iterdir()) == [page.parent]
