"""How much a judged run was put through: what a promise is measured by."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.testkit.history import End
from tests.testkit.history_checker import Violation
from tests.testkit.history_evidence import Evidence

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
        sum(one.was_recovered for one in evidence.audit.entities),
        len(evidence.oracle.records),
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
