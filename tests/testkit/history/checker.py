"""Checks a run against the metadata log, and counts how much it was put through."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.testkit.history import rules
from tests.testkit.history.events import End
from tests.testkit.history.evidence import Evidence

RULES: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    rules.every_record_has_an_intent,
    rules.conclusions_are_true,
    rules.everything_is_concluded_once,
    rules.order_is_the_clusters,
    rules.locks_do_not_overlap,
    rules.provisional_verdicts_were_true,
    rules.the_end_is_the_last_record,
    rules.answers_are_true,
    rules.what_may_be_repeated_was_never_applied,
    rules.answers_and_audit_agree,
    rules.each_request_is_one_change,
    rules.expectations_held,
    rules.refused_expectations_did_not_hold,
    rules.documents_tell_the_conclusion,
)


class Violation(NamedTuple):
    """Which rule is broken, and by what."""

    rule: str
    detail: str


def violations(evidence: Evidence) -> list[Violation]:
    """Return everything that must not be; none for a valid run."""
    return [Violation(rule.__name__, detail) for rule in RULES for detail in rule(evidence)]


COLUMNS: Final = (
    "calls",
    "without a definite answer",
    "intents",
    "concluded by recovery",
    "records in the metadata log",
    "not concluded",
    "violations",
)
FIGURES: Final = "FAULTS_FIGURES"
"""The variable that names the file for the figures."""

_NOT_CONCLUDED: Final = "everything_is_concluded_once"


def figures_of(evidence: Evidence, violations: Iterable[Violation]) -> Mapping[str, int]:
    """Count; an intent with two conclusions is a violation and "not concluded" as well."""
    rules = [violation.rule for violation in violations]
    counted = (
        len(evidence.calls),
        sum(call.end is End.UNKNOWN for call in evidence.calls),
        len(evidence.audit.entities),
        sum(entity.was_recovered for entity in evidence.audit.entities),
        len(evidence.records),
        rules.count(_NOT_CONCLUDED),
        len(rules),
    )
    return dict(zip(COLUMNS, counted, strict=True))


def note_figures(figures: Mapping[str, Any]) -> None:
    """Add the figures of the present test to the file that ``FAULTS_FIGURES`` names, if any."""
    if FIGURES not in os.environ:
        return
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" (")[0]
    line = json.dumps({"test": test.removeprefix("test_"), **figures})
    with Path(os.environ[FIGURES]).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def figures_text(path: Path) -> str:
    """Return all that was noted: for each test a line of its own for each figure."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return "\n".join(
        line
        for row in rows
        for line in (row.pop("test"), *(f"  {name}: {value}" for name, value in row.items()))
    )
