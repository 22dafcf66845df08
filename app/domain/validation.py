"""The validation of a whole request: every violation, with its pointer, before anything is sent."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.alterations import ClientQuotaAlteration, Op, Quotas, Values, apply_ops, same_value
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity, EntityType
from app.domain.errors import MAX_VIOLATIONS, Violation
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKeyRule, keys_for, meant


def exact_float(value: Decimal) -> float | None:
    """Return the float64 for the number as written, or null for an integer that it cannot hold.

    2^63 has several spellings. A fraction is rounded to the
    nearest float64 as everywhere; infinity stands for what is too large for float64.
    """
    value = meant(value)
    number = float(value)
    if number in (float("inf"), float("-inf")) or value != value.to_integral_value():
        return number
    return number if Decimal(number) == value else None


def op_violations(
    op: Op, entity: ClientQuotaEntity, stored: Values, pointer: str, index: int
) -> Iterator[Violation]:
    """Yield every broken rule of one operation.

    Args:
        op: As proposed.
        entity: The entity that would carry the key.
        stored: The entity's present values: a key that is stored may be named although no rule
            knows it, so that nothing is stuck.
        pointer: Of the operation.
        index: Of the alteration in the request.
    """
    yield from _form_violations(op, pointer, index)
    yield from _key_violations(op, entity, stored, f"{pointer}/key", index)
    if op.value is not None:
        for code, detail, kafka_error in _value_problems(op):
            yield Violation(f"{pointer}/value", code, detail, kafka_error, index)


def _form_violations(op: Op, pointer: str, index: int) -> Iterator[Violation]:
    if op.remove and op.value is not None:
        detail = "An operation either sets a value or removes the key, not both."
        yield Violation(pointer, "value-with-remove", detail, index=index)
    if not op.remove and op.value is None:
        detail = "An operation needs a value, or remove: true."
        yield Violation(pointer, "value-or-remove-missing", detail, index=index)


def _key_violations(
    op: Op, entity: ClientQuotaEntity, stored: Values, pointer: str, index: int
) -> Iterator[Violation]:
    if op.key in stored:
        return
    kafka_code = None if op.remove else "INVALID_REQUEST"  # a broker takes any removal for done
    if op.key not in QUOTA_KEY_RULES:
        keys = ", ".join(QUOTA_KEY_RULES)
        near = get_close_matches(op.key, QUOTA_KEY_RULES, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        detail = f"Unknown quota key {op.key!r}; a broker knows {keys}.{hint}"
        yield Violation(pointer, "unknown-key", detail, kafka_code, index)
        return
    allowed = keys_for(entity.types)
    if allowed and op.key not in allowed:
        detail = f"This entity cannot carry {op.key}; it may carry {', '.join(allowed)}."
        yield Violation(pointer, "key-not-allowed", detail, kafka_code, index)


Problem = tuple[str, str, str | None]


def _value_problems(op: Op) -> Iterator[Problem]:
    value = op.value
    if value is None:
        return
    value = meant(value)
    number = exact_float(value)
    rule = QUOTA_KEY_RULES.get(op.key)
    if value <= 0:
        yield "not-positive", f"{op.key} must be greater than 0.", "INVALID_REQUEST"
    elif number is not None and number == float("inf"):
        kafka_code = "INVALID_REQUEST" if rule is not None and rule.integral else None
        yield "not-finite", f"{op.key} must be a finite number.", kafka_code
    elif rule is not None:
        yield from _bound_problems(op.key, value, rule)
    if number is None and (rule is None or value <= rule.maximum):
        yield "not-exact", _NOT_EXACT, None


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


def canonical_entity(alteration: ClientQuotaAlteration, stored: Quotas) -> ClientQuotaEntity:
    """Return the entity as it is sent: an address in its canonical text.

    An alteration that only removes keeps a spelling that the broker lists, so nothing that other
    tools stored is stuck.
    """
    entity = alteration.entity
    if alteration.only_removes and entity in stored:
        return entity
    names = entity.as_dict()
    name = names.get(EntityType.IP)
    canonical = canonical_ip(name) if name else None
    if canonical is None or canonical == name:
        return entity
    return ClientQuotaEntity.of({**names, EntityType.IP: canonical})


def entity_violations(entity: ClientQuotaEntity, pointer: str, index: int) -> Iterator[Violation]:
    """Yield every broken rule of an entity.

    Source: ``ClientQuotaControlManager`` (kafka_error set); the rest is this service's.
    """
    if not entity.entries:
        yield _kafka(
            pointer,
            "empty-entity",
            "The entity is empty; name a user, a client-id or an ip.",
            index,
        )
    for kind, name in entity.entries:
        yield from _name_violations(kind, name, f"{pointer}/{_escape(kind)}", index)
    if EntityType.IP in entity.types and entity.types & {EntityType.USER, EntityType.CLIENT_ID}:
        detail = "ip cannot be combined with user or client-id."
        yield _kafka(pointer, "invalid-entity-combination", detail, index)


def _name_violations(kind: str, name: str | None, pointer: str, index: int) -> Iterator[Violation]:
    if kind not in ENTITY_TYPES:
        detail = f"Unknown entity type {kind!r}; a broker knows user, client-id and ip."
        yield _kafka(pointer, "unknown-entity-type", detail, index)
    elif name is DEFAULT_NAME:
        return
    elif not name:
        detail = f"An empty {kind} is not supported; null names the default entity."
        yield _kafka(pointer, "empty-name", detail, index)
    elif kind == EntityType.IP:
        if canonical_ip(name) is None:
            yield _kafka(pointer, "not-an-ip-address", _IP_DETAIL, index)
    else:
        yield from _text_violations(name, pointer, index)


_IP_DETAIL = (
    "An ip is a literal IPv4 or IPv6 address; host names would be looked up inside the controller."
)


def _text_violations(name: str, pointer: str, index: int) -> Iterator[Violation]:
    if "\0" in name:
        yield Violation(pointer, "nul-in-name", "A name cannot contain U+0000.", index=index)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        detail = "A name must be Unicode text; this one holds half of a surrogate pair."
        yield Violation(pointer, "lone-surrogate", detail, index=index)
        return
    if size > MAX_NAME_BYTES:
        detail = f"The name has {size} bytes of UTF-8; at most {MAX_NAME_BYTES} are accepted."
        yield Violation(pointer, "name-too-long", detail, index=index)


def _kafka(pointer: str, code: str, detail: str, index: int) -> Violation:
    return Violation(pointer, code, detail, "INVALID_REQUEST", index)


def _escape(token: str) -> str:
    """Escape a member name for a JSON pointer. Source: RFC 6901."""
    return token.replace("~", "~0").replace("/", "~1")


MAX_CHANGES = 10_000
"""Changed keys in one request. Source: ``QuorumController.MAX_RECORDS_PER_USER_OP``."""

MAX_ENCODED_BYTES = 2 * 1024 * 1024
"""Encoded records in one request; from 8 MiB on the controller resigns."""

_RECORD_OVERHEAD_BYTES = 40

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
        violations: Every broken rule.
        warnings: Sentences, by alteration.
        needs_stored: Whether the stored values could change the verdict, or name an entity that
            is to be removed as it is spelled.
    """

    alterations: tuple[ClientQuotaAlteration, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[tuple[str, ...], ...]
    needs_stored: bool


def judge(alterations: Sequence[ClientQuotaAlteration], stored: Quotas) -> Judgement:
    """Judge a request against Kafka's rules and this service's.

    Args:
        alterations: As read from the request.
        stored: The present values of the entities concerned; empty if not read yet.
    """
    sent = tuple(
        replace(alteration, entity=canonical_entity(alteration, stored))
        for alteration in alterations
    )
    violations: list[Violation] = []
    if not sent:
        violations.append(Violation("/alterations", "no-alterations", _NO_ALTERATIONS))
    for index, alteration in enumerate(sent):
        found = _alteration_violations(alteration, stored, index)
        # Past what is listed, the first of each entity says that it is refused.
        violations.extend(found if len(violations) < MAX_VIOLATIONS else islice(found, 1))
    violations.extend(_duplicate_entities(sent))
    violations.extend(_size_violations(sent, stored))
    needs_stored = any(violation.code in CURABLE for violation in violations) or any(
        proposed.only_removes and proposed.entity != alteration.entity
        for proposed, alteration in zip(alterations, sent, strict=True)
    )
    warnings = tuple(_warnings(alteration.entity) for alteration in sent)
    return Judgement(sent, tuple(violations), warnings, needs_stored)


_NO_ALTERATIONS = "Give at least one alteration; Kafka would answer an empty request with success."


def _alteration_violations(
    alteration: ClientQuotaAlteration, stored: Quotas, index: int
) -> Iterator[Violation]:
    pointer = f"/alterations/{index}"
    present = stored.get(alteration.entity)
    if not (alteration.only_removes and present is not None):
        yield from entity_violations(alteration.entity, f"{pointer}/entity", index)
    if not alteration.ops:
        detail = "Give at least one operation; an empty list changes nothing."
        yield Violation(f"{pointer}/ops", "no-ops", detail, index=index)
    repeated = _repeated_keys(alteration)
    for position, op in enumerate(alteration.ops):
        op_pointer = f"{pointer}/ops/{position}"
        yield from op_violations(op, alteration.entity, present or {}, op_pointer, index)
        if op.key in repeated:
            detail = f"The key {op.key} appears more than once for this entity."
            yield Violation(f"{op_pointer}/key", "duplicate-key", detail, "INVALID_REQUEST", index)


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
            yield Violation(
                f"/alterations/{index}/entity",
                "duplicate-entity",
                f"The same entity as alteration {earlier}; the broker would apply one of them "
                "and report an error.",
                "INVALID_REQUEST",
            )


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


def encoded_bytes(alteration: ClientQuotaAlteration) -> int:
    """Return an upper bound for the bytes of this alteration's records in the metadata log.

    Source: ``ClientQuotaRecord``, one record for each key with the whole entity in it.
    """
    entity = sum(
        len(kind.encode("utf-8", "surrogatepass"))
        + len((name or "").encode("utf-8", "surrogatepass"))
        + 8
        for kind, name in alteration.entity.entries
    )
    return sum(
        _RECORD_OVERHEAD_BYTES + entity + len(op.key.encode("utf-8", "surrogatepass"))
        for op in alteration.ops
    )


def _warnings(entity: ClientQuotaEntity) -> tuple[str, ...]:
    user = entity.as_dict().get(EntityType.USER)
    if user and user.startswith("User:"):
        return (f"{_USER_PREFIX} 'User:{user}'.",)
    return ()


_USER_PREFIX = (
    "A quota's user is the principal's name without its type, so this rule is for a principal "
    "that Kafka prints as"
)
