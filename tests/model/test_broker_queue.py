"""Which rules of recovery keep the audit log true under which assumption about brokers."""

from pathlib import Path

import pytest

from tests.model.broker_queue import Assumption, explore
from tests.model.combinations import ASSUMPTIONS, RULES, table
from tests.testkit.sizes import size

DOCUMENT = Path("docs/recovery-model.md")

ASSUMED = {assumed.name: assumed for assumed in ASSUMPTIONS}
RULE = {rules.name: rules for rules in RULES}
CHECKED = size([rules for rules in RULES if rules.scans or not rules.supersedes], RULES)
"""Two that the last contains take half of the time: a long run explores them as well."""

BOUNDED = ("no break", "1 break", "answer lost", "2 breaks", "frozen < 95 s")
UNBOUNDED = ("frozen > 95 s", "applied again", "frozen worker")


def violations(rules: str, assumed: Assumption) -> frozenset[str]:
    return explore(RULE[rules], assumed).violations


def test_the_document_shows_what_the_model_finds():
    document = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [line for line in table(CHECKED) if line not in document] == []


def test_it_is_the_same_whichever_writer_begins(subtests: pytest.Subtests):
    for rules in size(RULES[:9], RULES):
        with subtests.test(rules.name):
            for assumed in ASSUMPTIONS:
                assert explore(rules, assumed) == explore(rules, assumed._replace(writers=(1, 0)))


def test_one_fence_is_overtaken_by_one_break_and_a_pair_by_two():
    assert not violations("one fence", ASSUMED["no break"])
    assert violations("one fence", ASSUMED["1 break"])
    assert not violations("pair of fences", ASSUMED["answer lost"])
    assert violations("pair of fences", ASSUMED["2 breaks"])


def test_no_number_of_fences_is_a_proof(subtests: pytest.Subtests):
    for fences in [1, 2, 3, 4]:
        with subtests.test(fences=fences):
            rules = RULE["pair of fences"]._replace(fences=fences)
            fewer, as_many = Assumption("", breaks=fences - 1), Assumption("", breaks=fences)
            assert not explore(rules, fewer).violations
            assert explore(rules, as_many).violations


def test_after_95_s_nothing_is_wrong_while_what_was_sent_is_gone_by_then(subtests: pytest.Subtests):
    for name in BOUNDED:
        with subtests.test(name=name):
            assert not violations("… and late answers, slot held for the 95 s", ASSUMED[name])


def test_a_slot_that_a_late_answer_frees_at_once_is_freed_too_early():
    assumed = ASSUMED["frozen < 95 s"]
    assert violations("… and late answers, slot freed at once", assumed) == {
        "contradiction",
        "wrong last value",
    }


def test_what_a_superseded_alteration_does_late_is_recorded_as_drift(subtests: pytest.Subtests):
    for name in BOUNDED:
        with subtests.test(name=name):
            found = violations("… and the drift scan", ASSUMED[name])
            assert found <= {"drift, recorded", "contradiction, recorded"}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_late_apply_that_nobody_overwrites_is_always_recorded(name: str):
    alone = ASSUMED[name]._replace(writers=(0,))
    assert violations("… and the drift scan", alone) <= {
        "drift, recorded",
        "contradiction, recorded",
    }


def test_every_intent_can_be_concluded(subtests: pytest.Subtests):
    for rules in CHECKED:
        with subtests.test(rules.name):
            for assumed in ASSUMPTIONS:
                assert "open intent" not in explore(rules, assumed).violations
