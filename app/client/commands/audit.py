"""``audit``: who changed what, and when; newest first."""

import datetime as dt
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.entities import read_components, show_value
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
_NO_CHANGE: Final = "nothing differs"


def add_audit_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--entity",
        action="append",
        metavar="TYPE=NAME,…",
        help="as in user=alice,client-id=etl, or client-id:default; repeats",
    )
    parser.add_argument("--actor", metavar="PRINCIPAL", help="who asked, as in User:ci")
    parser.add_argument(
        "--since",
        type=_time,
        metavar="TIME",
        help="as in 2h (ago), yesterday, 2026-11-21 (UTC) or 2026-11-21T09:30:00Z; included",
    )
    parser.add_argument("--until", type=_time, metavar="TIME", help="upper bound, exclusive")
    parser.add_argument("--outcome", metavar="WORD", help="applied, refused, unknown, …")
    parser.add_argument(
        "--action", metavar="WORD", help="alter, apply_plan, revert, expire, denied, …"
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"rows at most (default: {_DEFAULT_LIMIT}; 0: all)"
    )


_DAYS: Final[Mapping[str, int]] = {"today": 0, "yesterday": 1}
"""Days that have a word: they begin at midnight of UTC, so many days ago."""

_AGO: Final = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _time(text: str) -> str:
    """Return a time as the service reads it; one without an offset is of UTC."""
    ago = _AGO.fullmatch(text)
    try:
        now = dt.datetime.now(dt.UTC)
        if ago is not None:
            at = now - dt.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        elif text in _DAYS:
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            at = midnight - dt.timedelta(days=_DAYS[text])
        else:
            at = dt.datetime.fromisoformat(text)
        at = at.astimezone(dt.UTC) if at.tzinfo else at.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        message = (
            f"{text!r} is no time such as 2h (ago), yesterday, 2026-11-21 or 2026-11-21T09:30:00Z"
        )
        raise ArgumentTypeError(message) from None
    return f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"


def run_audit(context: Context) -> int:
    """Print the rows."""
    limit = context.option("limit", _DEFAULT_LIMIT)
    if limit < 0:
        raise UsageError("--limit is a number of rows, or 0 for all of them.")
    rows, more, restricted_to = _rows(context, limit)
    if not rows:
        context.tell_always("Nothing found.")
    cells = [list(_cells(row)) for row in rows]
    report = {"rows": rows, "more": more, "restricted_to": restricted_to}
    context.write(report, _lines(rows, context.style), [_HEADER, *cells])
    if restricted_to is not None:
        context.tell_always(
            f"Only what {restricted_to} did is listed: seeing all needs the permission `audit`."
        )
    if more:
        context.tell_always(f"There are more than these {len(rows)} rows: --limit 0 lists all.")
    return DONE


def _rows(context: Context, limit: int) -> tuple[list[Mapping[str, Any]], bool, str | None]:
    """Return rows, whether there are more, and the principal whose rows alone are listed."""
    parameters = [
        ("entity", component)
        for text in context.option("entity", [])
        for component in read_components(text, "--entity")
    ]
    parameters += context.pick(*_FILTERS).items()
    progress, rows, token = Progress("rows of the audit log"), list[Mapping[str, Any]](), None
    while True:
        size = min(_PAGE, limit - len(rows)) if limit else _PAGE
        page = [("page_size", str(size)), *([] if token is None else [("page_token", token)])]
        answer = document(context.service.get("/audit", [*parameters, *page]), *_MEMBERS)
        rows += answer["rows"]
        token = answer["next_page_token"]
        progress.tell(len(rows))
        if token is None or not answer["rows"] or (limit and len(rows) >= limit):
            progress.end()
            return rows, token is not None, answer.get("restricted_to")


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
    """Return what differs; of what was refused or has no outcome yet, what was asked for."""
    before, after = row["before"], row["after"]
    is_done = row["outcome"] not in _NOT_CHANGED and before is not None and after is not None
    if is_done and row["ops"] and before == after:
        return _NO_CHANGE
    changes = []
    for op in row["ops"] or ():
        key = op["key"]
        if is_done and before.get(key) == after.get(key):
            continue
        was = f"{show_value(before[key])} -> " if is_done and key in before else ""
        now = "removed" if op.get("remove") else show_value(op.get("value"))
        changes.append(f"{key}: {was}{now}")
    return ", ".join(changes) or _NOTHING
