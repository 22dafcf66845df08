"""Alter: validate, take the locks, record the intent, send, record the outcome, answer."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from app.domain.alterations import (
    AlterationResult,
    KafkaRefusal,
    Outcome,
    failed_expectations,
    moved_beside,
)
from app.domain.errors import (
    EntityBusyError,
    ExpectationFailedError,
    NotSentError,
    OutcomeNotRecordedError,
    Violation,
)
from app.domain.validation import Judgement, judge
from app.service.alterations.command import (
    NOT_AS_EXPECTED,
    AlterationReport,
    AlterCommand,
    Wait,
    applied_quotas,
    in_order,
    raise_unless_done,
    replayed_report,
)
from app.service.alterations.current_values import Barrier
from app.service.alterations.sending import AlterExecutor, unexpected
from app.service.alterations.write_ahead import AlterContext, Intents, not_sent, with_before
from app.service.ports.audit_log import (
    AuditConclusion,
    AuditEntity,
    AuditRequest,
    Intent,
    KeyTakenError,
    StoredKey,
)
from app.service.ports.brokers import ClientQuotaAdmin
from app.service.runtime.clock import new_alteration_id
from app.service.runtime.tasks import Tasks, off_loop

logger = logging.getLogger(__name__)


def no_check() -> None:
    """Refuse nothing."""


class AlterQuotas:
    """Answers ``POST /quotas/alterations``."""

    def __init__(
        self,
        context: AlterContext,
        admin: ClientQuotaAdmin,
        barrier: Barrier,
        tasks: Tasks,
    ) -> None:
        self.large = context.large
        self._policy = context.policy
        self._journal = context.journal
        self._admin = admin
        self._present = barrier.present
        self._intents = Intents(context, barrier)
        self._sending = AlterExecutor(context, admin, tasks)
        self._tasks = tasks
        self._image = context.image

    async def alter(
        self, command: AlterCommand, check: Callable[[], None] = no_check
    ) -> AlterationReport:
        """Alter, or only check; one result for each entity.

        Args:
            command: Who asks for what.
            check: Raises where a request that is no replay is refused, before it is looked at.

        Raises:
            PolicyViolationError: The policy forbids some of it; nothing was looked up or sent.
            InvalidRequestError: A rule is broken, by our judgement or the broker's.
            ExpectationFailedError: An expected value does not hold; nothing was applied.
            EntityBusyError: Another alteration of an entity is in flight.
            NotSentError: The cluster or the audit log cannot be reached; nothing was sent.
            OutcomeNotRecordedError: The cluster has answered; the record is not written yet.
            UnknownOutcomeError: Sent, and no definite answer.
            TooManyRequestsError: The broker throttles, or the caller has enough in progress.
        """
        command = await self._policy.admitted(command)
        replay = await self.replay(command)
        if replay is not None:
            return replay
        check()
        judgement = await self._judge(command)
        return await self._tasks.run(self._run(command, judgement))

    async def replay(self, command: AlterCommand) -> AlterationReport | None:
        """Return the answer to an idempotency key that was used before, null for a new one.

        It is what the log has now. Raises what ``replayed_report`` raises.
        """
        if command.key is None or command.validate_only:
            return None
        claim = command.key.claim(command.caller.principal, await self._admin.cluster_id())
        stored = await self._journal.stored_key(claim.key_hash)
        return None if stored is None else await self._replay(command, stored)

    async def _replay(self, command: AlterCommand, stored: StoredKey) -> AlterationReport:
        record = await self._journal.alteration(stored.alteration_id)
        return replayed_report(command, stored, record)

    async def confirm(self, command: AlterCommand) -> AlterationReport:
        """Record that a plan without changes was applied, if what it rests on still holds.

        Raises:
            ExpectationFailedError: Something that the plan rests on has changed.
            NotSentError: The cluster or the audit log cannot be reached.
        """
        return await self._tasks.run(self._confirm(command))

    async def _confirm(self, command: AlterCommand) -> AlterationReport:
        request = await self._request(command, _NOTHING)
        beside = command.plan.beside if command.plan else {}
        if beside:
            values = await self._intents.verified_values(request, beside=beside)
            failed = await off_loop(len(beside), moved_beside, beside, values)
            if failed:
                raise ExpectationFailedError(NOT_AS_EXPECTED, violations=failed)
        try:
            async with self._intents.committed(command, request):
                return AlterationReport(
                    request.alteration_id, request.cluster_id, validate_only=False, results=()
                )
        except KeyTakenError as error:
            return await self._replay(command, error.stored)

    async def _judge(self, command: AlterCommand) -> Judgement:
        number = len(command.alterations)
        judgement = await off_loop(number, judge, command.alterations, {})
        if judgement.needs_stored:
            entities = [alteration.entity for alteration in command.alterations]
            stored = await self._present.read(entities)
            judgement = await off_loop(number, judge, command.alterations, stored)
        if command.violations:
            judgement = replace(judgement, violations=command.violations + judgement.violations)
        judgement.raise_violations(all_or_nothing=command.all_or_nothing)
        return judgement

    async def _run(self, command: AlterCommand, judgement: Judgement) -> AlterationReport:
        with self.large.work(command.caller.principal, len(command.alterations)):
            return await self._alter(command, judgement)

    async def _alter(self, command: AlterCommand, judgement: Judgement) -> AlterationReport:
        request = await self._request(command, judgement)
        try:
            conclusion = await (self._validate if command.validate_only else self._change)(
                command, request
            )
        except KeyTakenError as error:
            return await self._replay(command, error.stored)
        except EntityBusyError:
            replay = await self.replay(command)
            if replay is None:
                raise
            return replay  # what it waited for was the first request with its own key
        report = AlterationReport(
            request.alteration_id,
            request.cluster_id,
            command.validate_only,
            in_order({**conclusion.rejected, **conclusion.results}),
            await self._wait(command, conclusion),
        )
        raise_unless_done(report, conclusion, all_or_nothing=command.all_or_nothing)
        return report

    async def _request(self, command: AlterCommand, judgement: Judgement) -> AuditRequest:
        cluster_id = await self._admin.cluster_id()
        broker_id = await self._admin.preferred_broker()
        number = len(judgement.alterations)
        return await off_loop(number, _audit_request, command, judgement, cluster_id, broker_id)

    async def _validate(self, command: AlterCommand, request: AuditRequest) -> AuditConclusion:
        """Check everything as a real alteration would, without locks and without a change."""
        request = replace(request, decision=await command.confirmed_evidence())
        request, failed = await self._as_expected(command, request)
        conclusion = unexpected(request, failed) if failed else await self._sending.judge(request)
        await self._journal.record_final(request, conclusion.results)
        if conclusion.error is not None:
            raise conclusion.error
        return replace(conclusion, rejected=request.local_refusals)

    async def _change(self, command: AlterCommand, request: AuditRequest) -> AuditConclusion:
        async with self._intents.committed(command, request) as intent:
            validate_first = command.all_or_nothing and len(request.entities) > 1
            async with self._sending.turn(request, validate_first=validate_first):
                request, conclusion = await self._conclude(
                    command, intent, validate_first=validate_first
                )
            conclusion = replace(conclusion, rejected=request.local_refusals)
            try:
                await self._sending.record(request, conclusion)
            except OutcomeNotRecordedError as error:
                await self._renew_image(error.results or ())
                raise
            await self._renew_image(conclusion.results.values())
        return conclusion

    async def _conclude(
        self, command: AlterCommand, intent: Intent, *, validate_first: bool
    ) -> tuple[AuditRequest, AuditConclusion]:
        try:
            request, failed = await self._as_expected(command, intent.request, intent)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was handed over
            return intent.request, not_sent(intent.request, error)
        if failed:
            return request, unexpected(request, failed)
        return request, await self._sending.send(
            request, send_by=intent.send_by, validate_first=validate_first
        )

    async def _renew_image(self, results: Collection[AlterationResult]) -> None:
        """Let the next answers from the image show what was applied, and what may have been."""
        if any(result.outcome is Outcome.UNKNOWN for result in results):
            self._image.forget()
        if after := applied_quotas(results):
            await self._image.note(after)

    async def _as_expected(
        self, command: AlterCommand, request: AuditRequest, intent: Intent | None = None
    ) -> tuple[AuditRequest, Sequence[Violation]]:
        """Return the request with what truly held before, and what was not to be expected.

        What a plan rests on is looked at once the intent is committed.
        """
        beside = command.plan.beside if command.plan and intent else {}
        values = await self._intents.verified_values(request, intent, beside=beside)
        request = await off_loop(len(values), with_before, request, values)
        expected, precondition = command.expected, command.precondition
        failed: Sequence[Violation] = ()
        if expected or precondition is not None:
            before = {entity.ordinal: entity.before or {} for entity in request.entities}
            failed = await off_loop(
                len(expected), failed_expectations, expected, before, precondition
            )
        moved = await off_loop(len(beside), moved_beside, beside, values)
        return request, [*failed, *moved]

    async def _wait(self, command: AlterCommand, conclusion: AuditConclusion) -> bool | None:
        """Wait until the brokers that count show what was applied; null where nobody looks."""
        after = applied_quotas(conclusion.results.values())
        if command.wait is Wait.NONE or not after:
            return None
        within_s = command.wait_ms / 1000
        brokers: Sequence[int | None] = (conclusion.broker_id,)
        began = time.monotonic()
        readable = False
        try:
            if command.wait is Wait.ALL_BROKERS:
                brokers = await self._admin.live_brokers(timeout_s=within_s)
            left_s = within_s - (time.monotonic() - began)
            readable = await self._present.until_readable(after, within_s=left_s, brokers=brokers)
        except NotSentError:
            pass
        except Exception:  # whatever it is, the change was applied, and the caller must learn it
            logger.exception("whether a change is readable was not found out")
        await self._image.note(after)
        return readable


_NOTHING: Final = Judgement((), (), (), needs_stored=False)


def _refused_locally(judgement: Judgement) -> dict[int, AlterationResult]:
    """Return the results of the entities that break a rule, each with its first violation.

    What holds is read behind the barrier.
    """
    refused: dict[int, AlterationResult] = {}
    for violation in judgement.violations:
        if violation.index is not None and violation.index not in refused:
            entity = judgement.alterations[violation.index].entity
            error = KafkaRefusal(violation.kafka_error, violation.detail)
            refused[violation.index] = AlterationResult(
                entity, Outcome.REFUSED, changed=False, error=error
            )
    return refused


def _audit_request(
    command: AlterCommand, judgement: Judgement, cluster_id: str, broker_id: int
) -> AuditRequest:
    """Return what may be sent under a new id, and what our own rules refuse of it."""
    refused = {violation.index for violation in judgement.violations}
    return AuditRequest(
        alteration_id=new_alteration_id(),
        cluster_id=cluster_id,
        caller=command.caller,
        action="validate" if command.validate_only else command.action,
        request_id=command.request_id,
        entities=tuple(
            AuditEntity(ordinal, alteration, warnings=judgement.warnings[ordinal])
            for ordinal, alteration in enumerate(judgement.alterations)
            if ordinal not in refused
        ),
        local_refusals=_refused_locally(judgement),
        reason=command.reason,
        decision=command.evidence,
        options=command.options,
        broker_id=broker_id,
    )
