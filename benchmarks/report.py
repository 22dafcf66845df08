"""The run as a page."""

from collections.abc import Sequence

from benchmarks.tables import Goal, Part, Table, shown

_HEAD = """# Benchmarks

Written by `make bench`: one run on one machine, all competitors in turns. Use the ratios; the
absolute figures move with the machine. A ratio is the median over the rounds of the ratio within a
round; p99 is by nearest rank, so with n up to 100 it is the maximum. "Bare" is the same wire call
from Python over this service's own transport on a warm connection, without HTTP, authentication,
authorization, judgement, audit or log. All clients are warm and keep their connection."""


def page(surroundings: Sequence[tuple[str, str]], parts: Sequence[Part]) -> str:
    """Return the page in Markdown."""
    where = _grid(("", ""), [[f"**{name}**", text] for name, text in surroundings])
    goals = [goal for part in parts for goal in part.goals]
    sections = [_HEAD, where, "## Goals", _goals(goals), *(_section(part.table) for part in parts)]
    return "\n\n".join(sections) + "\n"


def _goals(goals: Sequence[Goal]) -> str:
    rows = [
        [
            goal.text,
            f"at {'most' if goal.at_most else 'least'} {goal.limit:g}",
            shown(goal.found),
            "met" if goal.met else "**missed**",
        ]
        for goal in goals
    ]
    return _grid(("what", "goal", "found", ""), rows)


def _section(table: Table) -> str:
    return "\n\n".join([f"## {table.title}", table.note, _grid(table.columns, table.rows)])


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
