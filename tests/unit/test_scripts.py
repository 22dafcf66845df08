"""The scripts beside the tests: what they run, count and find."""

import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import house, mutants
from scripts.mutants import Mutant
from tests.testkit.patience import wait_until

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
DEADLINE_S = 60
SLEEP = "import time; time.sleep(600)"
PROGRAMS = {
    "pass": "",
    "fail": "1 / 0",
    "lack": "raise SystemExit(75)",
    "sleep": SLEEP,
    "deaf": "import os, pathlib, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    f"pathlib.Path(os.environ['DEAF']).touch(); {SLEEP}",
    "leave": f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}])",
}


def started(script: str, **values: object) -> "subprocess.Popen[str]":
    """Run Python code that imports scripts; ``{name}`` in it stands for a value."""
    return subprocess.Popen(
        [sys.executable, "-c", script.format(**values)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


CHECKS = """
import sys
import checks

checks.END_WITHIN_S = {end_within_s}
queues = [
    [checks.Check(name, ["python", "-c", program]) for name, program in queue] for queue in {queues}
]
sys.exit(checks.run(queues))
"""


def checking(*queues: list[str], end_within_s: float = 0.5) -> "subprocess.Popen[str]":
    named = [[(name, PROGRAMS[name]) for name in queue] for queue in queues]
    return started(CHECKS, queues=named, end_within_s=end_within_s)


def summary(output: str) -> list[str]:
    """Return the last lines, without the durations."""
    lines = output.rstrip("\n").rpartition("\n\n")[2].splitlines()
    return [line.partition(" in ")[0] for line in lines]


def test_what_fails_is_named_whatever_passes_after_it_and_its_output_printed():
    with checking(["fail", "pass"], ["pass"]) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    lines = ["== fail FAILED", "== pass passed", "== pass passed", "Failed: fail."]
    assert summary(output) == lines
    assert "ZeroDivisionError" in output
    assert re.search(r"^\d+ s of CPU in \d+ s: \d+% of \d+ cores$", output, re.MULTILINE), output


def test_a_process_that_a_check_leaves_is_a_failure_and_is_killed():
    with checking(["leave"]) as process:
        lines = summary(process.communicate(timeout=DEADLINE_S)[0])
    assert process.returncode == 1
    assert lines[-1].startswith("== Left running, and killed: ")
    assert lines[-1].endswith(SLEEP)


def test_an_interrupt_ends_every_check_even_one_that_does_not_heed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEAF", str(tmp_path / "deaf"))
    with checking(["deaf", "fail"], ["pass"], end_within_s=10 * DEADLINE_S) as process:
        wait_until((tmp_path / "deaf").exists)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "\nInterrupted: everything ends.\n" in output
    assert summary(output) == ["== deaf not ended", "== fail not ended", "== pass passed"]


WORDS = ["room", "story", "stories"]


def test_names_and_prose_with_an_unwanted_word_are_violations(tmp_path: Path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text(
        "class RoomKey:\n    OldRoom = 1\n"
        "def call(stories, somewhere):\n    self.next_one = broom = 1\n"
    )
    assert list(house.violations_of(tmp_path, WORDS, ["OldRoom"])) == [
        f"app/a.py: {name} has a word that the house does not use."
        for name in ("RoomKey", "next_one", "stories")
    ]
    page = tmp_path / "a.md"
    page.write_text("No room, `room`, [rooms](room.md).\n```\nroom\n```\nStories.\n")
    assert house.unwanted_words(page, WORDS) == ["room", "rooms", "stories"]


STEPS = """
import sys
import checks
import faults

checks.END_WITHIN_S = 0.5
steps = [faults.Step(name, 1, ("-c", program), script=True) for name, program in {steps}]
sys.exit(faults.run(steps))
"""


def stepping(*names: str) -> "subprocess.Popen[str]":
    return started(STEPS, steps=[(name, PROGRAMS[name]) for name in names])


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return runpy.run_path(str(SCRIPTS / "faults.py"))


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


def test_every_test_with_a_long_size_or_of_the_pipeline_is_in_a_step(faults: dict[str, Any]):
    run, ignored = paths_of(faults)
    marks = ("pytest.mark.long", "testkit.sizes")
    of_spark = ROOT / "tests" / "pipeline"
    files = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if file.is_relative_to(of_spark)
        or (file != Path(__file__) and any(mark in file.read_text() for mark in marks))
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


def test_the_list_runs_nothing_and_an_unknown_step_is_named(
    faults: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    assert faults["main"](["--list", "quorum", "restarts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["restarts", "quorum", "together"]
    with pytest.raises(SystemExit):
        faults["main"](["quorums"])
    assert "no step is called quorums" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "code", "results"),
    [
        (["pass", "pass"], 0, ["== pass passed"] * 2),
        (["pass", "lack"], 75, ["== pass passed", "== lack NOT RUN"]),
        (
            ["lack", "fail", "pass"],
            1,
            ["== lack NOT RUN", "== fail FAILED", "== pass passed", "Failed: fail."],
        ),
    ],
)
def test_a_step_that_was_not_run_is_neither_passed_nor_failed(
    names: list[str], code: int, results: list[str]
):
    with stepping(*names) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, summary(output)) == (code, results)
    assert f"== step 1 of {len(names)}: {names[0]}, about 1 min; 0 min gone" in output


def test_an_interrupt_ends_the_run_and_still_prints_the_summary():
    with stepping("pass", "sleep", "fail") as process:
        assert process.stdout is not None
        while "step 2 of 3" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert summary(output) == ["== pass passed", "== sleep not ended", "== fail not ended"]


def test_without_another_python_its_tests_are_not_run(
    faults: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    script = runpy.run_path(str(SCRIPTS / "other_versions.py"))
    monkeypatch.setitem(script["with_python"].__globals__, "good_pythons", list)
    assert script["with_python"]() == os.EX_TEMPFAIL


SOURCE = "def double(number):\n    # 2 * number\n    return 2 * number\n"
TEST = "from sums import double\n\n\ndef test_doubling():\n    assert double(2) == 4\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(SOURCE)
    (tmp_path / "test_sums.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def test_every_defect_applies():
    every = mutants.read_mutants()
    assert len(every) >= 20
    assert list(mutants.faults_of(every)) == []
    assert {item.file.split("/")[1] for item in every} >= {"domain", "service", "postgres"}


def defect(old: str, new: str, file: str = "sums.py") -> Mutant:
    return Mutant("it", "A promise.", file, old, new, ("test_sums.py",))


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("return 3", "return 2"), "its text occurs 0 times in sums.py"),
        (("2 *", "3 *"), "its text occurs 2 times in sums.py"),
        (("return 2 *", "return 2 * ("), "'(' was never closed (sums.py, line 3)"),
        (("return 2", "return 3", "none.py"), "none.py does not exist"),
    ],
)
def test_a_defect_that_cannot_be_put_in_is_a_fault(
    copy: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], fault: str
):
    monkeypatch.setattr(mutants, "ROOT", copy)
    mutant = defect(*words)
    assert list(mutants.faults_of([mutant])) == [f"it: {fault}"]
    assert "it: the name is used twice" in list(mutants.faults_of([mutant, mutant]))


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("return 2", "return 3"), "found by test_sums.py::test_doubling"),
        (("# 2", "# 3"), "NOT FOUND ("),
        (("def double", "def treble"), "NOT FOUND: pytest ended with 2"),
    ],
)
def test_a_defect_is_found_by_a_test_that_fails_and_by_nothing_else(
    copy: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    printed: str,
):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    found = mutants.is_found(defect(*words), copy)
    assert found == printed.startswith("found")
    assert capsys.readouterr().out.startswith(f"it … {printed}")
    assert (copy / "sums.py").read_text() == SOURCE
