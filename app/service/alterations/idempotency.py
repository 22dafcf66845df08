"""A repeated request with the same idempotency key is answered with the present truth."""

from app.domain.errors import (
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    QuotaError,
    Retry,
    Violation,
)
from app.service.alterations.command import AlterationReport, AlterCommand
from app.service.alterations.preconditions import NOT_AS_EXPECTED, failed_before
from app.service.alterations.results import raise_unless_done
from app.service.ports.audit_log import (
    AlterationRecord,
    AuditConclusion,
    AuditJournal,
    StoredKey,
)
from app.service.ports.brokers import ClientQuotaAdmin


class Replays:
    """Answers from the log; no broker is called."""

    def __init__(self, journal: AuditJournal, admin: ClientQuotaAdmin) -> None:
        self._journal = journal
        self._admin = admin

    async def find(self, command: AlterCommand) -> AlterationReport | None:
        """Return the answer to a key that was used before, null for a new one.

        Raises:
            InvalidRequestError: The key was used for another request.
            EntityBusyError: The alteration is still running.
            ExpectationFailedError: An expectation did not hold.
            UnknownOutcomeError: Its outcome is still unknown.
            OutcomeSupersededError: Something else was found than what was asked for.
        """
        if command.key is None or command.validate_only:
            return None
        claim = command.key.claim(command.caller.principal, await self._admin.cluster_id())
        stored = await self._journal.stored_key(claim.key_hash)
        return None if stored is None else await self.replay(command, stored)

    async def replay(self, command: AlterCommand, stored: StoredKey) -> AlterationReport:
        """Return what became of the alteration that the key belongs to; else as ``find``."""
        if command.key is None or stored.fingerprint != command.key.fingerprint:
            raise _reused()
        record = await self._journal.alteration(stored.alteration_id)
        if record is None or not record.concluded:
            raise EntityBusyError(
                "The request with this idempotency key is still running; ask again.",
                code="idempotency-key-running",
                retry=Retry.SAME_KEY_ONLY,
                alteration_id=stored.alteration_id,
                retry_after_s=1,
            )
        failed = failed_before(record)
        if failed:
            raise ExpectationFailedError(
                NOT_AS_EXPECTED,
                violations=failed,
                alteration_id=stored.alteration_id,
                replayed=True,
            )
        report = _report(record)
        sent = any(event == "sent" for _, event, _ in record.history)
        try:
            raise_unless_done(
                report,
                AuditConclusion(stored.alteration_id, record.results, sent=sent),
                all_or_nothing=command.all_or_nothing,
            )
        except QuotaError as error:
            error.replayed = True
            raise
        return report


def _report(record: AlterationRecord) -> AlterationReport:
    request = record.request
    results = tuple(record.results[ordinal] for ordinal in sorted(record.results))
    return AlterationReport(
        request.alteration_id,
        request.cluster_id,
        validate_only=False,
        results=results,
        replayed=True,
    )


def _reused() -> InvalidRequestError:
    detail = "This idempotency key was used for another request; choose a new one."
    code = "idempotency-key-reused"
    return InvalidRequestError(
        detail, code=code, violations=[Violation("Idempotency-Key", code, detail)]
    )
