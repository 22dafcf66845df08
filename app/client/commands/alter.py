"""``--alter`` and ``revert ID``: change an entity's quotas, or take an alteration back."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from app.client.arguments import add_change_options, entity_chosen
from app.client.entities import read_changes
from app.client.errors import DONE, REFUSED, UNKNOWN_OUTCOME, UNREACHABLE, UsageError
from app.client.http import document
from app.client.output import Context, yaml_lines
from app.client.problems import Locate, ServiceError
from app.domain.entities import show_entity

_EXIT_CODES: Final[Mapping[str, int]] = {
    "applied": DONE,
    "validated": DONE,
    "partial": REFUSED,
    "refused": REFUSED,
    "unknown": UNKNOWN_OUTCOME,
    "not_sent": UNREACHABLE,
}

_FINE: Final = ("applied", "validated")


@contextmanager
def locate_refusals(locate: Locate) -> Iterator[None]:
    """Let a refusal say what the user wrote, beside the service's pointers."""
    try:
        yield
    except ServiceError as error:
        error.locate = locate
        raise


def conclude(context: Context, answer: Any) -> int:
    """Print what there is to say, and return the exit code; success alone is silent."""
    report = document(answer, "outcome", "results", "validate_only")
    if context.output == "json":
        context.print_json(report)
    elif context.output == "yaml":
        context.print(yaml_lines(report))
    for result in report["results"]:
        for sentence in _sentences(result):
            context.note(f"{show_entity(result['entity'])}: {sentence}")
    code = _EXIT_CODES.get(report["outcome"], UNKNOWN_OUTCOME)
    if code == UNKNOWN_OUTCOME:
        location = context.service.absolute(answer.headers.get("location", ""))
        context.note("The outcome is unknown. Ask Location what became of it.")
        context.note(f"Location: {location}")
    elif report.get("readable") is False and not report["validate_only"]:
        context.note("Applied; it could not be described within the time to wait.")
    sys.stderr.flush()
    return code


def _sentences(result: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"warning: {sentence}" for sentence in result.get("warnings", []))
    if result["outcome"] in _FINE:
        return
    error = result.get("error") or {}
    reasons = [error[name] for name in ("kafka_error", "message") if error.get(name)]
    yield ": ".join([result["outcome"].replace("_", " "), *reasons])


def run(context: Context) -> int:
    """Alter; print nothing where it is done."""
    context.refuse_output("csv")
    ops = read_changes(_join_lists(context, "add"), _join_lists(context, "delete"))
    if not ops:
        raise UsageError("--alter needs --add or --delete.")
    body: dict[str, Any] = {
        "validate_only": bool(context.option("validate_only")),
        "alterations": [{"entity": entity_chosen(context), "ops": ops}],
    }
    if context.option("reason") is not None:
        body["reason"] = context.option("reason")
    key = context.option("idempotency_key")
    with locate_refusals(lambda pointer: _written(body, pointer)):
        answer = context.service.alter("/quotas/alterations", body, key)
    return conclude(context, answer)


def _join_lists(context: Context, name: str) -> str | None:
    texts = context.option(name)
    return None if texts is None else ",".join(texts)


def _written(body: Mapping[str, Any], pointer: str) -> str | None:
    """Return what the user wrote for a pointer into the body."""
    path = pointer.split("/")[1:]
    if path[:2] != ["alterations", "0"] or len(path) < 3:
        return "--reason" if path == ["reason"] else None
    alteration = body["alterations"][0]
    if path[2] == "entity":
        return "--names and --defaults"
    if path[2] == "ops" and len(path) > 3 and path[3].isdigit():
        op = alteration["ops"][int(path[3])]
        return f"--delete {op['key']}" if "remove" in op else f"--add {op['key']}={op['value']}"
    return None


def add_revert_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("alteration", metavar="ID", help="as `audit` shows it")
    add_change_options(parser)


def run_revert(context: Context) -> int:
    """Send the inverse; refused where the values have changed since."""
    context.refuse_output("csv")
    body = {name: context.option(name) for name in ("validate_only", "reason")}
    body = {name: value for name, value in body.items() if value is not None}
    path = f"/quotas/alterations/{quote(context.options.alteration, safe='')}/revert"
    return conclude(context, context.service.alter(path, body, context.option("idempotency_key")))
