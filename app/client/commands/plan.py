"""``plan FILE`` and ``apply``: show what would change for a document to hold, and do it."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from app.client.arguments import add_change_options, add_consent_option, end_of
from app.client.commands.alter import (
    impact_lines,
    locate_refusals,
    lowered_drastically,
    refuse_unless_meant,
    send,
)
from app.client.documents import QuotaFile, read_document
from app.client.entities import read_components, show_value
from app.client.errors import DONE, REFUSED, ClientError, UsageError
from app.client.http import document
from app.client.output import Context, Progress, Style, counted, safe_line, table
from app.client.problems import ServiceError
from app.documents.quotas import Document
from app.domain.entities import show_entity, visible
from app.domain.quantities import factor_in_words, value_in_words

_PLAN_MEMBERS: Final = ("plan_id", "changes", "conflicts", "kept", "expires_at")
"""What an answer with a plan has."""

_FIRST: Final = 20
"""So many entities of a plan are printed unless all are asked for."""

_COLOURS: Final[Mapping[str, str]] = {
    "set": "green",
    "raised": "green",
    "lowered": "yellow",
    "removed": "red",
    "unchanged": "dim",
}
_MARKS: Final[Mapping[str, str]] = {"set": "+", "removed": "-", "unchanged": " "}


def _add_options(parser: ArgumentParser) -> None:
    """Add what the service needs to make a plan."""
    group = parser.add_argument_group("plan")
    group.add_argument("--owner", metavar="NAME", help="in whose name (default: the caller)")
    group.add_argument(
        "--scope",
        action="append",
        metavar="COMPONENT",
        help="touch only what matches, as in user^=team-a-; repeats",
    )
    group.add_argument(
        "--prune",
        action="store_true",
        help="also remove what the owner applied before and the file does not name any more",
    )
    group.add_argument(
        "--adopt", action="store_true", help="also take ownership of keys that already match"
    )
    parser.add_argument(
        "--details", action="store_true", help=f"print every entity (default: the first {_FIRST})"
    )


_MOST_KEYS: Final = 10_000
_MOST_BYTES: Final = 1_500_000
"""Of one request: the service takes so many entities and keys, and 2 MiB of their records."""

_BESIDE_NAMES: Final = 64
"""Bytes of a record beside names and key, at most."""


def _chunks(wanted: QuotaFile) -> Iterator[QuotaFile]:
    """Yield a document in chunks that the service takes, in order; most documents are one."""
    quotas, lines = wanted.document.quotas, wanted.document.lines
    start = keys = size = 0
    for at, quota in enumerate(quotas):
        names = sum(len((name or "").encode()) for _, name in quota.entity.entries)
        own_keys = max(1, len(quota.values))
        own_size = own_keys * (names + _BESIDE_NAMES)
        if at > start and (keys + own_keys > _MOST_KEYS or size + own_size > _MOST_BYTES):
            yield QuotaFile(wanted.file, Document(quotas[start:at], lines[start:at]))
            start, keys, size = at, 0, 0
        keys, size = keys + own_keys, size + own_size
    yield QuotaFile(wanted.file, Document(quotas[start:], lines[start:]))


def _make_plans(context: Context, file: str) -> list[Any]:
    """Return the plan for a document; one for each chunk of it where it is large."""
    chunks = list(_chunks(read_document(file)))
    if len(chunks) > 1:
        if context.option("prune"):
            raise UsageError(
                f"--prune needs a document of at most {_MOST_KEYS:,} keys: what the other chunks "
                "name would be removed."
            )
        if context.option("idempotency_key"):
            raise UsageError("--idempotency-key belongs to one plan: apply --plan ID.")
        context.note(
            f"The document is large: {len(chunks)} chunks in its order, each whole or not at all."
        )
    progress, plans = Progress("chunks planned"), []
    for number, chunk in enumerate(chunks, 1):
        plans.append(_make_plan(context, chunk))
        progress.tell(number, len(chunks))
    progress.end()
    return plans


def _make_plan(context: Context, wanted: QuotaFile) -> Any:
    body: dict[str, Any] = {"document": wanted.body(), "impact": True}
    body |= context.pick("owner", "prune", "adopt")
    if context.option("scope"):
        body["scope"] = [_condition(text) for text in context.option("scope")]
    with locate_refusals(wanted.locate):
        return context.service.ask("/quotas/plans", body, *_PLAN_MEMBERS)


def _condition(text: str) -> str:
    components = read_components(text, "--scope")
    if len(components) > 1:
        raise UsageError(
            "--scope takes one condition; repeat it for others, any of which must match. In a "
            "name write \\, for a comma."
        )
    return components[0]


def plan_lines(plan: Mapping[str, Any], style: Style, *, details: bool = True) -> Iterator[str]:
    """Yield what would change, the conflicts, and what pruning leaves."""
    first = None if details else _FIRST
    for change in plan["changes"][:first]:
        yield style.paint(show_entity(change["entity"]), "bold")
        yield from _change_lines(change, style)
        yield ""
    yield from _more(plan["changes"], first)
    yield from _conflict_lines(plan["conflicts"][:first], style)
    yield from _more(plan["conflicts"], first)
    yield from _unpruned_lines(plan["kept"][:first])
    yield from _more(plan["kept"], first)
    temporary = plan.get("temporary", [])
    yield from _temporary_lines(temporary[:first], style)
    yield from _more(temporary, first)
    warnings = plan.get("warnings", [])
    yield from _warning_lines(warnings[:first], style)
    yield from _more(warnings, first)
    yield from _budget_lines(plan.get("budgets", []), style)
    yield from impact_lines(plan)
    yield _summary(plan)


def _more(entries: Sequence[Any], first: int | None) -> Iterator[str]:
    if first is not None and len(entries) > first:
        yield f"and {len(entries) - first:,} more: --details prints all of them"
        yield ""


def _change_lines(change: Mapping[str, Any], style: Style) -> Iterator[str]:
    impacts = [change["impact"]["keys"][op["key"]] for op in change["ops"]]
    rows = [
        [
            f"{_MARKS.get(impact['change'], '~')} {visible(op['key'])}",
            _value_text(change["before"].get(op["key"])),
            "->",
            _value_text(op.get("value")),
            f"{impact['change']}{_factor(impact['factor'])}{_note(change['entity'], impact)}",
        ]
        for op, impact in zip(change["ops"], impacts, strict=True)
    ]
    for line, impact in zip(table(rows, right=(1, 3)), impacts, strict=True):
        yield style.paint(f"  {line}", _COLOURS[impact["change"]])


def _value_text(value: Any) -> str:
    return "unset" if value is None else show_value(value)


def _factor(factor: float | None) -> str:
    return "" if factor is None else f" {factor_in_words(factor)}"


def _note(entity: Mapping[str, Any], impact: Mapping[str, Any]) -> str:
    """Tell where the callers of the entity get something else, and where nothing is left."""
    source, effective = impact["source"], impact["effective_after"]
    changed = _changed_since(impact.get("changed_since"))
    if impact["change"] == "removed":
        then = "unlimited" if source is None else _of(effective, source)
        return f"{changed}, then {then}"
    if source is not None and source["entity"] != entity:
        return f"{changed}, but {_of(effective, source)} goes before it"
    more = impact["more_specific"]
    before = f", but {counted(more, 'entity goes', 'entities go')} before it" if more else ""
    return f"{changed}{before}"


def _changed_since(held: Mapping[str, Any] | None) -> str:
    if held is None:
        return ""
    return f", changed outside since {visible(held['owner'])} applied {_value_text(held['value'])}"


def _of(value: Any, source: Mapping[str, Any]) -> str:
    return f"{_value_text(value)} of {show_entity(source['entity'])}"


def _conflict_lines(conflicts: Sequence[Mapping[str, Any]], style: Style) -> Iterator[str]:
    rows = [
        [
            f"  {show_entity(entry['entity'])}",
            visible(entry["key"]),
            f"of {visible(entry['owner'])}:",
            f"holds {_value_text(entry['held'])},",
            f"is {_value_text(entry['current'])},",
            f"planned {_value_text(entry['proposed'])}",
        ]
        for entry in conflicts
    ]
    yield from _section(style.paint("Held by other owners:", "red"), rows)


def _temporary_lines(temporary: Sequence[Mapping[str, Any]], style: Style) -> Iterator[str]:
    rows = [
        [
            f"  {show_entity(entry['entity'])}",
            visible(entry["key"]),
            f"is {_value_text(entry['value'])} until {visible(entry['expires_at'])},",
            f"then {_value_text(entry['returns_to'])};",
            f"planned {_value_text(entry['proposed'])}",
        ]
        for entry in temporary
    ]
    yield from _section(style.paint("For a time, and left; --force ends that:", "yellow"), rows)


def _unpruned_lines(unpruned: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        [
            f"  {show_entity(entry['entity'])}",
            f"{visible(entry['key'])}={show_value(entry['value'])}",
        ]
        for entry in unpruned
    ]
    yield from _section("Not pruned, because another caller has changed them since:", rows)


def _warning_lines(warnings: Sequence[Mapping[str, Any]], style: Style) -> Iterator[str]:
    for warning in warnings:
        entity, detail = show_entity(warning["entity"]), visible(warning["detail"])
        yield f"{style.paint('warning:', 'yellow')} {entity} {detail}"
    if warnings:
        yield ""


def _budget_lines(budgets: Sequence[Mapping[str, Any]], style: Style) -> Iterator[str]:
    for each in budgets:
        total, most = (
            value_in_words(each["key"], value)
            for value in (each["sum"], float(each["limit"] * each["overbooking"]))
        )
        yield (
            f"{style.paint('warning:', 'yellow')} applied now it would exceed the budget "
            f"{visible(each['name'])}: {visible(each['key'])} {total} of {most}"
        )
    if budgets:
        yield ""


def _section(title: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield from (title, *table(rows), "")


def _summary(plan: Mapping[str, Any]) -> str:
    changes = plan["changes"]
    if not changes and plan.get("prune"):
        return f"No changes. {visible(plan['owner'])} owns nothing that would have to be removed."
    if not changes:
        return "No changes."
    removed = sum(1 for change in changes for op in change["ops"] if op.get("remove"))
    ops = sum(len(change["ops"]) for change in changes)
    held = len(plan["conflicts"])
    conflicts = f", {counted(held, 'conflict', 'conflicts')}" if held else ""
    return (
        f"Plan {plan['plan_id']}: {counted(len(changes), 'entity', 'entities')}, "
        f"{ops - removed} to set, {removed} to remove{conflicts}; "
        f"valid until {plan['expires_at']}."
    )


def add_plan_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "file", metavar="FILE", help="a document: YAML, JSON, or CSV; - reads stdin"
    )
    _add_options(parser)


def run_plan(context: Context) -> int:
    """Print the plan; exit code 1 where it has changes, so that a script can tell."""
    context.refuse_output("csv")
    plans = _make_plans(context, context.options.file)
    details = bool(context.option("details"))
    for plan in plans:
        context.write(plan, plan_lines(plan, context.style, details=details))
    has_changes = any(plan["changes"] or plan["conflicts"] for plan in plans)
    return REFUSED if has_changes else DONE


def add_apply_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a document: YAML, JSON, or CSV; - reads stdin"
    )
    parser.add_argument("--plan", metavar="ID", help="apply a plan that was made before")
    _add_options(parser)
    line = "take over what other owners hold, and end what is for a time"
    parser.add_argument("--force", action="store_true", help=line)
    add_consent_option(parser)
    add_change_options(parser, validate=False)


def run_apply(context: Context) -> int:
    """Plan and apply; the plan is printed on standard error."""
    context.refuse_output("csv")
    plans = _plans(context)
    for plan in plans:
        _print_plan(context, plan)
    changes = [change for plan in plans for change in plan["changes"]]
    refuse_unless_meant(context, lowered_drastically(changes))
    question = "Apply this plan?" if len(plans) == 1 else f"Apply these {len(plans)} plans?"
    if changes and not context.option("yes") and not context.confirm(question):
        context.note("Nothing was changed.")
        return REFUSED
    code = DONE
    for number, plan in enumerate(plans, 1):
        chunk = f"Chunk {number} of {len(plans)}: " if len(plans) > 1 else ""
        try:
            code = max(code, _apply(context, plan, chunk))
        except (ClientError, KeyboardInterrupt):
            if chunk:
                context.note(f"{chunk}not known to be applied. {_how_to_go_on(number)}")
                context.note(f"  {context.again()}")
            raise
        if code != DONE:
            return code
    return code


def _how_to_go_on(number: int) -> str:
    before = f"Chunks before {number} are applied; what" if number > 1 else "What"
    return f"{before} holds already is planned to nothing, so this goes on:"


def _print_plan(context: Context, plan: Mapping[str, Any]) -> None:
    if context.output == "text":
        sys.stdout.flush()
        style = Style.of(sys.stderr, context.option("color", "auto"))
        lines = plan_lines(plan, style, details=bool(context.option("details")))
        sys.stderr.writelines(f"{safe_line(line)}\n" for line in lines)


def _apply(context: Context, plan: Mapping[str, Any], chunk: str) -> int:
    body = {**context.pick("force", "reason"), **end_of(context)}
    path = f"/quotas/plans/{quote(plan['plan_id'], safe='')}/apply"
    again = ["apply", "--plan", plan["plan_id"], "--yes"]
    again += ["--force"] if context.option("force") else []
    for flag, name in (
        ("--reason", "reason"),
        ("--for", "expires_in"),
        ("--until", "expires_at"),
    ):
        again += [flag, context.option(name)] if context.option(name) else []
    try:
        code, report = send(context, path, body, *again)
    except ServiceError as error:
        applied = _applied_before(context, plan) if error.code == _OUTDATED else None
        if applied is None:
            raise
        context.tell_always(f"Already applied as {applied['alteration_id']} at {applied['at']}.")
        return DONE
    if code == DONE and report is not None and context.output == "text":
        context.note(f"{chunk}Applied: alteration {report['alteration_id']}.")
    return code


_OUTDATED: Final = "plan-outdated"
_ROWS: Final = 1_000


def _applied_before(context: Context, plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a row of the audit log of the plan's own application; null where there is none.

    What another caller applied is only seen with the permission ``audit``.
    """
    conditions = [
        ("action", "apply_plan"),
        ("outcome", "applied"),
        ("since", plan["created_at"]),
        ("page_size", str(_ROWS)),
    ]
    token: str | None = None
    while True:
        page = () if token is None else (("page_token", token),)
        answer = document(context.service.get("/audit", (*conditions, *page)), "rows")
        for row in answer["rows"]:
            if row.get("plan", {}).get("plan_id") == plan["plan_id"]:
                found: Mapping[str, Any] = row
                return found
        token = answer.get("next_page_token")
        if token is None or not answer["rows"]:
            return None


def _plans(context: Context) -> list[Any]:
    file, plan_id = context.option("file"), context.option("plan")
    if (file is None) == (plan_id is None):
        raise UsageError("apply needs a FILE, or --plan ID; one of them.")
    if plan_id is not None:
        if any(context.option(name) for name in ("owner", "scope", "prune", "adopt")):
            raise UsageError("--owner, --scope, --prune and --adopt belong to the plan already.")
        answer = context.service.get(f"/quotas/plans/{quote(plan_id, safe='')}")
        return [document(answer, *_PLAN_MEMBERS)]
    return _make_plans(context, file)
