"""Authorization: the broker's own decision, rule for rule."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, Op, canonical_entity, normalize_unlimited
from app.domain.budgets import Budget
from app.domain.callbacks.callback import IGNORED, CallbackModel
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import Violation

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one Cluster resource. Source: ``Resource.CLUSTER_NAME``."""

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"

_ALL: Final = "ALL"
_ALLOW: Final = "ALLOW"
_LITERAL: Final = "LITERAL"
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One ACL on the Cluster resource, in Kafka's own words (upper case, as in ``AclOperation``).

    Attributes:
        resource_name: ``kafka-cluster``, ``*``, or a prefix.
        pattern_type: ``LITERAL`` or ``PREFIXED``.
        principal: ``User:alice`` or ``User:*``.
        host: A numeric address or ``*``.
        operation: ``ALTER_CONFIGS``, ``ALL``, …
        permission: ``ALLOW`` or ``DENY``.
    """

    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class Operation(StrEnum):
    """What a caller asks to do with the cluster, in Kafka's words."""

    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"

    __hash__ = str.__hash__


class DecisionRule(StrEnum):
    """What decided."""

    SUPER_USER = "super-user"
    DENY_ACL = "deny-acl"
    ALLOW_ACL = "allow-acl"
    NO_ACL_FOUND = "no-acl-found"
    NO_MATCHING_ACL = "no-matching-acl"
    AUTHORIZER_ERROR = "authorizer-error"


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """The broker's settings that no request reveals.

    Attributes:
        super_users: ``super.users``, see ``parse_super_users``.
        allow_everyone_if_no_acl_found: ``allow.everyone.if.no.acl.found``.
    """

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a caller may, and why."""

    allowed: bool
    rule: DecisionRule
    operation: Operation
    acl: AclBinding | None = None

    def as_dict(self) -> dict[str, str | bool | None]:
        """Return the decision for the audit row; the ACL in printable form."""
        return {
            "allowed": self.allowed,
            "rule": self.rule.value,
            "operation": self.operation.value,
            "acl": acl_text(self.acl) if self.acl else None,
        }


def acl_text(acl: AclBinding) -> str:
    """Return the ACL as Kafka's tools print it. Source: ``AclBinding.toString``."""
    return (
        f"(pattern=ResourcePattern(resourceType=CLUSTER, name={acl.resource_name}, "
        f"patternType={acl.pattern_type}), entry=(principal={acl.principal}, host={acl.host}, "
        f"operation={acl.operation}, permissionType={acl.permission}))"
    )


def parse_super_users(text: str) -> frozenset[str]:
    """Read ``super.users``: principals between semicolons, blanks around them left out.

    Names may contain commas and colons, as distinguished names do.

    Raises:
        ValueError: An item is not ``Type:name``; a broker would not start with it.

    Source: ``StandardAuthorizer.getConfiguredSuperUsers``.
    """
    principals = [item.strip(_JAVA_BLANKS) for item in text.split(";")]
    for principal in principals:
        if principal and ":" not in principal:
            message = f"expected a principal such as User:alice, got {principal!r}"
            raise ValueError(message)
    return frozenset(filter(None, principals))


def authorize(
    caller_principal: str,
    host: str,
    operation: Operation,
    acls: Iterable[AclBinding],
    settings: AuthorizerSettings,
) -> Decision:
    """Decide as the broker's authorizer does on resource Cluster ``kafka-cluster``.

    Super users first; then any matching DENY, then any matching ALLOW; a resource without any ACL
    is decided by ``allow_everyone_if_no_acl_found``; everything else is denied. Where the broker's
    authorizer would throw, the answer is a denial with the rule ``authorizer-error``: a caller
    named ``User:*``, or an ACL whose principal has no type.

    Args:
        caller_principal: As Kafka prints it: ``User:alice``.
        host: The caller's numeric address in Java's text, see ``java_host_text``.
        operation: What the caller asks for.
        acls: Every ACL whose resource type is Cluster.
        settings: The broker's settings.

    Source: ``StandardAuthorizerData.authorize`` of Kafka 4.3.1 (an ACL's host is text, no CIDR).
    """
    if caller_principal in settings.super_users:
        allowed, rule, acl = True, DecisionRule.SUPER_USER, None
    elif caller_principal == WILDCARD_PRINCIPAL:
        allowed, rule, acl = False, DecisionRule.AUTHORIZER_ERROR, None
    else:
        on_cluster = [acl for acl in acls if _covers_cluster(acl)]
        matching = [acl for acl in on_cluster if _matches(acl, caller_principal, host, operation)]
        allowed, rule, acl = _verdict(on_cluster, matching, settings)
    return Decision(allowed, rule, operation, acl)


def _verdict(
    on_cluster: list[AclBinding], matching: list[AclBinding], settings: AuthorizerSettings
) -> tuple[bool, DecisionRule, AclBinding | None]:
    broken = next((acl for acl in on_cluster if ":" not in acl.principal), None)
    if broken:
        return False, DecisionRule.AUTHORIZER_ERROR, broken
    deny = next((acl for acl in matching if acl.permission != _ALLOW), None)
    if deny:
        return False, DecisionRule.DENY_ACL, deny
    if matching:
        return True, DecisionRule.ALLOW_ACL, matching[0]
    if not on_cluster:
        return settings.allow_everyone_if_no_acl_found, DecisionRule.NO_ACL_FOUND, None
    return False, DecisionRule.NO_MATCHING_ACL, None


def _covers_cluster(acl: AclBinding) -> bool:
    if acl.pattern_type == _LITERAL:
        return acl.resource_name in (CLUSTER_NAME, WILDCARD)
    return CLUSTER_NAME.startswith(acl.resource_name)


_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset({"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}),
    Operation.DESCRIBE_CONFIGS: frozenset({"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
    Operation.ALTER_CONFIGS: frozenset({"ALTER_CONFIGS"}),
}
"""Which operations an ALLOW may name; a DENY implies nothing.

Source: ``StandardAuthorizerData.IMPLIES_DESCRIBE`` and ``IMPLIES_DESCRIBE_CONFIGS``.
"""


def _matches(acl: AclBinding, principal: str, host: str, operation: Operation) -> bool:
    if acl.principal not in (principal, WILDCARD_PRINCIPAL) or acl.host not in (WILDCARD, host):
        return False
    if acl.operation == _ALL:
        return True
    if acl.permission == _ALLOW:
        return acl.operation in _IMPLIED_BY[operation]
    return acl.operation == operation


ANYBODY: Final = "*"
"""Stands for every principal."""

EVERY_KEY: Final = "*"
"""Stands for every key that the rule does not name."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What may be done with a key.

    Attributes:
        minimum: The smallest value, inclusive; null for no bound.
        maximum: The largest value, inclusive; null for no bound. 2^63 is "unlimited".
        remove: Whether it may be removed, which lets a less specific quota apply, or none.
    """

    minimum: Decimal | None = None
    maximum: Decimal | None = None
    remove: bool = False

    def hold(self, value: Decimal) -> bool:
        """Tell whether a value is within the bounds; NaN is not."""
        if value.is_nan():
            return False
        sent = normalize_unlimited(value)
        low = self.minimum is None or sent >= self.minimum
        return low and (self.maximum is None or sent <= self.maximum)

    def as_text(self) -> str:
        """Return the bounds for people."""
        low = "" if self.minimum is None else f"from {self.minimum:f}"
        high = "" if self.maximum is None else f"up to {self.maximum:f}"
        return " ".join(filter(None, (low, high))) or "any value"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Whose changes, of which entities, to which keys.

    Attributes:
        name: Names it in answers and audit rows.
        principals: As Kafka prints them, or ``ANYBODY``.
        entities: An entity is covered that one of these matches; strict, so a pattern about users
            is not one about their pairs with client-ids.
        keys: By key, or ``EVERY_KEY``.
        defaults: Whether entities with a default name are covered too.
        max_duration: The longest time for which a value may be set; null: any, and in any case for
            good.
        temporary_above: By key the value above which one may be set for a time only.
    """

    name: str
    principals: frozenset[str]
    entities: tuple[ClientQuotaFilter, ...]
    keys: Mapping[str, KeyLimits]
    defaults: bool = False
    max_duration: timedelta | None = None
    temporary_above: Mapping[str, Decimal] = field(default_factory=dict)

    def names(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether a pattern matches, be it a default entity or not."""
        return any(pattern.matches(entity) for pattern in self.entities)

    def covers(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the rule is about the entity."""
        return (self.defaults or not _is_default(entity)) and self.names(entity)

    def limits(self, key: str) -> KeyLimits | None:
        """Return what may be done with a key; null where it may not be touched."""
        return self.keys.get(key, self.keys.get(EVERY_KEY))

    def refuses_time(self, op: Op, lasts: timedelta | None) -> tuple[str, str] | None:
        """Return the code and the sentence where an operation holds for too long, or null.

        Args:
            op: The operation.
            lasts: For how long it is to hold; null: for good.
        """
        if lasts is not None:
            if self.max_duration is None or lasts <= self.max_duration:
                return None
            return "duration-too-long", f"You may set this for at most {self.max_duration}."
        above = self.temporary_above.get(op.key)
        if op.value is None or above is None or normalize_unlimited(op.value) <= above:
            return None
        return "only-for-a-time", f"Above {above:f} you may set this for a time only: expires_in."


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules.

    Attributes:
        rules: In the order of the file.
        others_may: Whether a caller that no rule names is left to the ACLs alone.
        digest: The SHA-256 of the file that says so.
        budgets: What values may add up to, whoever asks.
        refuses_ignored: Whether a value that the brokers' quota callback ignores may not be set.
        refuses_drastic: Whether nobody may lower a value by much, or set next to nothing.
    """

    rules: tuple[PolicyRule, ...]
    others_may: bool = False
    digest: str = ""
    budgets: tuple[Budget, ...] = ()
    refuses_ignored: bool = False
    refuses_drastic: bool = False

    def ignored_violations(
        self, model: CallbackModel, alterations: Sequence[ClientQuotaAlteration]
    ) -> list[Violation]:
        """Return each value that would limit nobody, where the policy refuses to set such."""
        if not self.refuses_ignored:
            return []
        return [
            Violation(f"/alterations/{index}/ops/{at}/key", IGNORED, why, index=index)
            for index, alteration in enumerate(alterations)
            for at, op in enumerate(alteration.ops)
            if op.value is not None
            and (why := model.why_ineffective(alteration.entity, op.key)) is not None
        ]

    def rules_of(self, principal: str) -> tuple[PolicyRule, ...]:
        """Return the rules that name a principal, by itself or with everybody."""
        who = {principal, ANYBODY}
        return tuple(rule for rule in self.rules if rule.principals & who)

    def violations(
        self,
        principal: str,
        alterations: Sequence[ClientQuotaAlteration],
        lasts: timedelta | None = None,
    ) -> list[Violation]:
        """Return everything that the caller may not change, with its pointer into the request.

        Args:
            principal: Who asks.
            alterations: As read; they need not be valid, what is wrong with them otherwise is
                not judged here.
            lasts: For how long they are to hold; null: for good.
        """
        rules = self.rules_of(principal)
        if not rules:
            return [] if self.others_may else [_stranger(principal)]
        return [
            violation
            for index, alteration in enumerate(alterations)
            for violation in _alteration_violations(rules, alteration, index, lasts)
        ]


def _is_default(entity: ClientQuotaEntity) -> bool:
    return any(name is DEFAULT_NAME for _, name in entity.entries)


def _stranger(principal: str) -> Violation:
    detail = f"No rule of the policy names {principal}, and others may not alter."
    return Violation("/alterations", "principal-not-covered", detail)


def _alteration_violations(
    rules: Sequence[PolicyRule],
    alteration: ClientQuotaAlteration,
    index: int,
    lasts: timedelta | None,
) -> Iterator[Violation]:
    pointer = f"/alterations/{index}"
    spellings = _spellings(alteration)
    covering = [rule for rule in rules if all(rule.covers(spelling) for spelling in spellings)]
    if not covering:
        yield _entity_violation(rules, alteration.entity, f"{pointer}/entity", index)
        return
    for position, op in enumerate(alteration.ops):
        at = f"{pointer}/ops/{position}"
        violation = _op_violation(covering, op, at, index) or _time_violation(
            covering, op, at, index, lasts
        )
        if violation is not None:
            yield violation


def _spellings(alteration: ClientQuotaAlteration) -> set[ClientQuotaEntity]:
    """Return every entity that may be sent: an address is written in its canonical text.

    What only removes is sent as it is spelled where the cluster has it so.
    """
    canonical = canonical_entity(alteration, {})
    return {canonical, alteration.entity} if alteration.only_removes else {canonical}


def _entity_violation(
    rules: Sequence[PolicyRule], entity: ClientQuotaEntity, pointer: str, index: int
) -> Violation:
    if _is_default(entity) and any(rule.names(entity) for rule in rules):
        detail = "A default entity needs a rule that says so, with defaults: true."
        return Violation(pointer, "default-entity-not-covered", detail, index=index)
    names = ", ".join(rule.name for rule in rules)
    detail = f"The rules that name you ({names}) are not about this entity."
    return Violation(pointer, "entity-not-covered", detail, index=index)


def _op_violation(
    rules: Sequence[PolicyRule], op: Op, pointer: str, index: int
) -> Violation | None:
    found = [limits for rule in rules if (limits := rule.limits(op.key)) is not None]
    if not found:
        detail = "No rule lets you touch this key of this entity."
        return Violation(f"{pointer}/key", "key-not-covered", detail, index=index)
    if op.remove and not any(limits.remove for limits in found):
        detail = "No rule lets you remove this key; you may set it."
        return Violation(f"{pointer}/remove", "removal-not-covered", detail, index=index)
    if op.value is not None and not any(limits.hold(op.value) for limits in found):
        allowed = ", or ".join(dict.fromkeys(limits.as_text() for limits in found))
        detail = f"The value is outside of what you may set: {allowed}."
        return Violation(f"{pointer}/value", "value-out-of-range", detail, index=index)
    return None


def _time_violation(
    rules: Sequence[PolicyRule], op: Op, pointer: str, index: int, lasts: timedelta | None
) -> Violation | None:
    """Return why no rule that lets the operation pass lets it hold for so long, or null."""
    refusals = [rule.refuses_time(op, lasts) for rule in rules if _passes(rule, op)]
    if not refusals or None in refusals:
        return None
    code, detail = next(refusal for refusal in refusals if refusal is not None)
    where = "/expires_in" if lasts is not None else f"{pointer}/value"
    return Violation(where, code, detail, index=index)


def _passes(rule: PolicyRule, op: Op) -> bool:
    limits = rule.limits(op.key)
    if limits is None:
        return False
    return limits.remove if op.value is None else limits.hold(op.value)
