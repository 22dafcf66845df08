"""`make faults` runs every long size, and what it could not run does not pass."""

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
DEADLINE_S = 60
PROGRAMS = {
    "pass": "",
    "fail": "1 / 0",
    "lack": "raise SystemExit(75)",
    "sleep": "import time; time.sleep(600)",
}
RUN = """
import sys
import checks
import faults

checks.END_WITHIN_S = 0.5
steps = [faults.Step(name, 1, ("-c", program), script=True) for name, program in {steps}]
sys.exit(faults.run(steps))
"""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return runpy.run_path(str(SCRIPTS / "faults.py"))


def start(*names: str) -> "subprocess.Popen[str]":
    steps = [(name, PROGRAMS[name]) for name in names]
    return subprocess.Popen(
        [sys.executable, "-c", RUN.format(steps=steps)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )


def summary(output: str) -> list[str]:
    """Return the name and the result of each step, without the durations."""
    lines = output.rstrip("\n").rpartition("\n\n")[2].splitlines()
    return [" ".join(line.rpartition(" s")[0].split()[:-1]) for line in lines]


def paths_of(faults: dict[str, Any]) -> tuple[list[Path], list[Path]]:
    """Return the files and folders that the steps run, and those that a step leaves to another."""
    words = [word for step in faults["STEPS"] for word in step.arguments]
    ignored = [ROOT / word.removeprefix("--ignore=") for word in words if "--ignore=" in word]
    return [ROOT / word for word in words if "/" in word and "=" not in word], ignored


def test_every_step_and_every_conformance_test_exists(faults: dict[str, Any]):
    versions = runpy.run_path(str(SCRIPTS / "other_versions.py"))
    run, ignored = paths_of(faults)
    named = [*run, *ignored, *(ROOT / test.partition("::")[0] for test in versions["CONFORMANCE"])]
    assert [path for path in named if not path.exists()] == []


def test_every_test_with_a_long_size_is_in_a_step(faults: dict[str, Any]):
    run, ignored = paths_of(faults)
    marks = ("pytest.mark.long", "testkit.sizes")
    files = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if file != Path(__file__) and any(mark in file.read_text() for mark in marks)
    ]
    assert len(files) > 20
    folders = [path for path in run if path not in ignored]
    covered = [
        file
        for file in files
        if file in run or (file not in ignored and any(map(file.is_relative_to, folders)))
    ]
    assert covered == files


def test_every_test_by_examples_is_in_the_folder_of_their_step(faults: dict[str, Any]):
    (properties,) = (step for step in faults["STEPS"] if step.name == "properties")
    folder = ROOT / properties.arguments[-1]
    files = (ROOT / "tests").rglob("test_*.py")
    with_examples = [file for file in files if "\n@given(" in file.read_text()]
    assert len(with_examples) > 10
    assert [file for file in with_examples if not file.is_relative_to(folder)] == []


def test_the_list_runs_nothing(faults: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    assert faults["main"](["--list", "quorum", "restarts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["restarts", "quorum", "together"]


def test_an_unknown_step_is_named(faults: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        faults["main"](["quorums"])
    assert ended.value.code == 2
    assert "no step is called quorums" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "code", "results"),
    [
        (["pass", "pass"], 0, ["pass passed", "pass passed"]),
        (["pass", "lack"], 75, ["pass passed", "lack NOT RUN"]),
        (["lack", "fail", "pass"], 1, ["lack NOT RUN", "fail FAILED", "pass passed"]),
    ],
)
def test_a_step_that_was_not_run_is_neither_passed_nor_failed(
    names: list[str], code: int, results: list[str]
):
    with start(*names) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, summary(output)) == (code, results)
    assert f"== step 1 of {len(names)}: {names[0]}, about 1 min; 0 min gone" in output


def test_an_interrupt_ends_the_run_and_still_prints_the_summary():
    with start("pass", "sleep", "fail") as process:
        assert process.stdout is not None
        while "step 2 of 3" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert summary(output) == ["pass passed", "sleep not ended", "fail not ended"]


def test_without_another_python_its_tests_are_not_run(
    faults: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    script = runpy.run_path(str(SCRIPTS / "other_versions.py"))
    monkeypatch.setitem(script["with_python"].__globals__, "good_pythons", list)
    assert script["with_python"]() == faults["NOT_RUN"]
