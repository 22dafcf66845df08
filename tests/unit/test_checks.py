"""What `make test` runs beside each other, on programs that take no time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import checks
from scripts.checks import copy_folder, shared_types

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
SLEEP = "import time; time.sleep(600)"
PROGRAMS = {
    "pass": "",
    "fail": "1 / 0",
    "sleep": SLEEP,
    "leave": f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}])",
}
RUN = """
import sys
import checks

checks.END_WITHIN_S = 0.5
queues = [
    [checks.Check(name, ["python", "-c", program]) for name, program in queue] for queue in {queues}
]
sys.exit(checks.run(queues))
"""


def start(*queues: list[str]) -> "subprocess.Popen[str]":
    named = [[(name, PROGRAMS[name]) for name in queue] for queue in queues]
    return subprocess.Popen(
        [sys.executable, "-c", RUN.format(queues=named)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        stdout=subprocess.PIPE,
        text=True,
    )


def results(*queues: list[str]) -> tuple[int, list[str]]:
    """Run the programs and return the exit code and the last lines, without the durations."""
    with start(*queues) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    lines = output.rstrip("\n").rpartition("\n\n")[2].splitlines()
    return process.returncode, [line.partition(" in ")[0] for line in lines]


def test_everything_passes():
    assert results(["pass", "pass"], ["pass"]) == (0, ["== pass passed"] * 3)


def test_what_fails_is_named_whatever_passes_after_it():
    lines = ["== fail FAILED", "== pass passed", "== pass passed", "Failed: fail."]
    assert results(["fail", "pass"], ["pass"]) == (1, lines)


def test_the_output_of_what_fails_is_printed():
    with start(["fail"]) as process:
        assert "ZeroDivisionError" in process.communicate(timeout=DEADLINE_S)[0]


def test_a_process_that_a_check_leaves_is_a_failure_and_is_killed():
    code, lines = results(["leave"])
    assert code == 1
    assert lines[-1].startswith("== Left running, and killed: ")
    assert lines[-1].endswith(SLEEP)


def test_an_interrupt_ends_every_check():
    with start(["sleep", "fail"], ["pass"]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        assert process.stdout.readline().startswith("== pass passed")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert output.splitlines()[-1] == "Interrupted: everything ends."


def test_a_folder_is_copied_where_there_is_none(tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    copy_folder(source, target)
    assert not target.parent.exists()
    source.mkdir()
    for content in ("first", "second"):
        (source / "file").write_text(content)
        copy_folder(source, target)
    assert (target / "file").read_text() == "first"
    assert list(target.parent.iterdir()) == [target]
    copy_folder(source, target / "file" / "cannot be written")


def test_other_packages_have_another_cache_of_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = shared_types()
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").touch()
    assert before.is_relative_to(tmp_path)
    assert shared_types() != before
