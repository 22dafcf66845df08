"""How much a judged run was put through: what a promise is measured by."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.history import End
from tests.support.history_checker import Violation
from tests.support.history_evidence import Evidence

COLUMNS: Final = (
    "calls",
    "without a definite answer",
    "intents",
    "concluded by recovery",
    "records in the metadata log",
    "not concluded",
    "violations",
)
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


def note_figures(path: Path, **figures: Any) -> None:
    """Add the figures of a run to a file, one JSON line each."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(figures) + "\n")


def figures_table(path: Path) -> str:
    """Return all that was noted, as a table in Markdown."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[str(row.get(name, "")) for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
