"""The figures of a run say how large it was, and what was wrong in it."""

from pathlib import Path

import pytest

from tests.testkit.history.checker import (
    Violation,
    figures_of,
    figures_text,
    note_figures,
    violations,
)
from tests.unit.history.honest import AUDITED, CALLS, RECORDS, evidence


def test_an_honest_run_is_counted_and_nothing_is_wrong_in_it():
    honest = evidence()
    figures = figures_of(honest, violations(honest))
    assert figures == {
        "calls": len(CALLS),
        "without a definite answer": 4,
        "intents": len(AUDITED),
        "concluded by recovery": 2,
        "records in the metadata log": len(RECORDS),
        "not concluded": 0,
        "violations": 0,
    }


def test_what_is_not_concluded_is_counted_apart():
    found = [
        Violation("everything_is_concluded_once", "slot 1 is still taken"),
        Violation("conclusions_are_true", "not in the metadata log"),
    ]
    figures = figures_of(evidence(), found)
    assert (figures["not concluded"], figures["violations"]) == (1, 2)


def test_the_figures_of_all_tests_are_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv("FAULTS_FIGURES", str(path))
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/a.py::test_something[a kill] (call)")
    note_figures({"faults": 3})
    note_figures({"faults": 4, "calls": 5})
    assert figures_text(path).splitlines() == [
        "something[a kill]",
        "  faults: 3",
        "something[a kill]",
        "  faults: 4",
        "  calls: 5",
    ]


def test_without_a_file_for_them_figures_are_not_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("FAULTS_FIGURES", raising=False)
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    monkeypatch.chdir(tmp_path)
    note_figures({"faults": 3})
    assert list(tmp_path.iterdir()) == []
