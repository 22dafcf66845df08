"""The run as a page."""

from collections.abc import Sequence

from benchmarks.pictures import file_name
from benchmarks.tables import Goal, Section, Table, show

_HEAD = """# Benchmarks

Written by one run of the command below on one machine, all competitors of a table in turns, round
by round. Use the ratios; the absolute figures move with the machine. A ratio is the median over the
rounds of the ratio within a round; p99 is by nearest rank, so with n up to 100 it is the maximum.
"Bare" is the same wire call from Python over this service's own transport on a warm connection,
without HTTP, authentication, authorization, judgement, audit or log. Unless a table says otherwise
all clients are warm and keep their connection. The other clients are pinned, and installed by the
run itself: franz-go's kadm and @platformatic/kafka by their lock files in `benchmarks/competitors`,
Java's AdminClient and `kafka-configs` from the broker's own jars, kafka-python from the packages of
this project."""


def page(
    environment: Sequence[tuple[str, str]], sections: Sequence[Section], pictures: str | None = None
) -> str:
    """Return the page in Markdown.

    Args:
        environment: Of the run: names and texts.
        sections: What was measured.
        pictures: The folder of the pictures, as seen from the page; null where there are none.
    """
    where = grid(("", ""), [[f"**{name}**", text] for name, text in environment])
    goals = [goal for section in sections for goal in section.goals]
    head = [_HEAD, where, "## Goals", _goals(goals)]
    return "\n\n".join([*head, *(_section(section, pictures) for section in sections)]) + "\n"


def _goals(goals: Sequence[Goal]) -> str:
    rows = [
        [
            goal.text,
            f"at {'most' if goal.at_most else 'least'} {goal.limit:,g}",
            show(goal.found),
            "met" if goal.met else "**missed**",
        ]
        for goal in goals
    ]
    return grid(("what", "goal", "found", ""), rows)


def _section(section: Section, pictures: str | None) -> str:
    table = section.table
    texts = [f"## {table.title}", table.note, grid(table.columns, table.rows)]
    if pictures is not None and section.measures:
        texts.append(_picture(table, f"{pictures}/{file_name(table)}"))
    return "\n\n".join(texts)


def _picture(table: Table, path: str) -> str:
    return f"![{table.title}: medians, from min to max]({path}.png)\n\n[The figures]({path}.csv)"


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
