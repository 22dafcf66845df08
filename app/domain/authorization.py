"""Authorization: the broker's own decision, rule for rule."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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
    """Whether a caller may, and why.

    Attributes:
        allowed: The verdict.
        rule: What decided.
        operation: What was asked for.
        acl: The ACL that decided, where one did.
    """

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
