"""What became of an alteration, for people, scripts and exit codes."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from app.client.connection import document
from app.client.context import Context
from app.client.entities import show_entity
from app.client.errors import DONE, REFUSED, UNKNOWN_OUTCOME, UNREACHABLE
from app.client.problems import Place, ServiceError
from app.client.yaml_writing import yaml_lines

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
def refused_with_places(place: Place) -> Iterator[None]:
    """Let a refusal say what the user wrote, beside the service's pointers."""
    try:
        yield
    except ServiceError as error:
        error.place = place
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
    told = [error[name] for name in ("kafka_error", "message") if error.get(name)]
    yield ": ".join([result["outcome"].replace("_", " "), *told])
