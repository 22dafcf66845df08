"""Alter: judge, take the locks, run with a group, wait for the record, answer."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.alterations import AlterationResult, Outcome, Quotas, failed_read_set
from app.domain.authorization import Operation
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    ExpectationFailedError,
    NotSentError,
    OutcomeNotRecordedError,
    Sent,
)
from app.domain.validation import judge
from app.service.alterations.pipeline import AlterPipeline, look_at
from app.service.alterations.results import (
    NOT_AS_EXPECTED,
    applied_quotas,
    in_order,
    raise_unless_done,
    replayed,
)
from app.service.alterations.write_ahead import EntityLocks
from app.service.auth.actors import Actor, RefusedAtTheActError, refused_by
from app.service.auth.authorize import NOT_AUTHORIZED, NoPolicy, PolicyGuard, lacks
from app.service.auth.denials import requested_change
from app.service.ports.alterations import Alteration, AlterationRecord, Conclusion, Wait
from app.service.ports.audit_log import KeyTakenError, StoredKey
from app.service.ports.brokers import ModelNow, kafka_rules
from app.service.queries.resolve import QuotaImage
from app.service.queries.temporary import TemporaryImage
from app.service.runtime.clock import new_alteration_id
from app.service.runtime.tasks import off_loop

logger = logging.getLogger(__name__)


CountEntities = Callable[[str, int], AbstractContextManager[None]]
"""Counts so many entities of a principal as in progress until the block ends.

It raises ``TooManyRequestsError`` where the principal has enough.
"""


def uncounted(_principal: str, _number: int) -> AbstractContextManager[None]:
    """Let everybody have any number in progress."""
    return nullcontext()


def no_check() -> None:
    """Refuse nothing."""


@dataclass(eq=False)
class AlterQuotas:
    """Answers ``POST /quotas/alterations``.

    Attributes:
        locks: Of everybody who alters in this process.
        in_progress: Counts the entities of each principal.
        model: Returns by what brokers decide about quotas.
    """

    pipeline: AlterPipeline
    image: QuotaImage
    temporary: TemporaryImage
    locks: EntityLocks
    policy: PolicyGuard = field(default_factory=NoPolicy)
    in_progress: CountEntities = uncounted
    model: ModelNow = kafka_rules

    def __post_init__(self) -> None:
        """Read from the log that the pipeline writes."""
        self._journal = self.pipeline.journal

    async def alter(
        self, actor: Actor, alteration: Alteration, check: Callable[[], None] = no_check
    ) -> AlterationRecord:
        """Alter, or only check; one result for each entity.

        Args:
            actor: Who acts.
            alteration: Who asks for what.
            check: Raises where a request that is no replay is refused, before it is looked at.

        Raises:
            PolicyViolationError: The policy forbids some of it; nothing was looked up or sent.
            RefusedAtTheActError: A broker refuses to the caller itself what seemed to be allowed.
            InvalidRequestError: A rule is broken, by our judgement or the broker's.
            ExpectationFailedError: An expected value does not hold; nothing was applied.
            EntityBusyError: Another alteration of an entity is in flight.
            NotSentError: The cluster or the audit log cannot be reached; nothing was sent.
            OutcomeNotRecordedError: The cluster has answered; the record is not written yet.
            UnknownOutcomeError: Sent, and no definite answer.
            TooManyRequestsError: The broker throttles, or the caller has enough in progress.
        """
        alteration = await self.policy.admitted(alteration)
        replay = await self.replay(actor, alteration)
        if replay is not None:
            return replay
        check()
        judged = await self._judge(actor, alteration)
        with _refusals_of(actor, alteration):
            return await actor.tasks.run(self._run(actor, judged))

    async def replay(self, actor: Actor, alteration: Alteration) -> AlterationRecord | None:
        """Return the answer to an idempotency key that was used before, null for a new one.

        It is what the log has now. Raises what ``replayed`` raises.
        """
        if alteration.key is None or alteration.validate_only:
            return None
        cluster_id = await actor.admin.cluster_id()
        key_hash = alteration.key.hash_for(alteration.caller.principal, cluster_id)
        stored = await self._journal.stored_key(key_hash)
        if stored is None:
            return None
        with _refusals_of(actor, alteration):
            return await self._replay(alteration, stored)

    async def _replay(self, alteration: Alteration, stored: StoredKey) -> AlterationRecord:
        record = await self._journal.alteration(stored.alteration_id)
        return replayed(alteration, stored, record)

    async def confirm(self, actor: Actor, alteration: Alteration) -> AlterationRecord:
        """Record that a plan without changes was applied, if what it rests on still holds.

        Raises:
            ExpectationFailedError: Something that the plan rests on has changed.
            NotSentError: The cluster or the audit log cannot be reached.
        """
        return await actor.tasks.run(self._confirm(actor, alteration))

    async def _confirm(self, actor: Actor, alteration: Alteration) -> AlterationRecord:
        alteration = self.pipeline.begun(actor, await self._identified(actor, alteration))
        look = look_at(actor.barrier, [alteration])
        values = await self.pipeline.values(actor.barrier, look)
        beside = alteration.plan.beside if alteration.plan else {}
        failed = await off_loop(len(beside), failed_read_set, beside, values)
        if failed:
            raise ExpectationFailedError(NOT_AS_EXPECTED, violations=failed)
        (committed,) = await self.pipeline.commit_intents([await alteration.confirmed()])
        if isinstance(committed, KeyTakenError):
            return await self._replay(alteration, committed.stored)
        if isinstance(committed, Exception):
            raise committed
        return AlterationRecord(alteration, {})

    async def _judge(self, actor: Actor, alteration: Alteration) -> Alteration:
        """Refuse what breaks a rule, before anything of it is in the log.

        What only stored values excuse is judged again behind the barrier: they may be gone.
        """
        changes, number = alteration.changes, len(alteration.changes)
        judgement = await off_loop(number, judge, changes, {})
        needs_stored = judgement.needs_stored
        if needs_stored:
            stored = await actor.barrier.present.read([change.entity for change in changes])
            judgement = await off_loop(number, judge, changes, stored)
        if alteration.violations:
            violations = alteration.violations + judgement.violations
            judgement = replace(judgement, violations=violations)
        judgement.raise_violations(all_or_nothing=alteration.all_or_nothing)
        judged = alteration.judged(judgement, is_unjudged=needs_stored)
        model = await self.model()
        if model is KAFKA_RULES:  # nothing is ignored
            return judged
        return await off_loop(number, judged.warned_of_ignored, model)

    async def _run(self, actor: Actor, alteration: Alteration) -> AlterationRecord:
        number = len(alteration.changes) + len(alteration.local_refusals)
        with self.in_progress(alteration.caller.principal, number):
            return await self._alter(actor, await self._identified(actor, alteration))

    async def _alter(self, actor: Actor, alteration: Alteration) -> AlterationRecord:
        try:
            work = self._validate if alteration.validate_only else self._change
            conclusion = await work(actor, alteration)
        except KeyTakenError as error:
            return await self._replay(alteration, error.stored)
        except EntityBusyError:
            replay = await self.replay(actor, alteration)
            if replay is None:
                raise
            return replay  # what it waited for was the first request with its own key
        record = AlterationRecord(
            alteration,
            in_order({**conclusion.rejected, **conclusion.results}),
            readable=await self._wait(actor, alteration, conclusion),
        )
        raise_unless_done(record, conclusion, all_or_nothing=alteration.all_or_nothing)
        return record

    async def _identified(self, actor: Actor, alteration: Alteration) -> Alteration:
        cluster_id = await actor.admin.cluster_id()
        broker_id = await actor.admin.preferred_broker()
        return alteration.identified(new_alteration_id(), cluster_id, broker_id)

    async def expire(self, actor: Actor, alteration: Alteration) -> Conclusion:
        """End what another alteration has set for a time; no policy bounds that.

        Where it raises a sum to more than a budget allows, its results have warnings.

        Raises:
            ExpectationFailedError: What it ends is not due any more; nothing is in the log of it.
            QuotaError: As ``alter``.
        """
        counted = self.policy.within_budgets(alteration)
        identified = await self._identified(actor, counted)
        return await actor.tasks.run(self._change(actor, identified))

    async def _validate(self, actor: Actor, alteration: Alteration) -> Conclusion:
        return await self.pipeline.validate(actor, await alteration.confirmed())

    async def _change(self, actor: Actor, alteration: Alteration) -> Conclusion:
        entities = alteration.locked
        async with self.locks.hold(entities, alteration.alteration_id) as deadline:
            confirmed = await alteration.confirmed()
            conclusion = await self._run_when_free(actor, confirmed, deadline)
            await self._recorded(alteration, conclusion)
        return conclusion

    async def _run_when_free(
        self, actor: Actor, alteration: Alteration, deadline: float
    ) -> Conclusion:
        """Run, waiting until the deadline for other processes that will soon be done."""
        pause = _FIRST_RETRY_S
        while True:
            try:
                return await self.pipeline.run(actor, self.pipeline.begun(actor, alteration))
            except EntityBusyError as error:
                held_for_s = error.retry_after_s or 0
                if time.monotonic() + (held_for_s if held_for_s > _SOON_S else pause) > deadline:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
            pause = min(pause * 2, _LONGEST_RETRY_S)

    async def _recorded(self, alteration: Alteration, conclusion: Conclusion) -> None:
        """Wait for the record; what was applied shows in the image in any case.

        Raises:
            OutcomeNotRecordedError: The cluster has answered; the record is not written yet.
        """
        results = conclusion.results.values()
        await self._renew_image(results)  # while the log is being written
        written = await self.pipeline.outcomes.is_written(conclusion)
        await self.pipeline.priority.defer()
        if alteration.expires_at is not None or any(
            change.entity in self.temporary.values for change in alteration.changes
        ):
            await self.temporary.reload()
        unknown = any(each.outcome is Outcome.UNKNOWN for each in results)
        if not written and conclusion.sent and not unknown:
            raise OutcomeNotRecordedError(
                "The cluster has answered; its answer is not in the audit log yet and will be "
                "written as soon as the log takes it. Ask for the alteration instead of repeating.",
                sent=Sent.YES,
                alteration_id=conclusion.alteration_id,
                results=tuple(in_order(conclusion.results).values()),
            )
        self.pipeline.failpoints.reach("after_conclusion")

    async def _renew_image(self, results: Collection[AlterationResult]) -> None:
        """Let the next answers from the image show what was applied, and what may have been."""
        if any(result.outcome is Outcome.UNKNOWN for result in results):
            self.image.forget()
        if after := applied_quotas(results):
            await self.image.note(after)

    async def _wait(
        self, actor: Actor, alteration: Alteration, conclusion: Conclusion
    ) -> bool | None:
        """Wait until the brokers that count show what was applied; null where nobody looks."""
        after = applied_quotas(conclusion.results.values())
        if alteration.wait is Wait.NONE or not after:
            return None
        within_s = alteration.wait_ms / 1000
        shows = False
        if alteration.wait is Wait.ALL_BROKERS:
            shows = await self._is_readable_everywhere(actor, after, within_s)
        elif conclusion.readable is not None:
            await asyncio.wait({conclusion.readable}, timeout=within_s)
            shows = conclusion.readable.done() and conclusion.readable.result()
        await self.image.note(after)
        return shows

    async def _is_readable_everywhere(self, actor: Actor, after: Quotas, within_s: float) -> bool:
        began = time.monotonic()
        try:
            brokers = await actor.admin.live_brokers(timeout_s=within_s)
            left_s = within_s - (time.monotonic() - began)
            present = actor.barrier.present
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


@contextmanager
def _refusals_of(actor: Actor, alteration: Alteration) -> Iterator[None]:
    """Make a refused alteration the caller's own refusal where the caller is logged in.

    Raises:
        RefusedAtTheActError: The broker refused the caller to alter.
    """
    try:
        yield
    except BrokerError as error:
        if not (actor.is_logged_in and error.kafka_error == NOT_AUTHORIZED) or (
            error.results is None
        ):
            raise
        raise RefusedAtTheActError(
            lacks(actor.caller.principal, Operation.ALTER_CONFIGS),
            kafka_error=NOT_AUTHORIZED,
            sent=error.sent,
            violations=error.violations,
            alteration_id=error.alteration_id,
            results=error.results,
            replayed=error.replayed,
            evidence={**alteration.evidence, **refused_by("AlterClientQuotas")},
            read=requested_change(alteration.changes, alteration.reason),
        ) from error
