"""``temporary`` and ``keep ID``: what ends by itself, and another end for it, or none."""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from app.client.arguments import add_end_options, end_of
from app.client.entities import show_value
from app.client.errors import DONE
from app.client.http import document
from app.client.output import Context, Progress, table
from app.client.selection import add_selection_options, filters_of
from app.domain.entities import show_entity, visible

_PAGE: Final = "1000"
_HEADER: Final = ("until", "entity", "key", "value", "returns to", "principal", "reason", "id")
_MEMBERS: Final = ("rows", "next_page_token")


def add_temporary_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    add_selection_options(parser)


def run_temporary(context: Context) -> int:
    """Print the values that end by themselves, until when, and what each returns to."""
    rows = rows_of(context, "/quotas/temporary", filters_of(context), "temporary values")
    if not rows:
        context.tell_always("Nothing found: no value is for a time.")
    cells = [_cells(row) for row in rows]
    context.write({"rows": rows}, _lines(cells), [_HEADER, *cells])
    return DONE


def rows_of(
    context: Context, path: str, parameters: Sequence[tuple[str, str]], what: str
) -> list[Mapping[str, Any]]:
    """Return the rows of all pages of a list; ``what`` they are, for a person who waits."""
    progress, rows = Progress(what), list[Mapping[str, Any]]()
    page: list[tuple[str, str]] = []
    while True:
        answer = context.service.get(path, [*parameters, ("page_size", _PAGE), *page])
        found = document(answer, *_MEMBERS)
        rows += found["rows"]
        progress.tell(len(rows))
        before, page = page, [("page_token", found["next_page_token"])]
        if found["next_page_token"] is None:
            progress.end()
            return rows
        if page == before:
            message = "the next page is the page before it"
            raise ValueError(message)


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    return [
        row["expires_at"],
        show_entity(row["entity"]),
        visible(row["key"]),
        _value(row["value"]),
        _value(row["returns_to"]),
        visible(row["principal"]),
        visible(row["reason"] or "-"),
        row["alteration_id"],
    ]


def _value(value: Any) -> str:
    return "unset" if value is None else show_value(value)


_NOTED: Final = 20
"""So many values of a listing are noted, and then how many there are."""


def note_ends(context: Context, held: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Say on standard error until when values hold that are printed, and what follows.

    Args:
        context: Of the command.
        held: What holds, such as ``producer_byte_rate of {user=alice}``, and its ``temporary``.
    """
    ends = list(held)
    for name, end in ends[:_NOTED]:
        context.note(
            f"Note: {name} is until {end['expires_at']}, then {_value(end['returns_to'])}."
        )
    if len(ends) > _NOTED:
        context.note(f"Note: {len(ends) - _NOTED:,} more are for a time: see temporary.")


def _lines(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    if cells:
        yield from table([_HEADER, *cells], right=(3, 4))


def add_keep_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("alteration", metavar="ID", help="as `temporary` shows it")
    add_end_options(parser)


def run_keep(context: Context) -> int:
    """Keep what an alteration has set for good, or until another time."""
    body = end_of(context) or {"expires_at": None}
    path = f"/quotas/alterations/{quote(context.options.alteration, safe='')}/expiry"
    answer = document(context.service.put(path, body), *_MEMBERS)
    cells = [_cells(row) for row in answer["rows"]]
    if body == {"expires_at": None}:
        context.tell("For good now:")
    context.write(answer, _lines(cells), [_HEADER, *cells])
    return DONE
