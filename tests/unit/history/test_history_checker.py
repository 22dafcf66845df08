"""The checker accepts honest runs and rejects each lie, by the rule that the lie breaks."""

from dataclasses import replace

import pytest

from tests.testkit.history.checker import RULES, violations
from tests.unit.history.doctored import audit, late_drift, sent_anew, with_record
from tests.unit.history.honest import CALLS, RECORDS, evidence, record, recovered, write
from tests.unit.history.lies import LIES


def test_an_honest_run_is_accepted():
    assert violations(evidence()) == []


def test_an_empty_run_is_accepted():
    assert violations(evidence((), (), ())) == []


def test_a_change_by_others_is_accepted_where_it_is_known():
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
        lambda one: recovered(replace(one, events=()), 0.5, "not_applied", observed="not_applied"),
    )
    assert violations(evidence(audited=found)) == []


def test_a_request_of_which_nothing_was_sent_may_be_repeated_with_its_key():
    honest = (
        record(240.15, write("dan", 12)) if one.write == write("dan", 12) else one
        for one in RECORDS
    )
    answers = (replace(call, answer=None) if call.idempotency_key else call for call in CALLS)
    records = tuple(sorted(honest, key=lambda one: one.at))
    run = evidence(tuple(answers), sent_anew(began=240), records)
    assert violations(run) == []


def test_a_change_that_comes_back_is_accepted_as_drift_where_lateness_has_no_bound():
    run = evidence(
        audited=audit("a1", late_drift), records=with_record(240, write("ann", 1)), bounded=False
    )
    assert violations(run) == []


@pytest.mark.parametrize("lie", LIES)
def test_a_doctored_history_is_rejected(lie: str):
    run, broken = LIES[lie]
    assert {one.rule for one in violations(run)} == broken


def test_every_rule_is_broken_by_a_lie():
    broken = {rule for _, rules in LIES.values() for rule in rules}
    assert broken == {rule.__name__ for rule in RULES}
