"""Standard output that is full or closed."""

import os
import subprocess
import sys

import pytest

COMMAND = f"{sys.executable} -m app.client.main completion bash"
USAGE = f"{sys.executable} -m app.client.main --describe --alter"


def run_in_shell(line: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent"}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environ, check=False
    )


def test_output_that_cannot_be_written_is_one_sentence():
    ended = run_in_shell(f"{COMMAND} > /dev/full")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith(
        "kafka-client-quotas: The output cannot be written: No space left on device."
    )


@pytest.mark.parametrize(("line", "code"), [(f"{COMMAND} >&-", 0), (f"{USAGE} 2>&-", 2)])
def test_a_closed_stream_is_one_that_nobody_reads(line: str, code: int):
    ended = run_in_shell(line)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")
