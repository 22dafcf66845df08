"""Which rules hold under which assumption, as the table of ``docs/recovery-model.md``.

``python -m tests.model.combinations`` prints it.
"""

from collections.abc import Sequence
from typing import Final

from tests.model.broker_queue import Assumption, Lock, Rules, explore

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
    _WAITS._replace(name="95 s, then a pair; no lock", lock=Lock.NONE),
    _WAITS._replace(name="95 s, then a pair; a lock that dies with its process", lock=Lock.SESSION),
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


def table(rows: Sequence[Rules]) -> list[str]:
    """Return the lines of the table with these rows, in Markdown."""
    heads = ["Rules", *(assumed.name for assumed in ASSUMPTIONS)]
    cells = [[rules.name, *(_cell(rules, assumed) for assumed in ASSUMPTIONS)] for rules in rows]
    lines = [heads, ["---"] * len(heads), *cells]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(rules: Rules, assumed: Assumption) -> str:
    """Return what was found; a dash where nothing is wrong."""
    violations = explore(rules, assumed).violations
    return " ".join(sorted({WORDS[found] for found in violations})) or NOTHING


if __name__ == "__main__":
    print("\n".join(table(RULES)))
