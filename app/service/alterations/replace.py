"""Replace: make some values all that an entity has, or remove all of them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Expected,
    Op,
    Outcome,
    Values,
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
from app.domain.validation import canonical_entity
from app.domain.values import DesiredValue
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.command import AlterationReport, AlterCommand
from app.service.auth.authorize import AuditTrail
from app.service.ports.audit_log import AlterationRecord
from app.service.queries.describe import DescribeQuotas

_OP: Final = re.compile(r"/alterations/0/ops/([0-9]+)\b.*")


@dataclass(frozen=True, slots=True)
class ReplaceQuotas:
    """Answers ``PUT`` and ``DELETE /quotas/{entity_key}``."""

    describe: DescribeQuotas
    alter: AlterQuotas

    async def replace(
        self, command: AlterCommand, entity: ClientQuotaEntity, values: Mapping[str, DesiredValue]
    ) -> AlterationReport:
        """Set these values, and remove the keys that are not named.

        Args:
            command: Who asks and how.
            entity: Whose values.
            values: By key; NaN and infinity only where they are stored. A key that appears while
                the request is under way, and that is not named, is not as expected: what nobody
                has seen is not removed.

        Raises:
            NoSuchEntityError: No cluster can have such an entity.
            ExpectationFailedError: The present values are not those that the caller knows.
            QuotaError: As ``AlterQuotas.alter``; violations point at ``values`` and the path.
        """
        replay = await self.alter.replay(command)
        if replay is not None:
            return replay
        sets = tuple(Op(key, value) for key, value in values.items() if isinstance(value, Decimal))
        if sets:
            entity = canonical_entity(ClientQuotaAlteration(entity, sets), {})
        odd = {key: value for key, value in values.items() if isinstance(value, float)}
        return await self._alter(command, entity, sets, odd, await self._read_stored(entity))

    async def remove(self, command: AlterCommand, entity: ClientQuotaEntity) -> AlterationReport:
        """Remove all values of an entity; else as ``replace``.

        Raises:
            NoSuchEntityError: It has none.
            QuotaError: As ``replace``.
        """
        replay = await self.alter.replay(command)
        if replay is not None:
            return replay
        stored = await self._read_stored(entity)
        if not stored:
            raise NoSuchEntityError(f"{entity} has no values; there is nothing to delete.")
        return await self._alter(command, entity, (), {}, stored)

    async def _read_stored(self, entity: ClientQuotaEntity) -> Values:
        listing = await self.describe.entity(entity)
        return listing.entries[0][1] if listing.entries else {}

    async def _alter(
        self,
        command: AlterCommand,
        entity: ClientQuotaEntity,
        sets: tuple[Op, ...],
        odd: Values,
        stored: Values,
    ) -> AlterationReport:
        named = {op.key for op in sets} | odd.keys()
        removes = tuple(Op(key, remove=True) for key in sorted(stored.keys() - named))
        ops = (*sets, *removes)
        unseen = {key.value for key in keys_for(entity.types)} - stored.keys() - named
        command = replace(
            command,
            alterations=(ClientQuotaAlteration(entity, ops),),
            expected={0: {**dict.fromkeys(sorted(unseen)), **odd}},
            violations=(*command.violations, *_not_stored(odd, stored)),
        )
        try:
            return await self.alter.alter(command)
        except QuotaError as error:
            error.violations = [_of_the_request(violation, ops) for violation in error.violations]
            raise


def _not_stored(odd: Values, stored: Values) -> Iterator[Violation]:
    for key, value in odd.items():
        if not same_value(stored.get(key), value):
            detail = f"{key} must be a finite number; only what is stored already may be another."
            yield Violation(f"/values/{key}", "not-finite", detail)


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

    async def revert(self, command: AlterCommand, alteration_id: str) -> AlterationReport:
        """Apply the inverse of an alteration.

        Raises:
            NotFoundError: There is no such alteration, or it is another caller's.
            InvalidRequestError: Nothing of it was applied, or it is not concluded.
            BeforeUnknownError: Recovery found that it was applied, and not what held before.
            ExpectationFailedError: The present values are not its ``after``.
            QuotaError: As ``AlterQuotas.alter``.
        """
        command.refuse_if_broken()
        record = await self.audit.alteration(command.caller, alteration_id)
        alterations, expected = _inverse(record)
        inverted = replace(
            command,
            alterations=tuple(alterations),
            action="revert",
            expected=dict(enumerate(expected)),
        )
        return await self.alter.alter(inverted)


def _inverse(record: AlterationRecord) -> tuple[list[ClientQuotaAlteration], list[Expected]]:
    unknown = any(result.outcome is Outcome.UNKNOWN for result in record.results.values())
    if unknown or not record.concluded:
        raise _refusal("not-concluded", "It has no definite outcome yet; ask for it again.")
    _refuse_unknown_before(record)
    alterations: list[ClientQuotaAlteration] = []
    expected: list[Expected] = []
    for result in record.results.values():
        inverted = _invert(result)
        if inverted is not None:
            alterations.append(inverted)
            expected.append(expected_after(result.before or {}, result.after or {}))
    if not alterations:
        raise _refusal("nothing-to-revert", _CHANGED_NOTHING)
    return alterations, expected


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
