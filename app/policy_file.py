"""The file of the policy: YAML, read strictly; every fault is reported with its line."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails
from yaml.nodes import MappingNode, Node, ScalarNode

from app.domain.alterations import normalize_unlimited
from app.domain.authorization import ANYBODY, EVERY_KEY, KeyLimits, Policy, PolicyRule
from app.domain.budgets import Budget, Names
from app.domain.entities import ClientQuotaFilter, ClientQuotaFilterComponent, EntityType, MatchType
from app.domain.expiry import read_duration
from app.domain.quantities import UNLIMITED, read_value
from app.domain.quota_keys import QUOTA_KEY_RULES
from app.domain.validation import MAX_NAME_BYTES, filter_violations
from app.http.authentication.bearer import is_principal
from app.http.models import has_lone_surrogate, quote
from app.http.query_params import GRAMMAR, parse_component

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 20

_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = "tag:yaml.org,2002:str"
_BOOLEANS: Final = {"true": True, "false": False}
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NUMBER: Final = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")
_KEYS: Final = (*QUOTA_KEY_RULES, EVERY_KEY)


class PolicyFileError(ValueError):
    """The file cannot be used; the text has a line for each fault."""


def _principal(text: str) -> str:
    if text != ANYBODY and not is_principal(text):
        message = f"{quote(text)} is not a principal such as User:alice, nor '*'"
        raise ValueError(message)
    return text


def _component(text: object) -> object:
    component = parse_component(text) if isinstance(text, str) else None
    if component is None:
        message = f"{_display(text)} is no pattern. {GRAMMAR}"
        raise ValueError(message)
    return component


def _as_list(pattern: object) -> object:
    return pattern if isinstance(pattern, list) else [pattern]


def _pattern(
    components: list[ClientQuotaFilterComponent], info: ValidationInfo
) -> list[ClientQuotaFilterComponent]:
    faults = [fault.detail.rstrip(".") for fault in filter_violations(_filter(components))]
    if not any(component.names_type for component in components):
        faults.append("a pattern that names no type matches nothing")
    is_default = any(component.match_type is MatchType.DEFAULT for component in components)
    if is_default and not info.data.get("defaults", True):
        faults.append("a default entity needs defaults: true in the rule")
    if faults:
        raise ValueError("; ".join(faults))
    return components


def _filter(components: list[ClientQuotaFilterComponent]) -> ClientQuotaFilter:
    return ClientQuotaFilter(tuple(components), strict=True)


def _number(value: object) -> Decimal:
    if isinstance(value, Decimal) and value > 0:
        return value
    message = f"{_display(value)} is not a number over 0 in plain digits"
    raise ValueError(message)


def _over_minimum(maximum: Decimal, info: ValidationInfo) -> Decimal:
    minimum = info.data.get("min")
    if minimum is not None and minimum > maximum:
        message = "min is over max"
        raise ValueError(message)
    return normalize_unlimited(maximum)


def _key(name: str) -> str:
    if name not in _KEYS:
        message = f"{quote(name)} is unknown here; it takes {', '.join(_KEYS)}"
        raise ValueError(message)
    return name


def _exact_key(name: str) -> str:
    if name not in QUOTA_KEY_RULES:
        message = f"{quote(name)} is unknown here; it takes {', '.join(QUOTA_KEY_RULES)}"
        raise ValueError(message)
    return name


def _duration(value: object) -> timedelta:
    return read_duration(value if isinstance(value, str) else _display(value))


def _distinct(kind: str, named: "list[Any]") -> "list[Any]":
    names = [each.name for each in named]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        message = f"two {kind} have the name {quote(twice[0])}"
        raise ValueError(message)
    return named


_COUNTED_KEYS: Final = tuple(
    str(key) for key, rule in QUOTA_KEY_RULES.items() if EntityType.IP not in rule.entity_types
)
"""Keys of users and client-ids."""


def _quantity(key: str, limit: object) -> Decimal:
    """Read a number, or a text with a unit as in documents of quotas."""
    if isinstance(limit, str):
        if limit.strip() == UNLIMITED:
            message = "what is unlimited needs no budget"
            raise ValueError(message)
        return _number(read_value(key, limit) or limit)
    return _number(limit)


def _names(value: object) -> object:
    """Read a prefix, or a list of names that are all different."""
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str):
            message = f"{_display(name)} is neither a prefix in quotes nor a list of names"
            raise ValueError(message)  # noqa: TRY004 - Pydantic reports values
        is_kafkas = not has_lone_surrogate(name) and "\0" not in name
        if not is_kafkas or len(name.encode()) > MAX_NAME_BYTES:
            message = f"{quote(name)} is no name of a user or a client-id"
            raise ValueError(message)
    if isinstance(value, str):
        return value
    if not names or "" in names or len(set(names)) < len(names):
        message = "a list has at least one name, and each once"
        raise ValueError(message)
    return frozenset(names)


Number = Annotated[Decimal, BeforeValidator(_number)]
Component = Annotated[InstanceOf[ClientQuotaFilterComponent], BeforeValidator(_component)]
Pattern = Annotated[list[Component], BeforeValidator(_as_list), AfterValidator(_pattern)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Limits(_Strict):
    """What a rule lets its principals do with a key."""

    min: Number | None = None
    max: Annotated[Number, AfterValidator(_over_minimum)] | None = None
    remove: bool = False


class Rule(_Strict):
    """A rule; ``defaults`` comes first: patterns are judged by it."""

    defaults: bool = False
    name: Annotated[str, Field(min_length=1)]
    principals: Annotated[list[Annotated[str, AfterValidator(_principal)]], Field(min_length=1)]
    entities: Annotated[list[Pattern], Field(min_length=1)]
    keys: Annotated[dict[Annotated[str, AfterValidator(_key)], Limits], Field(min_length=1)]
    max_duration: Annotated[timedelta | None, BeforeValidator(_duration)] = None
    temporary_above: dict[Annotated[str, AfterValidator(_exact_key)], Number] = Field(
        default_factory=dict
    )


_LIMITS: Final[Mapping[str, Any]] = {
    key: (Annotated[Decimal | None, BeforeValidator(partial(_quantity, key))], None)
    for key in _COUNTED_KEYS
}
_BudgetLimits: Any = create_model("BudgetLimits", __base__=_Strict, **_LIMITS)
"""A limit for each key of users and client-ids, of which one is there at least."""


def _some(limits: BaseModel) -> Mapping[str, Decimal]:
    found = limits.model_dump(exclude_unset=True)
    if not found:
        message = f"a budget limits one at least of {', '.join(_COUNTED_KEYS)}"
        raise ValueError(message)
    return found


class BudgetItem(_Strict):
    """What the quotas of a group may add up to."""

    name: Annotated[str, Field(min_length=1)]
    users: Annotated[Names | None, BeforeValidator(_names)] = None
    client_ids: Annotated[Names | None, Field(alias="client-ids"), BeforeValidator(_names)] = None
    limits: Annotated[_BudgetLimits, AfterValidator(_some)]
    overbooking: Number = Decimal(1)

    @model_validator(mode="after")
    def _names_a_group(self) -> Self:
        if self.users is None and self.client_ids is None:
            message = "a budget needs users or client-ids"
            raise ValueError(message)
        return self


class Document(_Strict):
    """The whole file; without rules it has budgets alone, and leaves the rest to the ACLs."""

    api_version: Annotated[Literal["quotas-policy/v1"], Field(alias="apiVersion")]
    others: Literal["deny", "allow"] | None = None
    rules: Annotated[
        list[Rule], Field(min_length=1), AfterValidator(partial(_distinct, "rules"))
    ] = Field(default_factory=list)
    budgets: Annotated[list[BudgetItem], AfterValidator(partial(_distinct, "budgets"))] = Field(
        default_factory=list
    )
    ignored_by_callback: Literal["warn", "deny"] = "warn"
    drastic: Literal["warn", "deny"] = "warn"

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        denies = "deny" in (self.ignored_by_callback, self.drastic)
        if not self.rules and not self.budgets and not denies:
            message = "it needs rules, or budgets"
            raise ValueError(message)
        return self

    @property
    def others_may(self) -> bool:
        """Whether a caller that no rule names is left to the ACLs alone."""
        return self.others == "allow" or (self.others is None and not self.rules)


def read_policy(path: Path) -> Policy:
    """Read the file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}."
        raise PolicyFileError(message) from None
    if len(content) > MAX_BYTES:
        message = f"{path} has over {MAX_BYTES} bytes."
        raise PolicyFileError(message)
    return parse_policy(content, str(path))


def parse_policy(content: bytes, name: str) -> Policy:
    """Read the content of a file; ``name`` names it in faults."""
    reader = _Reader()
    document = None
    try:
        document = _validate(reader.read(content), reader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reader.reject(1 if mark is None else mark.line + 1, f"not YAML: {error.problem}")
    except (yaml.YAMLError, UnicodeDecodeError):
        reader.reject(1, "not YAML in UTF-8")
    except RecursionError:
        reader.reject(1, "nested too deeply")
    if reader.faults or document is None:
        faults = sorted(set(reader.faults))
        lines = [f"{name}, line {line}: {fault.rstrip('.')}." for line, fault in faults]
        raise PolicyFileError("\n".join(lines))
    rules, digest = tuple(map(_policy_rule, document.rules)), hashlib.sha256(content).hexdigest()
    budgets = tuple(map(_budget, document.budgets))
    return Policy(
        rules,
        document.others_may,
        digest,
        budgets,
        refuses_ignored=document.ignored_by_callback == "deny",
        refuses_drastic=document.drastic == "deny",
    )


def _budget(item: BudgetItem) -> Budget:
    return Budget(item.name, item.limits, item.users, item.client_ids, item.overbooking)


def _policy_rule(rule: Rule) -> PolicyRule:
    keys = {key: KeyLimits(by.min, by.max, by.remove) for key, by in rule.keys.items()}
    entities = tuple(map(_filter, rule.entities))
    return PolicyRule(
        rule.name,
        frozenset(rule.principals),
        entities,
        keys,
        rule.defaults,
        rule.max_duration,
        rule.temporary_above,
    )


@dataclass(frozen=True)
class _Other:
    """A scalar that is neither a text, nor ``true`` or ``false``, nor a number in plain digits."""

    text: str


Location = tuple[str | int, ...]


@dataclass
class _Reader:
    """Turns YAML into plain values, guesses no type, and notes the line of each value."""

    faults: list[tuple[int, str]] = field(default_factory=list)
    lines: dict[Location, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def reject(self, line: int, fault: str) -> None:
        self.faults.append((line, fault))

    def read(self, content: bytes) -> Any:
        """Return the one document of a file; null where there is none.

        Raises:
            yaml.YAMLError: It is not YAML, or several documents.
            UnicodeDecodeError: It is not UTF-8.
            RecursionError: It nests too deeply.
        """
        root: Node | None = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
        if root is None:
            self.reject(1, "the file is empty; it needs apiVersion and rules")
        value = None if root is None else self._value(root, ())
        return None if self.faults else value

    def line(self, location: Location) -> int:
        """Return the line of a value, or of what it is missing in."""
        while location not in self.lines:
            location = location[:-1]
        return self.lines[location]

    def _value(self, node: Node, location: Location) -> Any:
        self.lines[location] = node.start_mark.line + 1
        if id(node) in self.seen:
            self.reject(self.lines[location], "anchors and aliases are not read here; write it out")
            return None
        self.seen.add(id(node))
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if len(location) >= MAX_DEPTH:
            self.reject(self.lines[location], "nested too deeply")
            return None
        if isinstance(node, MappingNode):
            return dict(self._members(node, location))
        return [self._value(item, (*location, at)) for at, item in enumerate(node.value)]

    def _members(self, node: MappingNode, location: Location) -> Iterator[tuple[str, Any]]:
        names: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, ScalarNode) or key.tag == _MERGE or id(key) in self.seen:
                self.reject(key.start_mark.line + 1, "a key is a plain text")
            elif key.value in names:
                self.reject(value.start_mark.line + 1, f"{quote(key.value)} is there twice")
            else:
                names.add(key.value)
                self.seen.add(id(key))
                yield key.value, self._value(value, (*location, key.value))


def _scalar(node: ScalarNode) -> str | bool | Decimal | _Other:
    if node.tag == _TEXT:
        return str(node.value)
    if node.tag in _NUMBERS and _NUMBER.fullmatch(node.value):
        return Decimal(node.value)
    return _BOOLEANS.get(node.value, _Other(node.value))


def _validate(value: Any, reader: _Reader) -> Document | None:
    if value is None:
        return None
    try:
        return Document.model_validate(value)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            location = tuple(step for step in problem["loc"] if step != "[key]")
            reader.reject(reader.line(location), _sentence(problem, location))
    return None


def _sentence(problem: ErrorDetails, location: Location) -> str:
    """Say what Pydantic found, and where: ``rules.0.keys: Field required``."""
    fault = problem.get("ctx", {}).get("error", problem["msg"])
    return ": ".join([".".join(map(str, location)) or "the file", str(fault)])


def _display(value: object) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return quote(value.text if isinstance(value, _Other) else str(value))
