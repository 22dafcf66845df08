"""What `make faults` runs exists, and what it could not run does not pass."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = runpy.run_path(str(ROOT / "scripts" / "faults.py"))


def test_every_step_and_every_conformance_test_exists():
    conformance = runpy.run_path(str(ROOT / "scripts" / "conformance.py"))
    named = [*FAULTS["STEPS"].values(), *conformance["TESTS"]]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("codes", "whole", "last_line"),
    [
        ([0, 0], 0, "== step 1: passed"),
        ([0, 75], 75, "== step 1: NOT RUN"),
        ([75, 1], 1, "== step 1: FAILED"),
        ([-9, 0], 1, "== step 1: passed"),
    ],
)
def test_a_step_that_was_not_run_is_neither_passed_nor_failed(
    codes: list[int], whole: int, last_line: str, capsys: pytest.CaptureFixture[str]
):
    assert FAULTS["report"]({f"step {at}": code for at, code in enumerate(codes)}) == whole
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_without_another_python_its_tests_are_not_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = runpy.run_path(str(ROOT / "scripts" / "other_python.py"))
    monkeypatch.setitem(script["main"].__globals__, "good_pythons", list)
    assert script["main"]() == FAULTS["NOT_RUN"]
