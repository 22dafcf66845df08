"""Revert: take an alteration back where nothing has moved since."""

from dataclasses import dataclass

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Outcome,
    expected_after,
    inverse,
)
from app.domain.errors import InvalidRequestError, Violation
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.command import AlterationReport, AlterCommand, Expected
from app.service.ports.audit_log import AlterationRecord
from app.service.queries.audit import AuditTrail


@dataclass(frozen=True, slots=True)
class RevertAlterations:
    """Answers ``POST /quotas/alterations/{alteration_id}/revert``."""

    audit: AuditTrail
    alter: AlterQuotas

    async def revert(self, command: AlterCommand, alteration_id: str) -> AlterationReport:
        """Apply the inverse of an alteration.

        Args:
            command: Who asks and how; its alterations are those of the inverse.
            alteration_id: What to take back.

        Raises:
            NotFoundError: There is no such alteration, or it is another caller's.
            InvalidRequestError: Nothing of it was applied, or it is not concluded.
            ExpectationFailedError: The present values are not its ``after``.
            QuotaError: As ``AlterQuotas.alter``.
        """
        record = await self.audit.alteration(command.caller, alteration_id)
        alterations, expected = _inverse(record)
        inverted = AlterCommand(
            caller=command.caller,
            evidence=command.evidence,
            request_id=command.request_id,
            alterations=tuple(alterations),
            validate_only=command.validate_only,
            reason=command.reason,
            action="revert",
            expected=dict(enumerate(expected)),
            violations=command.violations,
            key=command.key,
            supersedes=command.supersedes,
        )
        return await self.alter.alter(inverted)


def _inverse(record: AlterationRecord) -> tuple[list[ClientQuotaAlteration], list[Expected]]:
    unknown = any(result.outcome is Outcome.UNKNOWN for result in record.results.values())
    if unknown or not record.concluded:
        raise _refusal("not-concluded", "It has no definite outcome yet; ask for it again.")
    alterations: list[ClientQuotaAlteration] = []
    expected: list[Expected] = []
    for result in record.results.values():
        inverted = _invert(result)
        if inverted is not None:
            alterations.append(inverted)
            expected.append(expected_after(result.before or {}, result.after or {}))
    if not alterations:
        raise _refusal("nothing-to-revert", "The log has nothing of this that changed the cluster.")
    return alterations, expected


def _invert(result: AlterationResult) -> ClientQuotaAlteration | None:
    if result.outcome is not Outcome.APPLIED:
        return None
    try:
        return inverse(result.entity, result.before or {}, result.after or {})
    except ValueError as error:
        raise _refusal("cannot-be-restored", f"{error}.") from None


def _refusal(code: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(
        detail, code=code, violations=[Violation("alteration_id", code, detail)]
    )
