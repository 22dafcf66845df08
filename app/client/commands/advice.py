"""``advice``: which values to raise, to lower and to remove, and a document that does it."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.commands.temporary import rows_of
from app.client.entities import show_value
from app.client.errors import DONE
from app.client.output import Context, Style, document_lines, table
from app.client.problems import ServiceError
from app.domain.entities import show_entity, visible
from app.domain.quantities import UNSET, factor_in_words, value_in_words

Row = Mapping[str, Any]

_LISTS: Final[Mapping[str, tuple[str, Sequence[tuple[str, str]], str]]] = {
    "raise": ("/analytics/recommendations", [("action", "raise")], "rightsize"),
    "lower": ("/analytics/recommendations", [("action", "lower")], "rightsize"),
    "remove": ("/analytics/stale", [], "stale"),
}
"""By the advice: where it is listed, which of that, and the job that finds it."""

_SIZED: Final = ("raise", "lower")
_COLUMNS: Final = ("advice", "entity", "key", "now", "advised", "why")


def add_advice_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--only",
        choices=tuple(_LISTS),
        action="append",
        help="only this advice; repeats",
    )
    parser.add_argument(
        "--document",
        action="store_true",
        help="write a document that plan and apply take, in which all of it is done",
    )


def run_advice(context: Context) -> int:
    """Print what the pipeline advises, with its reason."""
    wanted = context.option("only", list(_LISTS))
    found = {name: _rows(context, name) for name in _LISTS if name in wanted}
    if context.option("document"):
        context.refuse_output("csv", "json")
        context.print(document_lines(_document(found)))
        return DONE
    cells = [_cells(name, row) for name, rows in found.items() for row in rows or ()]
    if any(found.get(name) == [] for name in _SIZED) and _unjudged(context):
        context.tell_always("Of some values the data do not suffice for advice yet.")
    elif not cells and None not in found.values():
        context.tell_always("Nothing found: no advice.")
    lines = [
        line
        for name, rows in found.items()
        for line in _lines([_words(name, row) for row in rows or ()], context.style)
    ]
    context.write(found, lines, [_COLUMNS, *cells])
    return DONE


def _rows(context: Context, name: str) -> list[Row] | None:
    """Return the rows of a list; null, after a sentence, where no run has published it."""
    path, parameters, job = _LISTS[name]
    try:
        return rows_of(context, path, parameters, "rows of advice")
    except ServiceError as error:
        if error.code != "no-run":
            raise
        context.tell_always(f"What to {name} is not known: `quota-pipeline {job} … --pg` finds it.")
        return None


def _unjudged(context: Context) -> bool:
    path, action = _LISTS["raise"][0], [("action", "insufficient")]
    return bool(rows_of(context, path, action, "rows of advice"))


def _entity_of(row: Row) -> dict[str, str | None]:
    columns = (
        ("user", "quota_user", "quota_user_default"),
        ("client-id", "quota_client_id", "quota_client_default"),
    )
    return {
        kind: None if row[default] else row[name]
        for kind, name, default in columns
        if row[default] or row[name]
    }


def _values(row: Row) -> tuple[Any, Any]:
    """Return the value now, and the advised one; null removes it."""
    return (row["limit"], row["value"]) if "action" in row else (row["value"], None)


def _cells(name: str, row: Row) -> list[str]:
    now, advised = (UNSET if value is None else show_value(value) for value in _values(row))
    reason = row["reason"] or row.get("kind") or ""
    return [name, show_entity(_entity_of(row)), row["key"], now, advised, reason]


def _words(name: str, row: Row) -> list[str]:
    """Return the columns for people: values with their units, and by how much they differ."""
    _, entity, key, _, _, reason = _cells(name, row)
    now, advised = (
        UNSET if value is None else value_in_words(row["key"], value) for value in _values(row)
    )
    factor = row.get("factor")
    if factor:
        advised += f" ({factor_in_words(1 / factor if name == 'lower' else factor)})"
    throttled = ", throttled" if row.get("censored") else ""
    return [name, entity, visible(key), now, advised, f"{visible(reason)}{throttled}"]


def _lines(cells: Sequence[Sequence[str]], style: Style) -> Iterator[str]:
    if cells:
        heading, *lines = table([_COLUMNS, *cells], right=(3,))
        yield style.paint(heading, "bold")
        yield from lines


def _document(found: Mapping[str, Sequence[Row] | None]) -> list[Row]:
    """Return the entities of a document in which all of it is done."""
    values: dict[str, dict[str, Any]] = {}
    entities: dict[str, Any] = {}
    bodies = (row["body"] for rows in found.values() for row in rows or () if row["body"])
    for alteration in (each for body in bodies for each in body["alterations"]):
        name = show_entity(alteration["entity"])
        entities[name] = alteration["entity"]
        of_entity = values.setdefault(name, {})
        for op in alteration["ops"]:
            of_entity[op["key"]] = UNSET if op.get("remove") else op["value"]
    return [{"entity": entities[name], "values": of_entity} for name, of_entity in values.items()]
