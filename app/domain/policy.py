"""The policy: what of the cluster's quotas a caller may change, narrower than any ACL can say.

ALTER_CONFIGS on the cluster means every quota of everybody. A policy never grants what the ACLs
refuse; it takes away. What one rule covers is allowed, and so is what several cover together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity
from app.domain.errors import Violation
from app.domain.filters import ClientQuotaFilter
from app.domain.quota_keys import meant
from app.domain.validation import canonical_entity

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
        sent = meant(value)
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
    """

    name: str
    principals: frozenset[str]
    entities: tuple[ClientQuotaFilter, ...]
    keys: Mapping[str, KeyLimits]
    defaults: bool = False

    def names(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether a pattern matches, be it a default entity or not."""
        return any(pattern.matches(entity) for pattern in self.entities)

    def covers(self, entity: ClientQuotaEntity) -> bool:
        """Tell whether the rule is about the entity."""
        return (self.defaults or not _is_default(entity)) and self.names(entity)

    def limits(self, key: str) -> KeyLimits | None:
        """Return what may be done with a key; null where it may not be touched."""
        return self.keys.get(key, self.keys.get(EVERY_KEY))


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules.

    Attributes:
        rules: In the order of the file.
        others_may: Whether a caller that no rule names is left to the ACLs alone.
        digest: The SHA-256 of the file that says so.
    """

    rules: tuple[PolicyRule, ...]
    others_may: bool = False
    digest: str = ""

    def rules_of(self, principal: str) -> tuple[PolicyRule, ...]:
        """Return the rules that name a principal, by itself or with everybody."""
        who = {principal, ANYBODY}
        return tuple(rule for rule in self.rules if rule.principals & who)

    def violations(
        self, principal: str, alterations: Sequence[ClientQuotaAlteration]
    ) -> list[Violation]:
        """Return everything that the caller may not change, with its pointer into the request.

        Args:
            principal: Who asks.
            alterations: As read; they need not be valid, what is wrong with them otherwise is
                not judged here.
        """
        rules = self.rules_of(principal)
        if not rules:
            return [] if self.others_may else [_stranger(principal)]
        return [
            violation
            for index, alteration in enumerate(alterations)
            for violation in _alteration_violations(rules, alteration, index)
        ]


def _is_default(entity: ClientQuotaEntity) -> bool:
    return any(name is DEFAULT_NAME for _, name in entity.entries)


def _stranger(principal: str) -> Violation:
    detail = f"No rule of the policy names {principal}, and others may not alter."
    return Violation("/alterations", "principal-not-covered", detail)


def _alteration_violations(
    rules: Sequence[PolicyRule], alteration: ClientQuotaAlteration, index: int
) -> Iterator[Violation]:
    pointer = f"/alterations/{index}"
    spellings = _spellings(alteration)
    covering = [rule for rule in rules if all(rule.covers(spelling) for spelling in spellings)]
    if not covering:
        yield _entity_violation(rules, alteration.entity, f"{pointer}/entity", index)
        return
    for position, op in enumerate(alteration.ops):
        violation = _op_violation(covering, op, f"{pointer}/ops/{position}", index)
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
