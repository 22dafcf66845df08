"""Alter: judge, take the locks, run with a group, wait for the record, answer."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from app.domain.alterations import (
    AlterationResult,
    KafkaRefusal,
    Outcome,
    Quotas,
    moved_beside,
)
from app.domain.errors import (
    EntityBusyError,
    ExpectationFailedError,
    NotSentError,
    OutcomeNotRecordedError,
    Sent,
)
from app.domain.validation import Judgement, judge
from app.service.alterations.barrier import Barrier
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
from app.service.alterations.pipeline import (
    AlterPipeline,
    Concluded,
    Ready,
    alterations_of,
    as_expected,
    entities_to_read,
    judgement,
    unexpected,
)
from app.service.alterations.write_ahead import (
    AlterContext,
    locks_of,
    send_within_s,
)
from app.service.ports.audit_log import (
    AuditEntity,
    AuditRequest,
    Conclusion,
    Intent,
    KeyTakenError,
    StoredKey,
)
from app.service.ports.brokers import ClientQuotaAdmin
from app.service.ports.metrics import Phase
from app.service.runtime.clock import new_alteration_id
from app.service.runtime.tasks import Tasks, off_loop, timed

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
        self._context = context
        self._journal = context.journal
        self._admin = admin
        self._barrier = barrier
        self._pipeline = AlterPipeline(context, admin, barrier, tasks)
        self._tasks = tasks

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
        command = await self._context.policy.admitted(command)
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
        ready = Ready(command, self._intent(command, request))
        values = await self._verified_values(ready)
        beside = command.plan.beside if command.plan else {}
        failed = await off_loop(len(beside), moved_beside, beside, values)
        if failed:
            raise ExpectationFailedError(NOT_AS_EXPECTED, violations=failed)
        (committed,) = await self._pipeline.commit_intents([await self._confirmed(ready)])
        if isinstance(committed, KeyTakenError):
            return await self._replay(command, committed.stored)
        if isinstance(committed, Exception):
            raise committed
        return AlterationReport(
            request.alteration_id, request.cluster_id, validate_only=False, results=()
        )

    async def _judge(self, command: AlterCommand) -> Judgement:
        number = len(command.alterations)
        judgement = await off_loop(number, judge, command.alterations, {})
        if judgement.needs_stored:
            entities = [alteration.entity for alteration in command.alterations]
            stored = await self._barrier.present.read(entities)
            judgement = await off_loop(number, judge, command.alterations, stored)
        if command.violations:
            judgement = replace(judgement, violations=command.violations + judgement.violations)
        judgement.raise_violations(all_or_nothing=command.all_or_nothing)
        return judgement

    async def _run(self, command: AlterCommand, judgement: Judgement) -> AlterationReport:
        with self.large.work(command.caller.principal, len(command.alterations)):
            return await self._alter(command, judgement)

    async def _alter(self, command: AlterCommand, judged: Judgement) -> AlterationReport:
        request = await self._request(command, judged)
        try:
            work = self._validate if command.validate_only else self._change
            conclusion, readable = await work(command, request)
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
            await self._wait(command, conclusion, readable),
        )
        raise_unless_done(report, conclusion, all_or_nothing=command.all_or_nothing)
        return report

    async def _request(self, command: AlterCommand, judgement: Judgement) -> AuditRequest:
        cluster_id = await self._admin.cluster_id()
        broker_id = await self._admin.preferred_broker()
        number = len(judgement.alterations)
        return await off_loop(number, _audit_request, command, judgement, cluster_id, broker_id)

    async def _validate(
        self, command: AlterCommand, request: AuditRequest
    ) -> tuple[Conclusion, None]:
        """Check everything as a real alteration would, without locks and without a change."""
        ready = await self._confirmed(Ready(command, self._intent(command, request)))
        values = await self._verified_values(ready)
        request, failed = await as_expected(command, ready.intent.request, values, with_plan=False)
        if failed:
            conclusion = unexpected(request, failed)
        else:
            answer = await self._admin.alter_client_quotas(
                alterations_of(request), validate_only=True, broker_id=request.broker_id
            )
            conclusion = await off_loop(len(request.entities), judgement, request, answer)
        await self._journal.record_final(request, conclusion.results)
        return replace(conclusion, rejected=request.local_refusals), None

    async def _verified_values(self, ready: Ready) -> Quotas:
        broker_id = ready.intent.request.broker_id
        if broker_id is None:
            raise NotSentError("No broker was chosen.", code="cluster-unreachable")
        with timed(self._context.metrics, Phase.BARRIER):
            read = await self._barrier.read([*entities_to_read(ready)], broker_id=broker_id)
        return read.values

    def _intent(self, command: AlterCommand, request: AuditRequest) -> Intent:
        key, plan = command.key, command.plan
        locks = locks_of(request, plan.beside if plan else ())
        tables = 2 + (plan is not None) + (command.supersedes is not None)
        return Intent(
            request,
            self._context.owner,
            key.claim(request.caller.principal, request.cluster_id) if key else None,
            command.supersedes,
            plan,
            locks=locks,
            send_within_s=send_within_s(
                len(locks),
                self._context.patience,
                tables=tables,
                barrier_s=self._barrier.deadline.seconds,
            ),
        )

    async def _confirmed(self, ready: Ready) -> Ready:
        """Return it with evidence that is young enough; raise the refusal where there is none."""
        decision = await ready.command.confirmed_evidence()
        intent = ready.intent
        return replace(
            ready, intent=replace(intent, request=replace(intent.request, decision=decision))
        )

    async def _change(
        self, command: AlterCommand, request: AuditRequest
    ) -> tuple[Conclusion, "asyncio.Future[bool] | None"]:
        context, began = self._context, time.monotonic()
        context.outcomes.refuse_if_full()
        ready = Ready(command, self._intent(command, request))
        try:
            entities = ready.intent.locks.values()
            async with context.locks.hold(entities, request.alteration_id) as deadline:
                context.metrics.phase_took(Phase.SLOT_WAIT, time.monotonic() - began)
                context.failpoints.reach("before_intent")
                concluded = await self._run_when_free(await self._confirmed(ready), deadline)
                await self._recorded(concluded)
        except EntityBusyError:
            context.metrics.slot_was_taken()
            raise
        return concluded.conclusion, concluded.readable

    async def _run_when_free(self, ready: Ready, deadline: float) -> Concluded:
        """Run, waiting until the deadline for other processes that will soon be done."""
        pause = _FIRST_RETRY_S
        while True:
            try:
                return await self._pipeline.run(replace(ready, at=time.monotonic()))
            except EntityBusyError as error:
                held_for_s = error.retry_after_s or 0
                if time.monotonic() + (held_for_s if held_for_s > _SOON_S else pause) > deadline:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
            pause = min(pause * 2, _LONGEST_RETRY_S)

    async def _recorded(self, concluded: Concluded) -> None:
        """Wait for the record; what was applied shows in the image in any case.

        Raises:
            OutcomeNotRecordedError: The cluster has answered; the record is not written yet.
        """
        conclusion, context = concluded.conclusion, self._context
        results = conclusion.results.values()
        with timed(context.metrics, Phase.TX2):
            written = await context.outcomes.is_written(concluded.recorded, len(results))
        await self._renew_image(results)
        unknown = any(each.outcome is Outcome.UNKNOWN for each in results)
        if not written and conclusion.sent and not unknown:
            raise OutcomeNotRecordedError(
                "The cluster has answered; its answer is not in the audit log yet and will be "
                "written as soon as the log takes it. Ask for the alteration instead of repeating.",
                sent=Sent.YES,
                alteration_id=conclusion.alteration_id,
                results=in_order(conclusion.results),
            )
        context.failpoints.reach("after_conclusion")

    async def _renew_image(self, results: Collection[AlterationResult]) -> None:
        """Let the next answers from the image show what was applied, and what may have been."""
        if any(result.outcome is Outcome.UNKNOWN for result in results):
            self._context.image.forget()
        if after := applied_quotas(results):
            await self._context.image.note(after)

    async def _wait(
        self,
        command: AlterCommand,
        conclusion: Conclusion,
        readable: "asyncio.Future[bool] | None",
    ) -> bool | None:
        """Wait until the brokers that count show what was applied; null where nobody looks."""
        after = applied_quotas(conclusion.results.values())
        if command.wait is Wait.NONE or not after:
            return None
        within_s = command.wait_ms / 1000
        shows = False
        if command.wait is Wait.ALL_BROKERS:
            shows = await self._is_readable_everywhere(after, within_s)
        elif readable is not None:
            await asyncio.wait({readable}, timeout=within_s)
            shows = readable.done() and readable.result()
        await self._context.image.note(after)
        return shows

    async def _is_readable_everywhere(self, after: Quotas, within_s: float) -> bool:
        began = time.monotonic()
        try:
            brokers = await self._admin.live_brokers(timeout_s=within_s)
            left_s = within_s - (time.monotonic() - began)
            present = self._barrier.present
            return await present.until_readable(after, within_s=left_s, brokers=brokers)
        except NotSentError:
            return False
        except Exception:  # whatever it is, the change was applied, and the caller must learn it
            logger.exception("whether a change is readable was not found out")
            return False


_FIRST_RETRY_S: Final = 0.02
_LONGEST_RETRY_S: Final = 0.25

_SOON_S: Final = 1.0
"""What the log says of an entity whose holder is at work: it may be free at any time."""

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
