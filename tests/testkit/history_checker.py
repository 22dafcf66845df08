"""Judges a run: nobody was told, and nothing recorded, what the metadata log contradicts."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.testkit import history_call_rules as calls
from tests.testkit import history_log_rules as log
from tests.testkit.history_evidence import Evidence

RULES: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    log.every_record_has_an_intent,
    log.conclusions_are_true,
    log.everything_is_concluded_once,
    log.order_is_the_clusters,
    log.slots_do_not_overlap,
    log.provisional_verdicts_were_true,
    log.the_end_is_the_last_record,
    calls.answers_are_true,
    calls.what_may_be_repeated_was_never_applied,
    calls.answers_and_audit_agree,
    calls.each_request_is_one_change,
    calls.expectations_held,
    calls.refused_expectations_did_not_hold,
    calls.documents_tell_the_conclusion,
)


class Violation(NamedTuple):
    """Which rule is broken, and by what."""

    rule: str
    detail: str


def violations(evidence: Evidence) -> list[Violation]:
    """Return everything that must not be; none for an honest run."""
    return [Violation(rule.__name__, detail) for rule in RULES for detail in rule(evidence)]
