"""``kafka-client-quotas`` as its users run it: a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DEADLINE_S = 120.0
"""Importing everything takes a second on an idle machine, and many on a busy one."""


def run_client(
    *words: str, stdin: str = "", environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; of the environment it sees no setting of this machine's user."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("KAFKA_CLIENT_")
    }
    return subprocess.run(
        [sys.executable, "-m", "app.client.main", *words],
        input=stdin,
        env={
            **kept,
            "XDG_CONFIG_HOME": "/nonexistent",
            "PYTHONPATH": str(Path.cwd()),
            **(environ or {}),
        },
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
