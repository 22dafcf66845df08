"""The judgement of a whole request: every violation, with its place, before anything is sent."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from app.domain.alterations import ClientQuotaAlteration, Quotas, Values, apply_ops, same_value
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.entity_rules import canonical_entity, entity_violations
from app.domain.errors import MAX_VIOLATIONS, Violation
from app.domain.value_rules import op_violations

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
        stored: The present values of the entities concerned; empty if not known yet.
    """
    sent = tuple(replace(one, entity=canonical_entity(one, stored)) for one in alterations)
    violations: list[Violation] = []
    if not sent:
        violations.append(Violation("/alterations", "no-alterations", _NO_ALTERATIONS))
    for index, alteration in enumerate(sent):
        found = _alteration_violations(alteration, stored, index)
        # Past what is listed, the first of each entity says that it is refused.
        violations.extend(found if len(violations) < MAX_VIOLATIONS else islice(found, 1))
    violations.extend(_duplicate_entities(sent))
    violations.extend(_size_violations(sent, stored))
    needs_stored = any(one.code in CURABLE for one in violations) or any(
        proposed.only_removes and proposed.entity != one.entity
        for proposed, one in zip(alterations, sent, strict=True)
    )
    warnings = tuple(_warnings(one.entity) for one in sent)
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
        place = f"{pointer}/ops/{position}"
        yield from op_violations(op, alteration.entity, present or {}, place, index)
        if op.key in repeated:
            detail = f"The key {op.key} appears more than once for this entity."
            yield Violation(f"{place}/key", "duplicate-key", detail, "INVALID_REQUEST", index)


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
    if sum(len(one.ops) for one in alterations) > MAX_CHANGES:
        changes = sum(_changes(one, stored.get(one.entity, {})) for one in alterations)
        if changes > MAX_CHANGES:
            detail = f"{changes} changed keys; a controller takes at most {MAX_CHANGES} a request."
            yield Violation("/alterations", "too-many-changes", detail, "POLICY_VIOLATION")
    size = sum(encoded_bytes(one) for one in alterations)
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
