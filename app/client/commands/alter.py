"""``--alter``, ``revert ID`` and ``show ID``: changes, and what became of them."""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from app.client.arguments import add_change_options, add_changes, end_of
from app.client.commands.describe import identity_of
from app.client.entities import read_changes, show_value
from app.client.errors import (
    DONE,
    NOT_AUTHORIZED,
    REFUSED,
    UNKNOWN_OUTCOME,
    UNREACHABLE,
    ClientError,
    StoppedError,
    UsageError,
)
from app.client.http import document
from app.client.kafka_configs import add_other_flags, read_config_files
from app.client.output import Context, table
from app.client.problems import Locate, ServiceError, explain
from app.client.selection import add_selection_options, entity_chosen
from app.command_line import HIDDEN
from app.domain.alterations import Op
from app.domain.drastic import drastic_changes
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter, show_entity, visible
from app.domain.quantities import factor_in_words, value_in_words
from app.domain.quota_keys import QUOTA_KEY_RULES

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


def add_show_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("alteration", metavar="ID", help="as `audit` shows it")
    parser.add_argument("--wait", action="store_true", help="until there is an outcome")


def run_show(context: Context) -> int:
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
    if "expires_at" in record:
        yield f"until {record['expires_at']}"
    if "expires" in record:
        yield f"the end of alteration {record['expires']}"
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
            yield f"  {visible(key)}: {was} -> {now}{_factor(before.get(key), after.get(key))}"
    if before == after:
        yield "  nothing differs"


def _what_applies_then(context: Context, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what applies now instead of each value that was removed, to a connection like that."""
    removed = sorted((result.get("before") or {}).keys() - (result.get("after") or {}).keys())
    if not removed:
        return
    (resolved,) = context.service.resolve([identity_of(result["entity"])], max_age_ms=0)
    for key in removed:
        quota = resolved["quotas"].get(key, {"source": None})
        if quota["source"] is None:
            yield f"  {visible(key)}: no limit applies now"
        else:
            value, source = value_in_words(key, quota["value"]), quota["source"]["entity"]
            yield f"  {visible(key)}: now {value} of {show_entity(source)} applies"


def _factor(before: Any, after: Any) -> str:
    numbers = [value for value in (before, after) if isinstance(value, int | float)]
    return f" ({factor_in_words(after / before)})" if len(numbers) == 2 and before else ""


def _words(outcome: str) -> str:
    return outcome.replace("_", " ")


_FINE: Final = ("applied", "validated")
_MOST_BUCKETS: Final = 10
_MOST_RESULTS: Final = 20
"""So many entities are printed after a change."""


@contextmanager
def locate_refusals(locate: Locate) -> Iterator[None]:
    """Let a refusal say what the user wrote, beside the service's pointers."""
    try:
        yield
    except ServiceError as error:
        error.locate = locate
        raise


def send(
    context: Context, path: str, body: Mapping[str, Any], *again: str
) -> tuple[int, Mapping[str, Any] | None]:
    """Send what alters; print what a script has to know, and wait where a person reads along.

    Args:
        context: Of the command.
        path: Of the route.
        body: As JSON.
        again: The words of the command that learns the outcome; none: those that were typed.

    Returns:
        The exit code, and the report of an outcome that came at once, else null.
    """
    try:
        answer = context.service.alter(
            path, body, context.option("idempotency_key"), context.again(*again)
        )
    except ServiceError as error:
        if error.exit_code != UNKNOWN_OUTCOME or not (error.location and context.is_watched):
            raise
        context.tell(*explain(error))
        return show(context, error.location.rpartition("/")[2], wait=True), None
    report = document(answer, "outcome", "results", "validate_only", "alteration_id")
    context.write(report, ())
    for result in report["results"]:
        for sentence in _sentences(result):
            context.note(f"{show_entity(result['entity'])}: {sentence}")
    code = EXIT_CODES.get(report["outcome"], UNKNOWN_OUTCOME)
    if code == UNKNOWN_OUTCOME:
        return _unknown(context, report, answer), None
    if report.get("readable") is False and not report["validate_only"]:
        context.note("Applied; it could not be described within the time to wait.")
    sys.stderr.flush()
    return code, report


def _unknown(context: Context, report: Mapping[str, Any], answer: Any) -> int:
    location = context.service.absolute(answer.headers.get("location", ""))
    context.note("The outcome is unknown. Ask Location what became of it.")
    context.note(f"Location: {location}")
    if context.is_watched:
        return show(context, report["alteration_id"], wait=True)
    return UNKNOWN_OUTCOME


def _tell_what_was_done(context: Context, code: int, report: Mapping[str, Any] | None) -> int:
    if code != DONE or report is None:
        return code
    tell = context.tell if report["validate_only"] else context.tell_always
    for result in report["results"][:_MOST_RESULTS]:
        for line in result_lines(result):
            tell(line)
        if context.is_watched and not report["validate_only"]:
            context.tell(*_what_applies_then(context, result))
    if (more := len(report["results"]) - _MOST_RESULTS) > 0:
        tell(f"and {more:,} more entities: show {report['alteration_id']} prints all of them")
    context.tell(*impact_lines(report))
    has_changed = any(result.get("changed") for result in report["results"])
    if has_changed and not report["validate_only"]:
        if "expires_at" in report:
            again = context.hint("keep", report["alteration_id"])
            tell(f"It ends at {report['expires_at']}; for good: {again}")
        tell(f"To undo it: {context.hint('revert', report['alteration_id'])}")
    return code


def lowered_drastically(changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each value that changes lower by much, or to next to nothing.

    Args:
        changes: Each with ``entity``, ``ops`` and the values ``before``, as a plan has them.
    """
    sentences = []
    for change in changes:
        before = {
            key: value for key, value in change["before"].items() if isinstance(value, int | float)
        }
        ops = [Op(op["key"], Decimal(op["value"])) for op in change["ops"] if _is_allowed(op)]
        found = [each.detail for each in drastic_changes(before, ops) if each.lowers]
        sentences += [f"{show_entity(change['entity'])}: {detail}" for detail in found]
    return sentences


def _is_allowed(op: Mapping[str, Any]) -> bool:
    rule = QUOTA_KEY_RULES.get(op["key"])
    return "value" in op and rule is not None and rule.allows(float(op["value"]))


def refuse_unless_meant(context: Context, lowered: Sequence[str]) -> None:
    """Refuse what lowers a lot where nobody can be asked, and nothing says that it is meant.

    Raises:
        UsageError: With the sentences.
    """
    if lowered and not context.can_ask and not context.option("yes"):
        lines = [*lowered[:_MOST_RESULTS]]
        if (more := len(lowered) - _MOST_RESULTS) > 0:
            lines.append(f"and {more:,} more")
        message = "Nothing was changed: if that is meant, say --yes."
        raise UsageError("\n".join([*lines, message]))


def _is_meant(context: Context, alteration: Mapping[str, Any]) -> bool:
    """Tell whether a person, or ``--yes``, agrees with what an alteration lowers a lot."""
    if context.option("yes") or not any("value" in op for op in alteration["ops"]):
        return True
    wanted = ClientQuotaFilter.of(ClientQuotaEntity.of(alteration["entity"]))
    parameters = [("filter", str(component)) for component in wanted.components]
    try:
        read = context.service.get("/quotas", [*parameters, ("strict", "true")])
    except ServiceError as error:
        if error.exit_code == NOT_AUTHORIZED:
            return True  # whether it may be altered is decided where it is
        raise
    answer = document(read, "quotas")
    lowered = lowered_drastically(
        {**alteration, "before": quota["values"]}
        for quota in answer["quotas"]
        if quota["entity"] == alteration["entity"]
    )
    refuse_unless_meant(context, lowered)
    for sentence in lowered:
        context.note(sentence)
    return not lowered or context.confirm("Lower it all the same?")


def impact_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield which past traffic would have been over the new limits, as far as it is published."""
    impact = answer.get("impact")
    buckets = impact if isinstance(impact, list) else []
    over = [each for each in buckets if each["share_of_minutes_over"] != 0]
    for each in over[:_MOST_BUCKETS]:
        shared_by = {kind: name for kind, name in each["shared_by"].items() if name}
        share = each["share_of_minutes_over"]
        often = "perhaps over" if share is None else f"over in {100 * share:.3g} % of minutes"
        yield (
            f"{show_entity(shared_by)} {visible(each['key'])}: last {each['days']} days "
            f"{often}, peak {value_in_words(each['key'], each['peak'])}"
        )
    if len(over) > _MOST_BUCKETS:
        yield f"and {len(over) - _MOST_BUCKETS} more buckets: --output json has them"


def _sentences(result: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"warning: {sentence}" for sentence in result.get("warnings", []))
    if result["outcome"] in _FINE:
        return
    error = result.get("error") or {}
    reasons = [error[name] for name in ("kafka_error", "message") if error.get(name)]
    yield ": ".join([result["outcome"].replace("_", " "), *reasons])


def add_alter_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    add_selection_options(parser)
    add_changes(parser)
    add_other_flags(parser)


def run_alter(context: Context) -> int:
    """Alter; a script reads nothing where it is done."""
    context.refuse_output("csv")
    ops = read_config_files(context.option("add_config_file", []))
    ops += read_changes(context.option("add", []), context.option("delete", []))
    if not ops:
        raise UsageError("--alter needs --add or --delete.")
    validate_only = bool(context.option("validate_only"))
    body: dict[str, Any] = {
        "validate_only": validate_only,
        "impact": validate_only,
        "alterations": [{"entity": entity_chosen(context), "ops": ops}],
        **context.pick("reason"),
        **end_of(context),
    }
    with locate_refusals(lambda pointer: _user_input(body, pointer)):
        if not validate_only and not _is_meant(context, body["alterations"][0]):
            context.note("Nothing was changed.")
            return REFUSED
        return _tell_what_was_done(context, *send(context, "/quotas/alterations", body))


_FLAG_OF: Final = {"reason": "--reason", "expires_in": "--for", "expires_at": "--until"}
"""The flag of each member of a change."""


def _user_input(body: Mapping[str, Any], pointer: str) -> str | None:
    path = pointer.split("/")[1:]
    if path[:2] != ["alterations", "0"] or len(path) < 3:
        return _FLAG_OF.get(path[0]) if len(path) == 1 else None
    alteration = body["alterations"][0]
    if path[2] == "entity":
        return "--names and --defaults"
    if path[2] == "ops" and len(path) > 3 and path[3].isdigit():
        op = alteration["ops"][int(path[3])]
        if "remove" in op:
            return f"--delete {op['key']}"
        return f"--add {op['key']}={op['value'] if op['key'] in QUOTA_KEY_RULES else HIDDEN}"
    return None


def add_revert_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("alteration", metavar="ID", help="as `audit` shows it")
    add_change_options(parser)


def run_revert(context: Context) -> int:
    """Send the inverse; refused where the values have changed since."""
    context.refuse_output("csv")
    body = {**context.pick("validate_only", "reason"), **end_of(context)}
    path = f"/quotas/alterations/{quote(context.options.alteration, safe='')}/revert"
    return _tell_what_was_done(context, *send(context, path, body))
