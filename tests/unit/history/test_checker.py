"""The checker accepts valid runs, rejects each violation by its rule, and counts the runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.testkit.history.checker import (
    RULES,
    Violation,
    figures_of,
    figures_text,
    note_figures,
    violations,
)
from tests.unit.history.invalid_histories import (
    VIOLATIONS,
    audit,
    late_drift,
    sent_anew,
    with_record,
)
from tests.unit.history.valid_histories import (
    AUDITED,
    CALLS,
    RECORDS,
    evidence,
    record,
    recovered,
    write,
)


def test_a_valid_run_is_accepted():
    assert violations(evidence()) == []


def test_an_empty_run_is_accepted():
    assert violations(evidence((), (), ())) == []


def test_a_change_by_others_is_accepted_where_it_is_listed():
    outside = write("gus", 99)
    run = evidence(records=with_record(100, outside), outside=frozenset({outside}))
    assert violations(run) == []


def test_a_late_apply_that_is_recorded_as_drift_is_accepted_where_lateness_has_no_bound():
    run = evidence(
        audited=audit("a5", late_drift),
        records=with_record(190, write("cat", 7)),
        bounded=False,
    )
    assert violations(run) == []


def test_a_frozen_owner_may_say_not_sent_when_recovery_has_found_not_applied():
    found = audit(
        "a7",
        lambda item: recovered(
            replace(item, events=()), 0.5, "not_applied", observed="not_applied"
        ),
    )
    assert violations(evidence(audited=found)) == []


def test_a_request_of_which_nothing_was_sent_may_be_repeated_with_its_key():
    valid = (
        record(240.15, write("dan", 12)) if item.write == write("dan", 12) else item
        for item in RECORDS
    )
    answers = (replace(call, answer=None) if call.idempotency_key else call for call in CALLS)
    records = tuple(sorted(valid, key=lambda item: item.at))
    run = evidence(tuple(answers), sent_anew(began=240), records)
    assert violations(run) == []


def test_a_change_that_comes_back_is_accepted_as_drift_where_lateness_has_no_bound():
    run = evidence(
        audited=audit("a1", late_drift), records=with_record(240, write("ann", 1)), bounded=False
    )
    assert violations(run) == []


def test_an_invalid_history_is_rejected(subtests: pytest.Subtests):
    for violation in VIOLATIONS:
        with subtests.test(violation=violation):
            run, broken = VIOLATIONS[violation]
            assert {item.rule for item in violations(run)} == broken


def test_every_rule_is_violated_by_a_case():
    broken = {rule for _, rules in VIOLATIONS.values() for rule in rules}
    assert broken == {rule.__name__ for rule in RULES}


def test_a_valid_run_is_counted_and_nothing_is_wrong_in_it():
    valid = evidence()
    figures = figures_of(valid, violations(valid))
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
        Violation("everything_is_concluded_once", "lock 1 is still taken"),
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
