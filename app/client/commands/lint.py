"""``lint``: finds quotas with no effect or a surprising one."""

import shlex
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from app.client.commands.budgets import Row, budget_rows, full_of, fullness
from app.client.entities import Entity, show_value
from app.client.errors import DONE, REFUSED
from app.client.http import Connection, document
from app.client.output import Context, Style, counted
from app.client.problems import ServiceError
from app.domain.addresses import canonical_ip
from app.domain.callbacks.callback import IGNORED
from app.domain.entities import (
    ENTITY_TYPES,
    ClientQuotaEntity,
    entity_warnings,
    intended_entity,
    is_misleading,
    show_entity,
    show_name,
    visible,
)
from app.domain.idle_values import IdleKind, idle_values
from app.domain.quantities import value_in_words
from app.domain.quota_keys import LARGEST_FRACTIONAL, LONG_MAX, QUOTA_KEY_RULES


class Severity(StrEnum):
    """``WARNING``: most likely not what was meant. ``HINT``: worth a look."""

    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and command lines that mend it; ``key`` is null for the entity as a whole."""

    rule: str
    severity: Severity
    entity: Entity
    key: str | None
    message: str
    fixes: tuple[str, ...] = ()


def alter_line(
    entity: Entity, add: Mapping[str, Any] | None = None, delete: Sequence[str] = ()
) -> str:
    """Return the command that changes an entity, ready for a shell."""
    kinds = [kind.value for kind in ENTITY_TYPES if kind in entity]
    names = [f"{kind}={show_name(entity[kind])}" for kind in kinds if entity[kind] is not None]
    defaults = [kind for kind in kinds if entity[kind] is None]
    words = ["kafka-client-quotas", "--alter"]
    for option, texts in (
        ("--names", names),
        ("--defaults", defaults),
        ("--add", [f"{key}={show_value(value)}" for key, value in (add or {}).items()]),
        ("--delete", list(delete)),
    ):
        if texts:
            words += [option, ",".join(texts)]
    return shlex.join(words)


Quota = Mapping[str, Any]


def hidden(quotas: Sequence[Quota]) -> Iterator[Finding]:
    """Yield what never applies, and what repeats what applies without it."""
    names = {ClientQuotaEntity.of(quota["entity"]): quota["entity"] for quota in quotas}
    stored = {ClientQuotaEntity.of(quota["entity"]): quota["values"] for quota in quotas}
    for idle in idle_values(stored):
        entity, key, other = names[idle.entity], idle.key, idle.because_of
        fix = alter_line(entity, delete=[key])
        match idle.kind:
            case IdleKind.SHADOWED:
                message = f"never applies: {other} goes before it for everybody"
                yield Finding("shadowed", Severity.WARNING, entity, key, message, (fix,))
            case IdleKind.SHADOWED_FOR_CLIENTS:
                message = (
                    f"applies to connections without a client-id only: {other} goes before it for "
                    "all others"
                )
                yield Finding("shadowed-for-clients", Severity.HINT, entity, key, message)
            case IdleKind.REDUNDANT:
                message = f"changes nothing: {other} gives {value_in_words(key, idle.value)} too"
                yield Finding("redundant", Severity.HINT, entity, key, message, (fix,))


_ANONYMOUS: Final = "ANONYMOUS"
_NO_CREDENTIALS: Final = "no-credentials"
_CATCHES_BROKERS: Final = "catches-brokers"
_KAFKAS_RULES: Final = "kafka"


def literal_names(quotas: Sequence[Quota]) -> Iterator[Finding]:
    """Yield names that Kafka takes literally, and that another tool uses for something else.

    The first fix gives the values to the entity that was intended, as far as it has none of its
    own; a pattern has no such entity.
    """
    stored = {ClientQuotaEntity.of(quota["entity"]): quota["values"] for quota in quotas}
    for entity, values in stored.items():
        warnings = entity_warnings(entity)
        if not warnings:
            continue
        intended = intended_entity(entity)
        own = {} if intended is None else stored.get(intended, {})
        missing = {key: value for key, value in values.items() if key not in own}
        move = () if intended is None or not missing else (alter_line(_names(intended), missing),)
        fixes = (*move, alter_line(_names(entity), delete=list(values)))
        note = f" {intended} has values of its own, which stay." if own else ""
        for warning in warnings:
            message = f"{warning.detail}{note}"
            yield Finding(warning.code, Severity.WARNING, _names(entity), None, message, fixes)


def _names(entity: ClientQuotaEntity) -> Entity:
    names = entity.as_dict()
    return {kind.value: names[kind] for kind in ENTITY_TYPES if kind in names}


def without_credentials(quotas: Iterable[Quota], users: frozenset[str]) -> Iterator[Finding]:
    """Yield users who have no SCRAM credentials, where there are users who have.

    Names of certificates (with ``=``) log in otherwise; what has a warning is found by itself.
    """
    for quota in quotas:
        name = quota["entity"].get("user")
        other = name is None or name in users or "=" in name or is_misleading("user", name)
        if users and not other and name != _ANONYMOUS:
            message = f"{show_name(name)} has no SCRAM credentials; the user may not exist"
            fix = alter_line(quota["entity"], delete=list(quota["values"]))
            yield Finding(_NO_CREDENTIALS, Severity.HINT, quota["entity"], None, message, (fix,))


def odd_addresses(quotas: Iterable[Quota]) -> Iterator[Finding]:
    """Yield addresses that are host names, or are not written as this service writes them."""
    for quota in quotas:
        name = quota["entity"].get("ip")
        if name is None or canonical_ip(name) == name:
            continue
        canonical = canonical_ip(name)
        if canonical is None:
            message = "not a literal address: each node looked it up for itself, once"
        else:
            message = f"another spelling of {canonical}; one of several wins"
        remove = alter_line(quota["entity"], delete=list(quota["values"]))
        again = [] if canonical is None else [alter_line({"ip": canonical}, quota["values"])]
        yield Finding(
            "odd-address", Severity.WARNING, quota["entity"], None, message, (remove, *again)
        )


def not_numbers(quotas: Iterable[Quota]) -> Iterator[Finding]:
    """Yield values that are no numbers, which limit nothing measurable."""
    for quota in quotas:
        for key, value in quota["values"].items():
            if isinstance(value, str):
                message = f"{show_value(value)} is stored, which is no limit"
                fix = alter_line(quota["entity"], delete=[key])
                yield Finding(
                    "not-a-number", Severity.WARNING, quota["entity"], key, message, (fix,)
                )


def catching_brokers(quotas: Sequence[Quota], brokers: Sequence[str]) -> Iterator[Finding]:
    """Yield defaults that would limit users of the brokers' own, who have no rule against it.

    What a broker asks of another as a broker is exempt; what runs in it under the same user, such
    as a reporter of metrics, is not.
    """
    own = {
        (quota["entity"]["user"], key)
        for quota in quotas
        if list(quota["entity"]) == ["user"]
        for key in quota["values"]
    }
    for quota in quotas:
        if "ip" in quota["entity"] or any(name is not None for name in quota["entity"].values()):
            continue
        for key in quota["values"]:
            for broker in brokers:
                if key in QUOTA_KEY_RULES and (broker, key) not in own:
                    yield _broker_finding(quota, key, broker)


def _broker_finding(quota: Quota, key: str, broker: str) -> Finding:
    highest = min(QUOTA_KEY_RULES[key].maximum, LONG_MAX)
    unlimited = LONG_MAX if highest > LARGEST_FRACTIONAL else int(LARGEST_FRACTIONAL)
    fix = alter_line({"user": broker}, {key: unlimited})
    message = f"limits the brokers' own user {show_name(broker)}, as {show_entity(quota['entity'])}"
    return Finding(
        _CATCHES_BROKERS, Severity.WARNING, quota["entity"], key, f"{message} is for all", (fix,)
    )


_EXCEEDED: Final = "budget-exceeded"
_WITHOUT_VALUE: Final = "budget-without-value"


def of_budgets(rows: Iterable[Row]) -> Iterator[Finding]:
    """Yield budgets that other tools have exceeded, and who has no value, and so is in no sum."""
    for row in rows:
        name, key = visible(row["name"]), row["key"]
        if full_of(row) > 1:
            largest = row["largest"][0]["entity"]
            message = f"holds most of what is over its limit: {fullness(row)}"
            yield Finding(_EXCEEDED, Severity.WARNING, largest, key, message)
        for entity in row["without_value"]:
            message = f"is not set, so budget {name} counts it as nothing"
            yield Finding(_WITHOUT_VALUE, Severity.HINT, entity, key, message)


_MOST_CHANGES: Final = 10_000
"""So many keys the service takes in one what-if."""


def ignored_by_callback(service: Connection, quotas: Sequence[Quota]) -> Iterator[Finding]:
    """Yield what the brokers' quota callback ignores: the service's warnings about removing it.

    Nothing is sent to the cluster.
    """
    clients = [quota for quota in quotas if "ip" not in quota["entity"]]
    if not clients:
        return
    answer = service.get("/quotas/resolve", [("user", _ANONYMOUS)])
    if document(answer, "callback")["callback"]["model"] == _KAFKAS_RULES:
        return
    for some in _in_batches(clients):
        alterations = [
            {
                "entity": quota["entity"],
                "ops": [{"key": key, "remove": True} for key in quota["values"]],
            }
            for quota in some
        ]
        body = {"identities": [], "alterations": alterations}
        for warning in service.ask("/quotas/resolve", body, "results").get("warnings", ()):
            if warning["code"] == IGNORED:
                entity = warning["entity"]
                yield Finding(IGNORED, Severity.WARNING, entity, None, warning["detail"])


def _in_batches(quotas: Iterable[Quota]) -> Iterator[list[Quota]]:
    some: list[Quota] = []
    number = 0
    for quota in quotas:
        number += len(quota["values"])
        if some and number > _MOST_CHANGES:
            yield some
            some, number = [], len(quota["values"])
        some.append(quota)
    if some:
        yield some


_COLOURS: Final[Mapping[Severity, str]] = {Severity.WARNING: "yellow", Severity.HINT: "dim"}

_TELLS_NOT: Final = (403, 404, 501, 502)
"""The service, or the broker, does not report who has credentials: one rule does not run then."""


_EXAMPLES: Final = 3
"""So many findings of a rule are printed unless all are asked for."""


def add_lint_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--broker-user",
        action="append",
        metavar="NAME",
        help="a user of the brokers, which no default should limit; repeats",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        default=False,
        help=f"print every finding (default: the first {_EXAMPLES} of each rule)",
    )
    parser.add_argument(
        "--fail-on",
        choices=("findings", "warnings"),
        help="exit code 1 where there are such (default: findings)",
    )


def run_lint(context: Context) -> int:
    """Print the findings, each with the line that would put it right."""
    context.refuse_output("csv")
    quotas = document(context.service.get("/quotas"), "quotas")["quotas"]
    users = _scram_users(context)
    budgets = _budgets(context)
    found = [*_findings(context, quotas, users), *of_budgets(budgets or ())]
    found = [replace(each, fixes=tuple(map(context.on_cluster, each.fixes))) for each in found]
    not_judged = [] if users else [_NO_CREDENTIALS]
    if budgets is None:
        not_judged += [_EXCEEDED, _WITHOUT_VALUE]
    if not context.option("broker_user"):
        not_judged.append(_CATCHES_BROKERS)
        context.tell_always(f"Not judged: {_CATCHES_BROKERS}; --broker-user names their users.")
    report = {
        "findings": [asdict(finding) for finding in found],
        "not_judged": not_judged,
        "budgets": budgets or [],
    }
    lines = _lines(found, context.style, in_full=bool(context.option("all")))
    context.write(report, [*map(fullness, budgets or ()), *lines])
    warnings_alone = context.option("fail_on") == "warnings"
    fails = any(finding.severity is Severity.WARNING or not warnings_alone for finding in found)
    return REFUSED if fails else DONE


def _findings(
    context: Context, quotas: Sequence[Mapping[str, Any]], users: frozenset[str]
) -> Iterator[Finding]:
    yield from literal_names(quotas)
    yield from not_numbers(quotas)
    yield from odd_addresses(quotas)
    yield from catching_brokers(quotas, context.option("broker_user", []))
    yield from hidden(quotas)
    yield from without_credentials(quotas, users)
    yield from ignored_by_callback(context.service, quotas)


def _budgets(context: Context) -> list[Row] | None:
    """Return how full the budgets are; null, after a note, where the service does not say it."""
    try:
        return budget_rows(context)
    except ServiceError as error:
        if error.status not in _TELLS_NOT:
            raise
        context.note(f"Note: how full the budgets are is unknown ({error}).")
        return None


def _scram_users(context: Context) -> frozenset[str]:
    """Return who has credentials; nobody, after a note, where that tells nothing of others."""
    try:
        answer = document(context.service.get("/users/scram-credentials"), "users")
    except ServiceError as error:
        if error.status not in _TELLS_NOT:
            raise
        context.note(f"Note: who has credentials is unknown ({error}).")
        return frozenset()
    if not answer["users"]:
        context.tell_always(f"Not judged: {_NO_CREDENTIALS}; nobody has SCRAM credentials.")
    return frozenset(user["user"] for user in answer["users"])


def _lines(found: Sequence[Finding], style: Style, *, in_full: bool) -> Iterator[str]:
    """Yield the findings by rule, of each the first few, and how many there are."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in found:
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, findings in by_rule.items():
        listed = findings if in_full or len(findings) <= _EXAMPLES + 1 else findings[:_EXAMPLES]
        for finding in listed:
            yield from _finding_lines(finding, style)
        if len(findings) > len(listed):
            more = len(findings) - len(listed)
            yield f"and {more:,} more [{rule}]: --all lists them"
    warnings = sum(1 for finding in found if finding.severity is Severity.WARNING)
    hints = len(found) - warnings
    yield f"{counted(warnings, 'warning', 'warnings')}, {counted(hints, 'hint', 'hints')}."


def _finding_lines(finding: Finding, style: Style) -> Iterator[str]:
    entity = show_entity(finding.entity)
    key = "" if finding.key is None else f" {visible(finding.key)}"
    severity = style.paint(f"{finding.severity.value}:", _COLOURS[finding.severity])
    yield f"{severity} {style.paint(entity, 'bold')}{key} {finding.message} [{finding.rule}]"
    yield from (f"    {fix}" for fix in finding.fixes)
