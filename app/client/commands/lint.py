"""``lint``: quotas with no effect or a surprising one."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.errors import DONE, REFUSED
from app.client.http import document
from app.client.lint import (
    Finding,
    Levels,
    Severity,
    catching_brokers,
    not_numbers,
    odd_addresses,
    prefixed,
    without_credentials,
)
from app.client.output import Context, Style
from app.client.problems import ServiceError
from app.domain.entities import show_entity, visible

_COLOURS: Final[Mapping[Severity, str]] = {Severity.WARNING: "yellow", Severity.HINT: "dim"}

_TELLS_NOT: Final = (403, 404, 501, 502)
"""The service, or the broker, does not report who has credentials: one rule does not run then."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--broker-user",
        action="append",
        metavar="NAME",
        help="a user of the brokers, which no default should limit; repeats",
    )
    parser.add_argument(
        "--fail-on", choices=("findings", "warnings"), help="exit code 1 where there are such"
    )


def run(context: Context) -> int:
    """Print the findings, each with the line that would put it right."""
    context.refuse_output("csv")
    quotas = document(context.service.get("/quotas"), "quotas")["quotas"]
    found = list(_findings(context, quotas))
    findings = {"findings": [finding.as_json() for finding in found]}
    context.write(findings, _lines(found, context.style))
    return REFUSED if _fails(context.option("fail_on"), found) else DONE


def _findings(context: Context, quotas: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    yield from prefixed(quotas)
    yield from not_numbers(quotas)
    yield from odd_addresses(quotas)
    yield from catching_brokers(quotas, context.option("broker_user", []))
    yield from Levels(quotas).findings()
    yield from without_credentials(quotas, _scram_users(context))


def _scram_users(context: Context) -> frozenset[str]:
    try:
        answer = document(context.service.get("/users/scram-credentials"), "users")
    except ServiceError as error:
        if error.status not in _TELLS_NOT:
            raise
        context.note(f"Note: who has credentials is unknown ({error}).")
        return frozenset()
    return frozenset(user["user"] for user in answer["users"])


def _lines(found: Sequence[Finding], style: Style) -> Iterator[str]:
    for finding in found:
        entity = show_entity(finding.entity)
        key = "" if finding.key is None else f" {visible(finding.key)}"
        severity = style.paint(f"{finding.severity.value}:", _COLOURS[finding.severity])
        yield f"{severity} {style.paint(entity, 'bold')}{key} {finding.message} [{finding.rule}]"
        yield from (f"    {fix}" for fix in finding.fixes)
    warnings = sum(1 for finding in found if finding.severity is Severity.WARNING)
    hints = len(found) - warnings
    yield f"{_count(warnings, 'warning')}, {_count(hints, 'hint')}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _fails(fail_on: str | None, found: Sequence[Finding]) -> bool:
    if fail_on == "findings":
        return bool(found)
    return fail_on == "warnings" and any(finding.severity is Severity.WARNING for finding in found)
