"""The file of the policy: YAML, read strictly; every fault is told with its line."""

import hashlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

import yaml
from yaml.nodes import Node, SequenceNode

from app.domain.filters import (
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
    filter_violations,
)
from app.domain.policy import ANYBODY, EVERY_KEY, KeyLimits, Policy, PolicyRule
from app.domain.quota_keys import LONG_MAX, QUOTA_KEY_RULES, TWO_TO_63
from app.http.authentication.token_file import is_principal
from app.http.filter_query import GRAMMAR, parse_component
from app.http.strict_json import shown
from app.http.yaml_reading import YamlMapping, YamlReading, compose_document
from app.service.permissions.policy import PolicyInForce

API_VERSION: Final = "quotas-policy/v1"

MAX_BYTES: Final = 1024 * 1024

_RULE: Final = ("name", "principals", "entities", "keys", "defaults")
_OTHERS: Final = {"allow": True, "deny": False}


class PolicyFileError(ValueError):
    """The file cannot be used; the text has a line for each fault."""


def read_policy(path: Path) -> PolicyInForce:
    """Read the file.

    Raises:
        PolicyFileError: It is missing, is not YAML, or says what is not understood.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}."
        raise PolicyFileError(message) from None
    if len(content) > MAX_BYTES:
        message = f"{path} has over {MAX_BYTES} bytes."
        raise PolicyFileError(message)
    policy = parse_policy(content, str(path))
    return PolicyInForce(policy, hashlib.sha256(content).hexdigest())


def parse_policy(content: bytes, name: str) -> Policy:
    """Read what the file says; ``name`` names it in faults.

    Raises:
        PolicyFileError: With a line for each fault.
    """
    reading = YamlReading()
    policy = None
    try:
        policy = _policy(compose_document(content, reading), reading)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reading.reject(1 if mark is None else mark.line + 1, f"not YAML: {error.problem}")
    except (yaml.YAMLError, UnicodeDecodeError):
        reading.reject(1, "not YAML in UTF-8")
    if reading.faults or policy is None:
        faults = sorted(reading.faults)
        lines = [f"{name}, line {line}: {fault}." for line, fault in faults]
        raise PolicyFileError("\n".join(lines))
    return policy


def _policy(root: Node | None, reading: YamlReading) -> Policy | None:
    if root is None:
        if not reading.faults:
            reading.reject(1, "the file is empty; it needs apiVersion and rules")
        return None
    fields = YamlMapping.of(root, reading, ("apiVersion", "others", "rules"))
    if fields is None or not fields.need("apiVersion", "rules"):
        return None
    version = fields.text("apiVersion")
    if version != API_VERSION:
        reading.reject(fields.line("apiVersion"), f"apiVersion is {API_VERSION}")
    others = fields.text("others") if "others" in fields else "deny"
    if others not in _OTHERS:
        reading.reject(fields.line("others"), "others is deny or allow")
    rules = [_rule(node, reading) for node in fields.items("rules")]
    read = tuple(rule for rule in rules if rule is not None)
    _refuse_namesakes(fields, read, reading)
    return Policy(read, _OTHERS.get(others or "", False))


def _refuse_namesakes(
    fields: YamlMapping, rules: tuple[PolicyRule, ...], reading: YamlReading
) -> None:
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            reading.reject(fields.line("rules"), f"two rules have the name {shown(rule.name)}")
        seen.add(rule.name)


def _rule(node: Node, reading: YamlReading) -> PolicyRule | None:
    fields = YamlMapping.of(node, reading, _RULE)
    if fields is None or not fields.need("name", "principals", "entities", "keys"):
        return None
    defaults = fields.flag("defaults")
    patterns = [_pattern(one, reading, defaults=defaults) for one in fields.items("entities")]
    return PolicyRule(
        fields.text("name") or "",
        frozenset(_principals(fields, reading)),
        tuple(pattern for pattern in patterns if pattern is not None),
        dict(_keys(fields.node("keys"), reading)),
        defaults,
    )


def _principals(fields: YamlMapping, reading: YamlReading) -> Iterator[str]:
    for node in fields.items("principals"):
        principal = reading.text(node)
        if principal is None:
            continue
        if principal != ANYBODY and not is_principal(principal):
            detail = f"{shown(principal)} is not a principal such as User:alice, nor '*'"
            reading.reject(node.start_mark.line + 1, detail)
        yield principal


def _pattern(node: Node, reading: YamlReading, *, defaults: bool) -> ClientQuotaFilter | None:
    """Read one pattern: a component, or a list of components that must all match."""
    line = node.start_mark.line + 1
    parts = node.value if isinstance(node, SequenceNode) else [node]
    if not parts:
        reading.reject(line, "an empty pattern matches nothing")
    components = [component for part in parts for component in _component(part, reading)]
    pattern = ClientQuotaFilter(tuple(components), strict=True)
    for violation in filter_violations(pattern):
        reading.reject(line, violation.detail.rstrip("."))
    if not defaults and any(one.match_type is MatchType.DEFAULT for one in components):
        reading.reject(line, "a default entity needs defaults: true in the rule")
    return pattern if components else None


def _component(node: Node, reading: YamlReading) -> Iterator[ClientQuotaFilterComponent]:
    text = reading.text(node)
    if text is None:
        return
    component = parse_component(text)
    if component is None:
        reading.reject(node.start_mark.line + 1, f"{shown(text)} is no pattern. {GRAMMAR}"[:-1])
    else:
        yield component


def _keys(node: Node, reading: YamlReading) -> Iterator[tuple[str, KeyLimits]]:
    known = (*QUOTA_KEY_RULES, EVERY_KEY)
    fields = YamlMapping.of(node, reading, known)
    if fields is None:
        return
    if not fields.names:
        reading.reject(node.start_mark.line + 1, "keys names no key; '*' stands for every key")
    for name in fields.names:
        limits = _limits(fields.node(name), reading)
        if limits is not None:
            yield name, limits


def _limits(node: Node, reading: YamlReading) -> KeyLimits | None:
    fields = YamlMapping.of(node, reading, ("min", "max", "remove"))
    if fields is None:
        return None
    low, high = fields.number("min"), fields.number("max")
    if low is not None and high is not None and low > high:
        reading.reject(fields.line("min"), "min is over max")
    return KeyLimits(low, _unlimited(high), fields.flag("remove"))


def _unlimited(value: Decimal | None) -> Decimal | None:
    return Decimal(TWO_TO_63) if value == LONG_MAX else value
