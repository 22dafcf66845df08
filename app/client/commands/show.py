"""``show ID`` and ``whoami``: what became of an alteration, and what the caller may do."""

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from app.client.entities import show_value
from app.client.errors import DONE, REFUSED, UNKNOWN_OUTCOME, UNREACHABLE, ClientError, StoppedError
from app.client.http import document
from app.client.output import Context, table, yaml_lines
from app.domain.entities import show_entity, visible

EXIT_CODES: Final[Mapping[str, int]] = {
    "applied": DONE,
    "validated": DONE,
    "partial": REFUSED,
    "refused": REFUSED,
    "not_applied": REFUSED,
    "observed_other": REFUSED,
    "superseded": REFUSED,
    "unknown": UNKNOWN_OUTCOME,
    "not_sent": UNREACHABLE,
}
"""By the outcome of an alteration."""

_LOOK_EVERY_S: Final = 2.0


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("alteration", metavar="ID", help="as `audit` shows it")
    parser.add_argument("--wait", action="store_true", help="until there is an outcome")


def run(context: Context) -> int:
    """Print an alteration; the exit code is that of the change itself."""
    context.refuse_output("csv")
    return show(context, context.options.alteration, wait=bool(context.option("wait")))


def show(context: Context, alteration: str, *, wait: bool) -> int:
    """Print an alteration; with ``wait``, once it has an outcome."""
    try:
        record = _wait_for_outcome(context, alteration) if wait else _record(context, alteration)
    except KeyboardInterrupt as interrupt:
        message = f"Stopped waiting. The alteration goes on: show {visible(alteration)} --wait."
        raise StoppedError(message) from interrupt
    context.write(record, _lines(record))
    return EXIT_CODES.get(record["outcome"], UNKNOWN_OUTCOME)


def _wait_for_outcome(context: Context, alteration: str) -> Any:
    record = _record(context, alteration)
    if record["outcome"] == "unknown":
        context.tell("Waiting for the outcome; Ctrl-C ends the waiting alone ...")
    while record["outcome"] == "unknown":
        time.sleep(_LOOK_EVERY_S)
        try:
            record = _record(context, alteration)
        except ClientError as error:
            if error.exit_code != UNREACHABLE:
                raise
    return record


def _record(context: Context, alteration: str) -> Any:
    path = f"/quotas/alterations/{quote(alteration, safe='')}"
    return document(context.service.get(path), "outcome", "results", "history")


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"Alteration {record['alteration_id']}: {_words(record['outcome'])}"
    yield f"by {visible(record['principal'])} from {visible(record['client_address'] or '?')}"
    if record["reason"]:
        yield f"because: {visible(record['reason'])}"
    yield ""
    for result in record["results"]:
        yield from result_lines(result)
    yield ""
    yield from table(
        [[event["at"], event["event"], visible(event["detail"])] for event in record["history"]]
    )


def result_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield an entity with its outcome, and each of its values that differs."""
    yield f"{show_entity(result['entity'])}: {_words(result['outcome'])}"
    before, after = result.get("before"), result.get("after")
    if before is None or after is None:
        return
    for key in sorted({*before, *after}):
        was, now = (show_value(values.get(key, "unset")) for values in (before, after))
        if was != now:
            yield f"  {visible(key)}: {was} -> {now}"
    if before == after:
        yield "  nothing differs"


def _words(outcome: str) -> str:
    return outcome.replace("_", " ")


def add_whoami_arguments(_: ArgumentParser) -> None:
    """Take no options of its own."""


def run_whoami(context: Context) -> int:
    """Print the caller as the service sees it, with its permissions."""
    context.refuse_output("csv")
    me = document(context.service.get("/me"), "principal", "permissions", "policy")
    context.write(me, _me_lines(me))
    return DONE


def _me_lines(me: Mapping[str, Any]) -> Iterator[str]:
    yield visible(me["principal"])
    names = ("cluster_id", "authentication", "client_address")
    yield from (f"  {name}: {visible(str(me[name]))}" for name in names)
    for verb, wanted in (("may", True), ("may not", False)):
        permissions = [name for name, allowed in me["permissions"].items() if allowed is wanted]
        if permissions:
            yield f"  {verb}: {', '.join(permissions)}"
    if me["policy"]:
        yield from yaml_lines({"policy": me["policy"]}, "  ")
    elif me["policy"] is not None:
        yield "  the policy lets you change nothing"
