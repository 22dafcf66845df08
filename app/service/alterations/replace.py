"""Replace: make some values all that an entity has, or remove all of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    DesiredValue,
    Op,
    Outcome,
    Values,
    canonical_entity,
    expected_after,
    inverse,
    same_value,
)
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    BeforeUnknownError,
    InvalidRequestError,
    NoSuchEntityError,
    QuotaError,
    Violation,
)
from app.domain.quota_keys import keys_for
from app.service.alterations.alter import AlterQuotas
from app.service.auth.actors import Actor
from app.service.auth.authorize import AuditTrail
from app.service.ports.alterations import Alteration, AlterationRecord, Change
from app.service.queries.describe import DescribeQuotas

_OP: Final = re.compile(r"/alterations/0/ops/([0-9]+)\b.*")
_CHANGE: Final = re.compile(r"/alterations/([0-9]+)\b")


@dataclass(frozen=True, slots=True)
class ReplaceQuotas:
    """Answers ``PUT`` and ``DELETE /quotas/{entity_key}``."""

    describe: DescribeQuotas
    alter: AlterQuotas

    async def replace(
        self,
        actor: Actor,
        alteration: Alteration,
        entity: ClientQuotaEntity,
        values: Mapping[str, DesiredValue],
    ) -> AlterationRecord:
        """Set these values, and remove the keys that are not named.

        Args:
            actor: Who acts.
            alteration: Who asks and how.
            entity: Whose values.
            values: By key; NaN and infinity only where they are stored. A key that appears while
                the request is under way, and that is not named, is not as expected: what nobody
                has seen is not removed.

        Raises:
            NoSuchEntityError: No cluster can have such an entity.
            ExpectationFailedError: The present values are not those that the caller knows.
            QuotaError: As ``AlterQuotas.alter``; violations point at ``values`` and the path.
        """
        replay = await self.alter.replay(actor, alteration)
        if replay is not None:
            return replay
        sets = tuple(Op(key, value) for key, value in values.items() if isinstance(value, Decimal))
        if sets:
            entity = canonical_entity(ClientQuotaAlteration(entity, sets), {})
        odd = {key: value for key, value in values.items() if isinstance(value, float)}
        wanted, stored = ClientQuotaAlteration(entity, sets), await self._stored(actor, entity)
        return await self._alter(actor, alteration, wanted, odd, stored)

    async def remove(
        self, actor: Actor, alteration: Alteration, entity: ClientQuotaEntity
    ) -> AlterationRecord:
        """Remove all values of an entity; else as ``replace``.

        Raises:
            NoSuchEntityError: It has none.
            QuotaError: As ``replace``.
        """
        replay = await self.alter.replay(actor, alteration)
        if replay is not None:
            return replay
        stored = await self._stored(actor, entity)
        if not stored:
            raise NoSuchEntityError(f"{entity} has no values; there is nothing to delete.")
        return await self._alter(actor, alteration, ClientQuotaAlteration(entity, ()), {}, stored)

    async def _stored(self, actor: Actor, entity: ClientQuotaEntity) -> Values:
        listing = await self.describe.entity(actor, entity)
        return listing.entries[0][1] if listing.entries else {}

    async def _alter(
        self,
        actor: Actor,
        alteration: Alteration,
        wanted: ClientQuotaAlteration,
        odd: Values,
        stored: Values,
    ) -> AlterationRecord:
        entity, sets = wanted.entity, wanted.ops
        named = {op.key for op in sets} | odd.keys()
        removes = tuple(Op(key, remove=True) for key in sorted(stored.keys() - named))
        ops = (*sets, *removes)
        unseen = {key.value for key in keys_for(entity.types)} - stored.keys() - named
        expected = {**dict.fromkeys(sorted(unseen)), **odd}
        alteration = replace(
            alteration,
            changes=(Change(entity, ops, expected=expected),),
            violations=(*alteration.violations, *_not_stored(odd, stored)),
        )
        with _violations_are(lambda violation: _of_the_request(violation, ops)):
            return await self.alter.alter(actor, alteration)


def _not_stored(odd: Values, stored: Values) -> Iterator[Violation]:
    for key, value in odd.items():
        if not same_value(stored.get(key), value):
            detail = f"{key} must be a finite number; only what is stored already may be another."
            yield Violation(f"/values/{key}", "not-finite", detail)


@contextmanager
def _violations_are(translate: Callable[[Violation], Violation]) -> Iterator[None]:
    """Translate violations of an alteration that was made of the request."""
    try:
        yield
    except QuotaError as error:
        error.violations = [translate(violation) for violation in error.violations]
        raise


def _of_the_request(violation: Violation, ops: tuple[Op, ...]) -> Violation:
    """Return a violation that points into the request, not into the alteration made of it."""
    pointer = violation.pointer
    if (found := _OP.fullmatch(pointer)) is not None:
        pointer = f"/values/{ops[int(found[1])].key}"
    elif pointer.startswith("/alterations/0/ops"):
        pointer = "/values"
    elif pointer.startswith("/alterations"):
        pointer = "entity_key"
    return replace(violation, pointer=pointer)


@dataclass(frozen=True, slots=True)
class RevertAlterations:
    """Answers ``POST /quotas/alterations/{alteration_id}/revert``."""

    audit: AuditTrail
    alter: AlterQuotas

    async def revert(
        self, actor: Actor, alteration: Alteration, alteration_id: str
    ) -> AlterationRecord:
        """Apply the inverse of another alteration.

        Raises:
            NotFoundError: There is no such alteration, or it is another caller's.
            InvalidRequestError: Nothing of it was applied, or it is not concluded.
            BeforeUnknownError: Recovery found that it was applied, and not what held before.
            ExpectationFailedError: The present values are not its ``after``.
            QuotaError: As ``AlterQuotas.alter``.
        """
        alteration.refuse_if_broken()
        record = await self.audit.alteration(alteration.caller, alteration_id)
        changes = _inverse(record)
        inverted = replace(alteration, changes=changes, action="revert")
        with _violations_are(lambda violation: _of_the_reverted(violation, changes)):
            return await self.alter.alter(actor, inverted)


def _of_the_reverted(violation: Violation, changes: tuple[Change, ...]) -> Violation:
    """Return a violation that points at the alteration in the path: the body has no entities."""
    found = _CHANGE.match(violation.pointer)
    if found is None:
        return violation
    entity = changes[int(found[1])].entity.as_dict()
    values = {"entity": entity, **(violation.values or {})}
    return replace(violation, pointer="alteration_id", values=values)


def _inverse(record: AlterationRecord) -> tuple[Change, ...]:
    unknown = any(result.outcome is Outcome.UNKNOWN for result in record.results.values())
    if unknown or not record.concluded:
        raise _refusal("not-concluded", "It has no definite outcome yet; ask for it again.")
    _refuse_unknown_before(record)
    inverted = [
        (found, expected_after(result.before or {}, result.after or {}))
        for result in record.results.values()
        if (found := _invert(result)) is not None
    ]
    if not inverted:
        raise _refusal("nothing-to-revert", _CHANGED_NOTHING)
    return tuple(
        Change(each.entity, each.ops, ordinal, expected)
        for ordinal, (each, expected) in enumerate(inverted)
    )


_CHANGED_NOTHING: Final = "That alteration changed nothing."


def _refuse_unknown_before(record: AlterationRecord) -> None:
    unknown = [
        Violation("alteration_id", "before-unknown", f"Nobody knows what {result.entity} had.")
        for result in record.results.values()
        if result.outcome is Outcome.APPLIED and result.before is None
    ]
    if unknown:
        detail = "The log does not prove what held before this alteration; nothing was sent."
        raise BeforeUnknownError(detail, violations=unknown)


def _invert(result: AlterationResult) -> ClientQuotaAlteration | None:
    if result.outcome is not Outcome.APPLIED:
        return None
    try:
        return inverse(result.entity, result.before or {}, result.after or {})
    except ValueError as error:
        raise _refusal("cannot-be-restored", f"{error}.") from None


def _refusal(code: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(detail, code=code)
