"""The figures of a run say how large it was, and what was wrong in it."""

from pathlib import Path

from tests.support.history_checker import Violation, violations
from tests.support.history_figures import figures_of, figures_table, note_figures
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


def test_the_figures_of_all_runs_are_one_table(tmp_path: Path):
    path = tmp_path / "figures.jsonl"
    note_figures(path, run="first", faults=3)
    note_figures(path, run="second", faults=4, calls=5)
    assert figures_table(path).splitlines() == [
        "| run | faults | calls |",
        "| --- | --- | --- |",
        "| first | 3 |  |",
        "| second | 4 | 5 |",
    ]
