"""``budgets``: how full the policy's budgets are, for itself and for ``lint``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.entities import show_value
from app.client.errors import DONE
from app.client.http import document
from app.client.output import Context, Style, table
from app.domain.entities import visible
from app.domain.quantities import value_in_words

Row = Mapping[str, Any]

_HEADING: Final = ("budget", "key", "sum", "at most", "full", "entities", "without a value")
_COLUMNS: Final = ("name", "key", "limit", "overbooking", "sum", "entities", "unlimited")
_NEAR: Final = 0.8


def run_budgets(context: Context) -> int:
    """Print what the quotas of each budget add up to, and to what they may."""
    rows = budget_rows(context)
    if not rows:
        context.tell_always("Nothing found: the policy of the service has no budgets.")
    cells = [[_cell(row[column]) for column in _COLUMNS] for row in rows]
    context.write({"rows": rows}, _lines(rows, context.style), [_COLUMNS, *cells])
    return DONE


def budget_rows(context: Context) -> list[Row]:
    """Return what the service says of its budgets, with who holds most and who has no value."""
    answer = context.service.get("/quotas/budgets", [("explain", "true")])
    rows: list[Row] = document(answer, "rows")["rows"]
    return rows


def most_of(row: Row) -> float:
    """Return the largest sum that a budget allows."""
    return float(row["limit"] * row["overbooking"])


def full_of(row: Row) -> float:
    """Return how full a budget is: 1 is full."""
    return float(row["sum"]) / most_of(row)


def fullness(row: Row) -> str:
    """Return how full a budget is, in a sentence."""
    held, most = (value_in_words(row["key"], value) for value in (row["sum"], most_of(row)))
    return (
        f"budget {visible(row['name'])}: {visible(row['key'])} {held} of {most} "
        f"({full_of(row):.0%}), {row['entities']:,} entities, {row['unlimited']:,} without a value"
    )


def _lines(rows: Sequence[Row], style: Style) -> Iterator[str]:
    if not rows:
        return
    heading, *lines = table([_HEADING, *map(_words, rows)], right=range(2, len(_HEADING)))
    yield style.paint(heading, "bold")
    for line, row in zip(lines, rows, strict=True):
        full = full_of(row)
        yield style.paint(line, "red" if full > 1 else "yellow" if full >= _NEAR else None)


def _words(row: Row) -> list[str]:
    return [
        visible(row["name"]),
        visible(row["key"]),
        *(value_in_words(row["key"], value) for value in (row["sum"], most_of(row))),
        f"{full_of(row):.0%}",
        f"{row['entities']:,}",
        f"{row['unlimited']:,}",
    ]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else show_value(value)
