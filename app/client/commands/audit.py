"""``audit``: who changed what, and when; newest first."""

import datetime as dt
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.entities import show_value
from app.client.errors import DONE, UsageError
from app.client.http import document
from app.client.output import Context, Progress, Style, table
from app.domain.entities import show_entity, visible

_DEFAULT_LIMIT: Final = 100
_PAGE: Final = 1000
_MEMBERS: Final = ("rows", "next_page_token")
_FILTERS: Final = ("actor", "since", "until", "outcome", "action")
_HEADER: Final = ("at", "principal", "action", "outcome", "entity", "change", "reason", "id")
_COLOURS: Final[Mapping[str, str]] = {
    "applied": "green",
    "validated": "dim",
    "refused": "red",
    "unknown": "yellow",
}
_NOT_CHANGED: Final = ("refused", "not_applied", "not_sent")
_NOTHING: Final = "-"


def add_audit_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--entity", action="append", metavar="COMPONENT", help="as in user=alice; repeats"
    )
    parser.add_argument("--actor", metavar="PRINCIPAL", help="who asked, as in User:ci")
    parser.add_argument(
        "--since",
        type=_time,
        metavar="TIME",
        help="as in 2h (ago), 2026-11-21 (UTC) or 2026-11-21T09:30:00Z; included",
    )
    parser.add_argument("--until", type=_time, metavar="TIME", help="upper bound, exclusive")
    parser.add_argument("--outcome", metavar="WORD", help="applied, refused, unknown, …")
    parser.add_argument("--action", metavar="WORD", help="alter, apply_plan, revert, denied, …")
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"rows at most (default: {_DEFAULT_LIMIT}; 0: all)"
    )


_AGO: Final = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _time(text: str) -> str:
    """Return a time as the service reads it; one without an offset is of UTC."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            at = dt.datetime.now(dt.UTC) - dt.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        else:
            at = dt.datetime.fromisoformat(text)
        at = at.astimezone(dt.UTC) if at.tzinfo else at.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is no time such as 2h (ago), 2026-11-21 or 2026-11-21T09:30:00Z"
        raise ArgumentTypeError(message) from None
    return f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"


def run_audit(context: Context) -> int:
    """Print the rows."""
    limit = context.option("limit", _DEFAULT_LIMIT)
    if limit < 0:
        raise UsageError("--limit is a number of rows, or 0 for all of them.")
    rows = list(_rows(context, limit))
    me = document(context.service.get("/me"), "permissions") if context.is_watched else None
    if me and not me["permissions"]["audit"]:
        context.tell("Only your own changes are listed: seeing all needs the permission `audit`.")
    if not rows:
        context.tell("Nothing found.")
    cells = ([cell if cell != _NOTHING else "" for cell in _cells(row)] for row in rows)
    context.write({"rows": rows}, _lines(rows, context.style), [_HEADER, *cells])
    return DONE


def _rows(context: Context, limit: int) -> Iterator[Mapping[str, Any]]:
    parameters = [("entity", component) for component in context.option("entity", [])]
    parameters += context.pick(*_FILTERS).items()
    progress, count, token = Progress("rows of the audit log"), 0, None
    while count == 0 or token is not None:
        size = min(_PAGE, limit - count) if limit else _PAGE
        page = [("page_size", str(size)), *([] if token is None else [("page_token", token)])]
        answer = document(context.service.get("/audit", [*parameters, *page]), *_MEMBERS)
        yield from answer["rows"]
        count += len(answer["rows"])
        token = answer["next_page_token"]
        progress.tell(count)
        if token is None or (limit and count >= limit):
            break
    progress.end()


def _lines(rows: Sequence[Mapping[str, Any]], style: Style) -> Iterator[str]:
    if not rows:
        return
    heading, *lines = table([_HEADER, *map(_cells, rows)])
    yield style.paint(heading, "bold")
    for line, row in zip(lines, rows, strict=True):
        yield style.paint(line, _COLOURS.get(row["outcome"]))


def _cells(row: Mapping[str, Any]) -> list[str]:
    entity = row["entity"]
    return [
        row["at"],
        visible(row["principal"]),
        row["action"],
        row["outcome"],
        _NOTHING if entity is None else show_entity(entity),
        visible(_change(row)),
        visible(row["reason"] or _NOTHING),
        row["alteration_id"],
    ]


def _change(row: Mapping[str, Any]) -> str:
    # What was refused has changed nothing: there is no arrow from what holds.
    before = {} if row["outcome"] in _NOT_CHANGED else row["before"] or {}
    changes = []
    for op in row["ops"] or ():
        key = op["key"]
        was = f"{show_value(before[key])} -> " if key in before else ""
        now = "removed" if op.get("remove") else show_value(op.get("value"))
        changes.append(f"{key}: {was}{now}")
    return ", ".join(changes) or _NOTHING
