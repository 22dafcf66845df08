"""The validation of a whole request: every violation, with its pointer, before anything is sent."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from math import isinf
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.alterations import (
    ClientQuotaAlteration,
    Op,
    Quotas,
    Values,
    apply_ops,
    canonical_entity,
    encoded_bytes,
    is_rounded,
    normalize_unlimited,
    same_value,
)
from app.domain.entities import (
    ANY_TYPE,
    DEFAULT_NAME,
    ENTITY_TYPES,
    ClientQuotaEntity,
    ClientQuotaFilter,
    EntityType,
    EntityWarning,
    MatchType,
    entity_warnings,
)
from app.domain.errors import MAX_VIOLATIONS, InvalidRequestError, Violation, pointer_token
from app.domain.quota_keys import (
    QUOTA_KEY_RULES,
    USER_CLIENT_TYPES,
    QuotaKeyRule,
    key_text,
    keys_for,
    unknown_key,
)

_IP: Final = EntityType.IP.value


Problem = tuple[str, str, str | None]  # code, detail, Kafka's error
Located = tuple[str, Problem]  # pointer from the alteration on


def _op_problems(op: Op, types: frozenset[str], stored: Values) -> list[Located]:
    """Return every broken rule of one operation; pointers begin at the operation.

    Args:
        op: As proposed.
        types: Of the entity that would carry the key.
        stored: The entity's present values: a key that is stored may be named although no rule
            knows it, so that nothing is stuck.
    """
    problems: list[Located] = []
    if op.value is None:
        if not op.remove:
            detail = "An operation needs a value, or remove: true."
            problems.append(("", ("value-or-remove-missing", detail, None)))
    elif op.remove:
        detail = "An operation either sets a value or removes the key, not both."
        problems.append(("", ("value-with-remove", detail, None)))
    if op.key not in stored:
        # a broker answers any removal with success
        kafka_error = None if op.remove else "INVALID_REQUEST"
        for code, detail in _key_problems(op.key, types):
            problems.append(("/key", (code, detail, kafka_error)))
    if op.value is not None:
        problems += [("/value", problem) for problem in _value_problems(op.key, op.value)]
    return problems


def _key_problems(key: str, types: frozenset[str]) -> Sequence[tuple[str, str]]:
    rule = QUOTA_KEY_RULES.get(key)
    if rule is None:
        return [("unknown-key", unknown_key(key))]
    allowed = () if types <= rule.entity_types else keys_for(types)
    if allowed:
        detail = f"This entity cannot carry {key}; it may carry {', '.join(allowed)}."
        return [("key-not-allowed", detail)]
    return ()


def _value_problems(key: str, written: Decimal) -> list[Problem]:
    number = float(written)
    rule = QUOTA_KEY_RULES.get(key)
    if rule is not None and number == written and rule.allows(number):
        return []  # as nearly always: it is written as float64 holds it, so nothing is rounded
    value = normalize_unlimited(written)
    number = float(value)
    problems: list[Problem] = []
    if value <= 0:
        detail = f"{key_text(key)} must be greater than 0."
        problems.append(("not-positive", detail, "INVALID_REQUEST"))
    elif isinf(number):
        kafka_code = "INVALID_REQUEST" if rule is not None and rule.integral else None
        problems.append(("not-finite", f"{key_text(key)} must be a finite number.", kafka_code))
    elif rule is not None:
        problems += _bound_problems(key, value, rule)
    if is_rounded(value, number) and (rule is None or value <= rule.maximum):
        problems.append(("not-exact", f"{key_text(key)}: {_NOT_EXACT}", None))
    return problems


_NOT_EXACT = (
    "Kafka keeps values as 64-bit floating point, which cannot hold this integer exactly; "
    "choose a neighbour that it can."
)


_BROKER_TOLERANCE: Final = 1e-6
"""The fraction that a broker lets pass. Source: ``ClientQuotaControlManager``."""


def _bound_problems(key: str, value: Decimal, rule: QuotaKeyRule) -> Iterator[Problem]:
    kafka_error = "INVALID_REQUEST"
    if rule.integral and value != value.to_integral_value():
        kafka_code = kafka_error if float(value) % 1 > _BROKER_TOLERANCE else None
        yield "fraction", f"{key} cannot be a fractional value.", kafka_code
    if value < _exactly(rule.minimum):
        yield "below-minimum", f"{key} must be at least {rule.minimum:g}.", None
    if value > _exactly(rule.maximum):
        source = kafka_error if rule.integral else None
        yield "above-maximum", f"{key} must be at most {int(rule.maximum)}.", source


@cache
def _exactly(bound: float) -> Decimal:
    """Return a bound of a rule as it is written, which is not always what float64 holds."""
    return Decimal(str(bound))


MAX_NAME_BYTES = 512
"""The longest name accepted, in bytes of UTF-8; the wire would take 32,767."""


def _entity_problems(entity: ClientQuotaEntity, types: frozenset[str]) -> list[Located]:
    """Return every broken rule of an entity, which has these types.

    Source: ``ClientQuotaControlManager`` (kafka_error set); the rest is this service's.
    """
    problems: list[Located] = []
    if not entity.entries:
        detail = "The entity is empty; name a user, a client-id or an ip."
        problems.append(("/entity", ("empty-entity", detail, "INVALID_REQUEST")))
    for kind, name in entity.entries:
        found = _name_problems(kind, name)
        problems += [(f"/entity/{pointer_token(kind)}", problem) for problem in found]
    if _IP in types and not types.isdisjoint(USER_CLIENT_TYPES):
        detail = "ip cannot be combined with user or client-id."
        problems.append(("/entity", ("invalid-entity-combination", detail, "INVALID_REQUEST")))
    return problems


def _name_problems(kind: str, name: str | None) -> Sequence[Problem]:
    kafka_error = "INVALID_REQUEST"
    if kind not in ENTITY_TYPES:
        return [("unknown-entity-type", _unknown_type(kind), kafka_error)]
    if name is DEFAULT_NAME:
        return ()
    if not name:
        detail = f"An empty {kind} is not supported; null names the default entity."
        return [("empty-name", detail, kafka_error)]
    if kind == _IP:
        is_address = canonical_ip(name) is not None
        return () if is_address else [("not-an-ip-address", _IP_DETAIL, kafka_error)]
    return _text_problems(name)


_IP_DETAIL = (
    "An ip is a literal IPv4 or IPv6 address; host names would be looked up inside the controller."
)


def _text_problems(name: str) -> Sequence[Problem]:
    problems: list[Problem] = []
    if "\0" in name:
        problems.append(("nul-in-name", "A name cannot contain U+0000.", None))
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        detail = "A name must be Unicode text; this one holds half of a surrogate pair."
        return [*problems, ("lone-surrogate", detail, None)]
    if size > MAX_NAME_BYTES:
        detail = f"The name has {size} bytes of UTF-8; at most {MAX_NAME_BYTES} are accepted."
        problems.append(("name-too-long", detail, None))
    return problems


def _kafka(pointer: str, code: str, detail: str, index: int | None = None) -> Violation:
    return Violation(pointer, code, detail, "INVALID_REQUEST", index)


MAX_CHANGES = 10_000
"""Changed keys in one request. Source: ``QuorumController.MAX_RECORDS_PER_USER_OP``."""

MAX_ENCODED_BYTES = 2 * 1024 * 1024
"""Encoded records in one request; from 8 MiB on the controller resigns."""

CURABLE = frozenset(
    {
        "unknown-key",
        "key-not-allowed",
        "not-an-ip-address",
        "empty-name",
        "name-too-long",
        "nul-in-name",
        "invalid-entity-combination",
        "too-many-changes",
    }
)
"""Violations that the stored state may excuse: what other tools stored must not be stuck."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say.

    Attributes:
        alterations: As they would be sent, in request order: canonical addresses.
        warnings: Sentences, by alteration.
        needs_stored: Whether the stored values could change the verdict, or name an entity that
            is to be removed as it is spelled.
    """

    alterations: tuple[ClientQuotaAlteration, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[tuple[str, ...], ...]
    needs_stored: bool

    def raise_violations(self, *, all_or_nothing: bool = True) -> None:
        """Refuse the request as a whole where it must be.

        Raises:
            InvalidRequestError: With every violation.
        """
        number = len(self.alterations)
        refusal = refusal_of(self.violations, number, all_or_nothing=all_or_nothing)
        if refusal is not None:
            raise refusal


def refusal_of(
    violations: Sequence[Violation], number: int, *, all_or_nothing: bool
) -> InvalidRequestError | None:
    """Return why a request of so many alterations is refused as a whole, null where it is not.

    Violations without an index concern the whole.
    """
    refused = {violation.index for violation in violations}
    if not refused or not (all_or_nothing or None in refused or len(refused) == number):
        return None
    kafka_error = next(filter(None, (violation.kafka_error for violation in violations)), None)
    return InvalidRequestError(
        "The request breaks rules of Kafka or of this service; nothing was sent. Every "
        "violation is listed in errors.",
        kafka_error=kafka_error,
        violations=violations,
    )


def judge(alterations: Sequence[ClientQuotaAlteration], stored: Quotas) -> Judgement:
    """Judge a request against Kafka's rules and this service's.

    Args:
        alterations: As read from the request.
        stored: The present values of the entities concerned; empty if not read yet.
    """
    sent = tuple([_canonical(alteration, stored) for alteration in alterations])
    violations: list[Violation] = []
    if not sent:
        violations.append(Violation("/alterations", "no-alterations", _NO_ALTERATIONS))
    for index, alteration in enumerate(sent):
        found = _alteration_violations(alteration, stored, index)
        # Past what is listed, the first of each entity says that it is refused.
        violations += found if len(violations) < MAX_VIOLATIONS else found[:1]
    violations.extend(_duplicate_entities(sent))
    violations.extend(_size_violations(sent, stored))
    needs_stored = any(violation.code in CURABLE for violation in violations) or any(
        proposed is not alteration and proposed.only_removes
        for proposed, alteration in zip(alterations, sent, strict=True)
    )
    warnings = tuple(
        [tuple([warning.detail for warning in _name_warnings(alteration)]) for alteration in sent]
    )
    return Judgement(sent, tuple(violations), warnings, needs_stored)


def _canonical(alteration: ClientQuotaAlteration, stored: Quotas) -> ClientQuotaAlteration:
    entity = canonical_entity(alteration, stored)
    return alteration if entity is alteration.entity else replace(alteration, entity=entity)


_NO_ALTERATIONS = "Give at least one alteration; Kafka would answer an empty request with success."


def _alteration_violations(
    alteration: ClientQuotaAlteration, stored: Quotas, index: int
) -> list[Violation]:
    return [
        Violation(f"/alterations/{index}{pointer}", *problem, index)
        for pointer, problem in _alteration_problems(alteration, stored)
    ]


def _alteration_problems(alteration: ClientQuotaAlteration, stored: Quotas) -> list[Located]:
    entity = alteration.entity
    types = entity.types
    present = stored.get(entity)
    problems: list[Located] = []
    if present is None or not alteration.only_removes:
        problems += _entity_problems(entity, types)
    if not alteration.ops:
        detail = "Give at least one operation; an empty list changes nothing."
        problems.append(("/ops", ("no-ops", detail, None)))
    repeated = _repeated_keys(alteration)
    for position, op in enumerate(alteration.ops):
        for pointer, problem in _op_problems(op, types, present or {}):
            problems.append((f"/ops/{position}{pointer}", problem))
        if op.key in repeated:
            detail = f"The key {key_text(op.key)} appears more than once for this entity."
            repetition = ("duplicate-key", detail, "INVALID_REQUEST")
            problems.append((f"/ops/{position}/key", repetition))
    return problems


def _repeated_keys(alteration: ClientQuotaAlteration) -> set[str]:
    keys = [op.key for op in alteration.ops]
    if len(set(keys)) == len(keys):
        return set()
    return {key for key, count in Counter(keys).items() if count > 1}


def _duplicate_entities(alterations: Sequence[ClientQuotaAlteration]) -> Iterator[Violation]:
    first: dict[ClientQuotaEntity, int] = {}
    for index, alteration in enumerate(alterations):
        earlier = first.setdefault(alteration.entity, index)
        if earlier != index:
            detail = (
                f"The same entity as alteration {earlier}; the broker would apply one of them and "
                "report an error."
            )
            yield _kafka(f"/alterations/{index}/entity", "duplicate-entity", detail)


def _size_violations(
    alterations: Sequence[ClientQuotaAlteration], stored: Quotas
) -> Iterator[Violation]:
    if sum(len(alteration.ops) for alteration in alterations) > MAX_CHANGES:
        changes = sum(
            _changes(alteration, stored.get(alteration.entity, {})) for alteration in alterations
        )
        if changes > MAX_CHANGES:
            detail = f"{changes} changed keys; a controller takes at most {MAX_CHANGES} a request."
            yield Violation("/alterations", "too-many-changes", detail, "POLICY_VIOLATION")
    size = sum(encoded_bytes(alteration) for alteration in alterations)
    if size > MAX_ENCODED_BYTES:
        detail = f"About {size} bytes of records; at most {MAX_ENCODED_BYTES} are sent at once."
        yield Violation("/alterations", "too-large", detail)


def _changes(alteration: ClientQuotaAlteration, before: Values) -> int:
    after = apply_ops(before, alteration.ops)
    keys = {op.key for op in alteration.ops}
    return sum(not same_value(before.get(key), after.get(key)) for key in keys)


def alteration_warnings(alterations: Iterable[ClientQuotaAlteration]) -> list[EntityWarning]:
    """Return what is odd about the names that are set; what only removes is how that is mended."""
    return [warning for alteration in alterations for warning in _name_warnings(alteration)]


def _name_warnings(alteration: ClientQuotaAlteration) -> tuple[EntityWarning, ...]:
    return () if alteration.only_removes else entity_warnings(alteration.entity)


def filter_violations(quota_filter: ClientQuotaFilter, pointer: str = "filter") -> list[Violation]:
    """Return what a broker would refuse, in its order. Source: ``ClientQuotasImage.describe``."""
    problems = list(_component_problems(quota_filter))
    types = {component.entity_type for component in quota_filter.components if component.names_type}
    if EntityType.IP in types and types & {EntityType.USER, EntityType.CLIENT_ID}:
        detail = "ip cannot be combined with user or client-id: no entity has both."
        problems.append(("invalid-filter-combination", detail, "INVALID_REQUEST"))
    return [Violation(pointer, *problem) for problem in problems]


def _component_problems(quota_filter: ClientQuotaFilter) -> Iterator[Problem]:
    seen: set[str] = set()
    for component in quota_filter.components:
        kind = component.entity_type
        if kind == ANY_TYPE:
            if component.match_type is not MatchType.CONTAINS:
                detail = "any stands for a type in any~=TEXT alone."
                yield "unknown-entity-type", detail, "UNSUPPORTED_VERSION"
            continue
        if not kind:
            yield "empty-entity-type", "An entity type is empty.", "INVALID_REQUEST"
        elif kind not in ENTITY_TYPES:
            yield "unknown-entity-type", _unknown_type(kind), "UNSUPPORTED_VERSION"
        elif kind in seen:
            detail = f"The entity type {kind} appears more than once; components are ANDed."
            yield "repeated-entity-type", detail, "INVALID_REQUEST"
        seen.add(kind)


def _unknown_type(kind: str) -> str:
    return f"Unknown entity type {kind!r}; a broker knows user, client-id and ip."


def check_filter(quota_filter: ClientQuotaFilter, pointer: str = "filter") -> None:
    """Refuse a filter that a broker would refuse.

    Raises:
        InvalidRequestError: With every violation, and the error that the broker gives.
    """
    violations = filter_violations(quota_filter, pointer)
    if violations:
        subject = "filter" if pointer == "filter" else f"{pointer} filter"
        raise InvalidRequestError(
            f"The {subject} breaks a rule of the broker.",
            kafka_error=violations[0].kafka_error,
            violations=violations,
        )
