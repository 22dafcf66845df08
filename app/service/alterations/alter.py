"""Alter: validate, take the locks, record the intent, send, record the outcome, answer."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.domain.alterations import AlterationResult, Outcome
from app.domain.errors import (
    EntityBusyError,
    ExpectationFailedError,
    OutcomeNotRecordedError,
    Violation,
)
from app.domain.validation import Judgement, judge
from app.service.alterations.command import (
    NOT_AS_EXPECTED,
    AlterationReport,
    AlterCommand,
    Wait,
    audit_request,
    expectation_failed,
    failed_expectations,
    moved_beside,
    raise_violations,
    reasons,
    whole_reasons,
)
from app.service.alterations.current_values import CurrentValues, is_readable
from app.service.alterations.results import Replays, applied_quotas, in_order, raise_unless_done
from app.service.alterations.sending import AlterExecutor, Concluded, not_sent, unexpected
from app.service.alterations.write_ahead import Intents, with_before
from app.service.auth.authorize import PolicyGuard
from app.service.ports.audit_log import AuditConclusion, AuditRequest, Intent, KeyTakenError
from app.service.ports.brokers import ClientQuotaAdmin
from app.service.queries.image import QuotaImage
from app.service.runtime.tasks import LargeRequests, Tasks, off_loop


@dataclass(frozen=True, slots=True)
class AlterDeps:
    """What an alteration works with."""

    admin: ClientQuotaAdmin
    present: CurrentValues
    intents: Intents
    sending: AlterExecutor
    replays: Replays
    tasks: Tasks
    image: QuotaImage
    policy: PolicyGuard
    large: LargeRequests


def no_check() -> None:
    """Refuse nothing."""


class AlterQuotas:
    """Answers ``POST /quotas/alterations``."""

    def __init__(self, deps: AlterDeps) -> None:
        self._deps = deps
        self.large = deps.large

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
        command = await self._deps.policy.admitted(command)
        replay = await self._deps.replays.find(command)
        if replay is not None:
            return replay
        check()
        judgement = await self._judge(command)
        return await self._deps.tasks.run(self._run(command, judgement))

    async def replay(self, command: AlterCommand) -> AlterationReport | None:
        """Return the answer to an idempotency key that was used before, null for a new one.

        Raises:
            QuotaError: As ``Replays.find``.
        """
        return await self._deps.replays.find(command)

    async def confirm(self, command: AlterCommand) -> AlterationReport:
        """Record that a plan without changes was applied, if what it rests on still holds.

        Raises:
            ExpectationFailedError: Something that the plan rests on has changed.
            NotSentError: The cluster or the audit log cannot be reached.
        """
        return await self._deps.tasks.run(self._confirm(command))

    async def _confirm(self, command: AlterCommand) -> AlterationReport:
        request = await self._request(command, _NOTHING)
        beside = command.plan.beside if command.plan else {}
        if beside:
            values = await self._deps.intents.verified_values(request, beside=beside)
            failed = await off_loop(len(beside), moved_beside, beside, values)
            if failed:
                raise ExpectationFailedError(NOT_AS_EXPECTED, violations=failed)
        try:
            async with self._deps.intents.committed(command, request):
                return AlterationReport(
                    request.alteration_id, request.cluster_id, validate_only=False, results=()
                )
        except KeyTakenError as error:
            return await self._deps.replays.replay(command, error.stored)

    async def _judge(self, command: AlterCommand) -> Judgement:
        number = len(command.alterations)
        judgement = await off_loop(number, judge, command.alterations, {})
        if judgement.needs_stored:
            entities = [alteration.entity for alteration in command.alterations]
            stored = await self._deps.present.read(entities)
            judgement = await off_loop(number, judge, command.alterations, stored)
        if command.violations:
            judgement = replace(judgement, violations=command.violations + judgement.violations)
        raise_violations(judgement, all_or_nothing=command.all_or_nothing)
        return judgement

    async def _run(self, command: AlterCommand, judgement: Judgement) -> AlterationReport:
        with self.large.work(command.caller.principal, len(command.alterations)):
            return await self._alter(command, judgement)

    async def _alter(self, command: AlterCommand, judgement: Judgement) -> AlterationReport:
        request = await self._request(command, judgement)
        if command.validate_only:
            request, sending = await self._validate(command, request)
        else:
            try:
                request, sending = await self._change(command, request)
            except KeyTakenError as error:
                return await self._deps.replays.replay(command, error.stored)
            except EntityBusyError:
                replay = await self._deps.replays.find(command)
                if replay is None:
                    raise
                return replay  # what it waited for was the first request with its own key
        report = AlterationReport(
            request.alteration_id,
            request.cluster_id,
            command.validate_only,
            in_order({**request.local_refusals, **sending.results}),
            await self._wait(command, sending),
        )
        raise_unless_done(report, sending, all_or_nothing=command.all_or_nothing)
        return report

    async def _request(self, command: AlterCommand, judgement: Judgement) -> AuditRequest:
        cluster_id = await self._deps.admin.cluster_id()
        broker_id = await self._deps.admin.preferred_broker()
        every = [alteration.entity for alteration in judgement.alterations]
        stored = await self._deps.present.read(every, broker_id)
        return await off_loop(
            len(every), audit_request, command, judgement, stored, cluster_id, broker_id
        )

    async def _validate(
        self, command: AlterCommand, request: AuditRequest
    ) -> tuple[AuditRequest, AuditConclusion]:
        """Check everything as a real alteration would, without locks and without a change."""
        values = await self._deps.intents.verified_values(request)
        request = await off_loop(len(values), with_before, request, values)
        failed = await self._failed_expectations(command, request)
        if failed:
            await self._deps.sending.keep_refused_expectations(request, reasons(failed))
            raise expectation_failed(failed, request)
        return request, await self._deps.sending.validate(request)

    async def _change(
        self, command: AlterCommand, request: AuditRequest
    ) -> tuple[AuditRequest, AuditConclusion]:
        async with self._deps.intents.committed(command, request) as intent:
            request, sending = await self._send(command, intent)
        return request, sending

    async def _send(
        self, command: AlterCommand, intent: Intent
    ) -> tuple[AuditRequest, AuditConclusion]:
        sending = self._deps.sending
        validate_first = command.all_or_nothing and len(intent.request.entities) > 1
        async with sending.turn(intent.request, validate_first=validate_first):
            request, concluded = await self._conclude(
                command, intent, validate_first=validate_first
            )
        try:
            report = await sending.record(request, concluded)
        except OutcomeNotRecordedError as error:
            await self._renew_image(error.results or ())
            raise
        await self._renew_image(report.results.values())
        return request, report

    async def _conclude(
        self, command: AlterCommand, intent: Intent, *, validate_first: bool
    ) -> tuple[AuditRequest, Concluded]:
        try:
            request, failed = await self._as_expected(command, intent)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was handed over
            return intent.request, not_sent(intent.request, error)
        if failed:
            why = reasons(failed) or whole_reasons(failed, request.entities)
            return request, unexpected(request, why, expectation_failed(failed, request))
        return request, await self._deps.sending.send(
            request, send_by=intent.send_by, validate_first=validate_first
        )

    async def _renew_image(self, results: Collection[AlterationResult]) -> None:
        """Let the next answers from the image show what was applied, and what may have been."""
        if any(result.outcome is Outcome.UNKNOWN for result in results):
            self._deps.image.forget()
        if after := applied_quotas(results):
            await self._deps.image.note(after)

    async def _as_expected(
        self, command: AlterCommand, intent: Intent
    ) -> tuple[AuditRequest, Sequence[Violation]]:
        """Return the request with what truly held before, and what was not to be expected."""
        intents = self._deps.intents
        beside = command.plan.beside if command.plan else {}
        values = await intents.verified_values(intent.request, intent, beside=beside)
        request = await off_loop(len(values), with_before, intent.request, values)
        failed = await self._failed_expectations(command, request)
        moved = await off_loop(len(beside), moved_beside, beside, values)
        return request, [*failed, *moved]

    async def _failed_expectations(
        self, command: AlterCommand, request: AuditRequest
    ) -> Sequence[Violation]:
        expected, precondition = command.expected, command.precondition
        if not expected and precondition is None:
            return ()
        entities = request.entities
        return await off_loop(len(expected), failed_expectations, expected, entities, precondition)

    async def _wait(self, command: AlterCommand, sending: AuditConclusion) -> bool | None:
        after = applied_quotas(sending.results.values())
        if command.wait is Wait.NONE or not after:
            return None
        readable = await is_readable(
            command, after, sending.broker_id, self._deps.admin, self._deps.present
        )
        await self._deps.image.note(after)
        return readable


_NOTHING: Final = Judgement((), (), (), needs_stored=False)
