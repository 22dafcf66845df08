"""Which rules hold under which assumption, as the tables of ``docs/recovery-model.md``.

``python -m tests.model.combinations`` prints them.
"""

from typing import Final

from tests.model.broker_queue import Assumption, Rules
from tests.model.service_rules import explore
from tests.model.two_alterations import Design, Lock
from tests.model.two_alterations import explore as explore_ideal

DESIGNS: Final = (
    Design(Lock.NONE, fence=False, fresh_reads=True),
    Design(Lock.SESSION, fence=False, fresh_reads=True),
    Design(Lock.SESSION, fence=True, fresh_reads=True),
    Design(Lock.DURABLE, fence=False, fresh_reads=True),
    Design(Lock.DURABLE, fence=True, fresh_reads=False),
    Design(Lock.DURABLE, fence=True, fresh_reads=True),
    Design(Lock.DURABLE, fence=True, fresh_reads=True, applies_again=True),
)
"""With an ideal fence."""

ASSUMPTIONS: Final = (
    Assumption("no break"),
    Assumption("1 break", breaks=1),
    Assumption("answer lost", breaks=1, loses_answers=True),
    Assumption("2 breaks", breaks=2, loses_answers=True),
    Assumption("frozen < 95 s", breaks=1, loses_answers=True, keeps_copies=True),
    Assumption("frozen > 95 s", breaks=1, loses_answers=True, keeps_copies=True, bounded=False),
    Assumption("applied again", applies_again=True),
    Assumption("frozen worker", frozen_worker=True),
)
"""From left to right; each of the first six may do what the one before may, and more."""

_WAITS: Final = Rules("", fences=2, waits=True)
_LISTENS: Final = _WAITS._replace(listens=True, keeps_slot=True)
_SUPERSEDES: Final = _LISTENS._replace(supersedes=True, doubts=True)

RULES: Final = (
    Rules("no fence"),
    Rules("pair of fences through another broker", fences=2, pinned=False),
    Rules("pair of fences, stale read", fences=2, fresh_reads=False),
    Rules("one fence", fences=1),
    Rules("pair of fences", fences=2),
    Rules("95 s", waits=True),
    _WAITS._replace(name="95 s, then a pair"),
    _LISTENS._replace(name="… and late answers, slot freed at once", keeps_slot=False),
    _LISTENS._replace(name="… and late answers, slot held for the 95 s"),
    _SUPERSEDES._replace(name="… and supersede", doubts=False),
    _SUPERSEDES._replace(name="… and supersede, with doubt"),
    _SUPERSEDES._replace(name="… and the drift scan", scans=True),
)
"""From top to bottom; those that begin with … add to the row of the pair after 95 s."""

WORDS: Final = {
    "contradiction": "C",
    "wrong last value": "V",
    "open intent": "O",
    "contradiction, recorded": "r",
    "drift, recorded": "r",
}

NOTHING: Final = "\N{EN DASH}"


def ideal_table() -> str:
    """Return the table of the ideal fence, in Markdown."""
    heads = ["Lock", "Fence", "Read", "Applied again", "States", "Found"]
    return _markdown([heads, *(_ideal_row(design) for design in DESIGNS)])


def table() -> str:
    """Return the table of the broker's queue, in Markdown."""
    heads = ["Rules", *(assumed.name for assumed in ASSUMPTIONS)]
    rows = [[rules.name, *(_cell(rules, assumed) for assumed in ASSUMPTIONS)] for rules in RULES]
    return _markdown([heads, *rows])


def _ideal_row(design: Design) -> list[str]:
    found = explore_ideal(design)
    return [
        design.lock.value,
        "yes" if design.fence else "no",
        "fresh" if design.fresh_reads else "stale",
        "yes" if design.applies_again else "no",
        str(found.states),
        _letters(found.violations),
    ]


def _cell(rules: Rules, assumed: Assumption) -> str:
    return _letters(explore(rules, assumed).violations)


def _letters(violations: frozenset[str]) -> str:
    """Return what was found; a dash where nothing is wrong."""
    return " ".join(sorted({WORDS[found] for found in violations})) or NOTHING


def _markdown(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(ideal_table(), table(), sep="\n\n")
