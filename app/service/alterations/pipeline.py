"""Three stages for a group of alterations that begin together: commit the intents, execute, record.

One transaction takes the locks of all, one barrier and one read show what holds, one request to the
broker changes it, one transaction records what became of it. Alone nobody waits: the group in
flight is the timer. A broker forwards alterations to the controller one at a time, each for as long
as the metadata log lingers: about 27 ms. One request of many entities takes as long as that of a
single entity.
"""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from app.domain.alterations import (
    Outcome,
    Quotas,
    encoded_bytes,
)
from app.domain.errors import NotSentError, QuotaError
from app.domain.validation import MAX_CHANGES, MAX_ENCODED_BYTES
from app.metrics import AlterationMetrics, Phase
from app.service.alterations.barrier import Barrier, Look
from app.service.alterations.results import (
    Present,
    answered,
    applied_quotas,
    beside_values,
    fault_before_sending,
    held_back,
    if_applied,
    in_doubt,
    judgement,
    not_sent,
    not_to_be_sent,
)
from app.service.alterations.write_ahead import (
    OutcomeWriter,
    record_late_answer,
    send_within_s,
)
from app.service.auth.actors import Actor
from app.service.ports.alterations import Alteration, Conclusion, Failpoints, Wait
from app.service.ports.audit_log import AuditJournal, KeyTakenError, RecoveryJournal
from app.service.ports.brokers import ClientQuotaAdmin, Handover
from app.service.runtime.clock import USUAL, Patience, boot_time
from app.service.runtime.tasks import Batcher, Priority, off_loop

logger = logging.getLogger(__name__)


Executed = dict[Alteration, Conclusion]
"""Each alteration as it was executed, with what held before, and what is to be recorded of it."""


Acting = tuple[Actor, Alteration]
"""An alteration, and who acts."""

Groups = Batcher[Acting, Conclusion]
"""Those of one admin and broker, one after the other."""

MAX_BATCH_WAIT_S: Final = 1.0
"""A group that takes longer holds up nobody else."""

DEFER_S: Final = 0.02
"""How long answers wait for a group on its way to the broker, in seconds."""


@dataclass(eq=False)
class AlterPipeline:
    """Runs groups, one after the other for each admin and broker.

    The next group begins when the last one is executed, or after ``MAX_BATCH_WAIT_S``; it does not
    wait for records. Those of a group have one admin, so any of their actors acts for all.

    Attributes:
        owner: The name of this process in the log.
        priority: Groups go first until they are handed over. Who was answered by the last
            one waits: the loop has time for answers while the broker is at work.
        failpoints: None is armed outside of tests.
    """

    journal: AuditJournal
    recoveries: RecoveryJournal
    outcomes: OutcomeWriter
    metrics: AlterationMetrics
    owner: str
    patience: Patience = USUAL
    failpoints: Failpoints = field(default_factory=Failpoints)
    priority: Priority = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no group at all."""
        self.priority = Priority(DEFER_S)
        self._groups: WeakKeyDictionary[ClientQuotaAdmin, dict[int | None, Groups]]
        self._groups = WeakKeyDictionary()

    def begun(self, actor: Actor, alteration: Alteration) -> Alteration:
        """Return it as this process's, ready for a group now."""
        within_s = send_within_s(
            len(alteration.locked),
            self.patience,
            tables=2 + (alteration.plan is not None) + (alteration.supersedes is not None),
            transactions=2 + (alteration.expires_at is not None),
            barrier_s=actor.barrier.deadline.seconds,
        )
        return alteration.begun(self.owner, within_s, time.monotonic())

    async def run(self, actor: Actor, alteration: Alteration) -> Conclusion:
        """Run one alteration with whoever begins together with it.

        Raises:
            EntityBusyError: The log says that another process has one of the entities.
            KeyTakenError: The idempotency key was used before.
            NotSentError: The log cannot be written.
            QuotaError: The owners of a plan have changed, or a fault.
        """
        self.outcomes.refuse_if_full()
        self.failpoints.reach("before_intent")
        of_admin, broker_id = self._groups.setdefault(actor.admin, {}), alteration.broker_id
        if broker_id not in of_admin:
            run = partial(self._run, broker_id)
            of_admin[broker_id] = Batcher(run, AlterGroup, MAX_BATCH_WAIT_S)
        return await of_admin[broker_id].submit((actor, alteration))

    async def _run(
        self, broker_id: int | None, acting: Sequence[Acting]
    ) -> Sequence[Conclusion | Exception]:
        actor, group = acting[0][0], [alteration for _, alteration in acting]
        for each in group:
            self.metrics.phase_took(Phase.GROUP_WAIT, time.monotonic() - each.ready_at)
        look = look_at(actor.barrier, group)
        try:
            with self.priority.first() as handed_over:
                committed = await self.commit_intents(group)
                intents = [each for each in committed if isinstance(each, Alteration)]
                executed: Executed = {}
                if intents:
                    self.failpoints.reach("after_intent")
                    executed = await self.execute(actor, look, intents, handed_over)
        finally:
            look.seeing.cancel()
        concluded = self.record(actor, broker_id, executed)
        return [
            concluded[each.alteration_id] if isinstance(each, Alteration) else each
            for each in committed
        ]

    async def commit_intents(self, group: Sequence[Alteration]) -> Sequence[Alteration | Exception]:
        """Commit the intents of those who get their locks and keys; say why not of the others.

        The time is taken before the transaction: the database, which adds the same
        ``send_within_s``, takes its own later.
        """
        now = boot_time()
        intents = [replace(each, send_by=now + each.send_within_s) for each in group]
        self.failpoints.reach("intent_begun")
        answers: Sequence[Exception | None]
        try:
            with self.metrics.timed(Phase.TX1):
                answers = await self.journal.record_intents(intents)
        except Exception as fault:  # noqa: BLE001 - the log may have them
            answers = [fault] * len(intents)
        return [self._committed(*pair) for pair in zip(intents, answers, strict=True)]

    def _committed(self, intent: Alteration, answer: Exception | None) -> Alteration | Exception:
        if answer is None:
            if intent.supersedes is not None:
                self.metrics.superseded()
            return intent
        if isinstance(answer, NotSentError):
            self.metrics.audit_write_failed("tx1")
            may_be_there = answer.alteration_id is not None
        elif isinstance(answer, QuotaError | KeyTakenError):
            may_be_there = False
        else:
            answer, may_be_there = fault_before_sending(intent, answer), True
        if may_be_there:
            self.outcomes.write([not_sent(intent, answer)])
        return answer

    async def execute(
        self,
        actor: Actor,
        look: Look,
        group: Sequence[Alteration],
        handed_over: Callable[[], None],
    ) -> Executed:
        """Read behind a barrier, judge what was expected, and send what is left in one request.

        Args:
            actor: Who acts.
            look: At what the group alters, begun while its intents were being committed.
            group: Whose intents are committed.
            handed_over: Is called once nothing but the hand-over to the broker is left to do.
        """
        broker_id = look.broker_id
        executed: Executed = {}
        left = {each.alteration_id: each for each in group}
        try:
            self.metrics.barrier_may_take(actor.barrier.deadline.seconds)
            acknowledged = partial(self._acknowledged, group)
            values = await self.values(actor.barrier, look, acknowledged)
            for each in group:
                number = len(each.locked) + (len(values) if each.budgets else 0)
                judged = await off_loop(number, beside_values, each, values, with_plan=True)
                left[each.alteration_id] = judged.alteration
                self._count_budgets(judged)
                conclusion = not_to_be_sent(judged)
                if conclusion is not None:
                    executed[left.pop(each.alteration_id)] = conclusion
            refused = await self._refused(actor.admin, broker_id, left.values())
            ending = [each for each in left.values() if each.expires_at and each not in refused]
            if ending:
                await self.journal.record_returns(ending)
                self.failpoints.reach("returns_recorded")
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was handed over
            return executed | {each: not_sent(each, error) for each in left.values()}
        executed |= refused
        ready = [each for each in left.values() if each not in refused]
        if ready:
            self.failpoints.reach("before_send")
            handed_over()
            executed |= await self._hand_over(actor.admin, broker_id, ready)
        return executed

    async def validate(self, actor: Actor, alteration: Alteration) -> Conclusion:
        """Check everything as ``run`` does, without locks and without a change."""
        values = await self.values(actor.barrier, look_at(actor.barrier, [alteration]))
        number = len(alteration.changes) + (len(values) if alteration.budgets else 0)
        judged = await off_loop(number, beside_values, alteration, values, with_plan=False)
        self._count_budgets(judged)
        if judged.refusal is not None:
            raise judged.refusal
        alteration, conclusion = judged.alteration, not_to_be_sent(judged)
        if conclusion is None:
            answer = await actor.admin.alter_client_quotas(
                alteration.changes, validate_only=True, broker_id=alteration.broker_id
            )
            conclusion = await off_loop(len(alteration.changes), judgement, alteration, answer)
        await self.journal.record_final(alteration, conclusion.results)
        return replace(conclusion, rejected=alteration.local_refusals)

    def _count_budgets(self, judged: Present) -> None:
        if judged.alteration.budgets and judged.alteration.expires is None:
            self.metrics.judged_by_budgets(within=not judged.over_budget)

    async def values(
        self,
        barrier: Barrier,
        look: Look,
        acknowledged: Callable[[], Awaitable[Quotas]] | None = None,
    ) -> Quotas:
        """Return what holds behind a barrier of the entities that a look is at.

        Raises:
            NotSentError: It cannot be read in time.
        """
        with self.metrics.timed(Phase.BARRIER):
            read = await barrier.read_behind(look, acknowledged=acknowledged)
        return read.values

    async def _acknowledged(self, group: Sequence[Alteration]) -> Quotas:
        recent = map(self.journal.recent_values, group)
        return dict(ChainMap(*map(dict, await asyncio.gather(*recent))))

    async def _refused(
        self, admin: ClientQuotaAdmin, broker_id: int | None, group: Iterable[Alteration]
    ) -> Executed:
        """Let the broker judge the alterations whose entities hold together; return the refused.

        Without an answer none of them is sent. The others of the group can do without.
        """
        judged = [each for each in group if each.validates_first]
        if not judged:
            return {}
        try:
            answer = await admin.alter_client_quotas(
                [change for each in judged for change in each.changes],
                validate_only=True,
                broker_id=broker_id,
            )
        except Exception as error:  # noqa: BLE001 - it is that of whoever cannot go on without
            return {each: not_sent(each, error) for each in judged}
        refused: Executed = {}
        for each in judged:
            verdicts = [answer.verdicts[change.entity] for change in each.changes]
            if any(verdict.outcome is not Outcome.VALIDATED for verdict in verdicts):
                refused[each] = held_back(await off_loop(len(verdicts), judgement, each, answer))
        return refused

    async def _hand_over(
        self, admin: ClientQuotaAdmin, broker_id: int | None, group: Sequence[Alteration]
    ) -> Executed:
        """Send what is in time, in one request; those who run out of time are left out alone."""
        executed: Executed = {}
        left = list(group)
        while left:
            late = [each for each in left if each.send_by < boot_time()]
            executed |= {each: not_sent(each, _too_late()) for each in late}
            left = [each for each in left if each not in executed]
            if not left:
                break
            try:
                return executed | await self._send(admin, broker_id, left)
            except QuotaError as error:
                is_late = any(each.send_by < boot_time() for each in left)
                if not (isinstance(error, NotSentError) and is_late):
                    return executed | {each: not_sent(each, error) for each in left}
        return executed

    async def _send(
        self, admin: ClientQuotaAdmin, broker_id: int | None, group: Sequence[Alteration]
    ) -> Executed:
        try:
            with self.metrics.timed(Phase.KAFKA):
                changes = [change for each in group for change in each.changes]
                answer, applied = await asyncio.gather(
                    admin.alter_client_quotas(
                        changes,
                        validate_only=False,
                        broker_id=broker_id,
                        send_by=min(each.send_by for each in group),
                    ),
                    off_loop(len(changes), if_applied, group),  # while the broker is at work
                )
            self.failpoints.reach("after_answer")
        except QuotaError:
            raise
        except Exception:  # its origin is unclear, and so is whether it was sent
            logger.exception("%d alterations may have been sent", len(group))
            return {each: in_doubt(each) for each in group}
        executed: Executed = {}
        for each, results in zip(group, applied, strict=True):
            try:
                number = len(each.changes)
                executed[each] = await off_loop(number, answered, each, answer, results)
            except Exception:  # what the broker answered is not understood
                logger.exception("%s may have been sent", each.alteration_id)
                executed[each] = in_doubt(each)
        return executed

    def record(
        self, actor: Actor, broker_id: int | None, executed: Executed
    ) -> Mapping[str, Conclusion]:
        """Begin to commit what became of all, and to look whether it can be read.

        Returns:
            By the alteration's id, each with ``readable``.
        """
        conclusions = {each: found.with_refused(each) for each, found in executed.items()}
        self.outcomes.write(list(conclusions.values()))
        waiting: dict[asyncio.Future[bool], Quotas] = {}
        concluded: dict[str, Conclusion] = {}
        for alteration, conclusion in conclusions.items():
            readable = None
            after = applied_quotas(conclusion.results.values())
            if alteration.wait is Wait.READABLE and after:
                readable = asyncio.get_running_loop().create_future()
                waiting[readable] = after
            if conclusion.late is not None:
                actor.tasks.watch(self._record_late(alteration, conclusion.late))
            concluded[conclusion.alteration_id] = replace(conclusion, readable=readable)
        if waiting:
            within_s = max(alteration.wait_ms for alteration in executed) / 1000
            show = actor.barrier.present.show_each(waiting, broker_id, within_s=within_s)
            actor.tasks.watch(show)
        return concluded

    async def _record_late(self, alteration: Alteration, late: Awaitable[Handover]) -> None:
        await self.outcomes.until_written(alteration.alteration_id)
        await record_late_answer(alteration, late, self.recoveries, self.metrics)


def look_at(barrier: Barrier, group: Sequence[Alteration]) -> Look:
    """Begin to read what alterations concern: their entities, and what counts for their budgets.

    Raises:
        NotSentError: No broker was chosen.
    """
    broker_id = group[0].broker_id
    if broker_id is None:
        raise NotSentError("No broker was chosen.", code="cluster-unreachable")
    entities = [entity for each in group for entity in each.entities]
    budgets = {budget.name: budget for each in group for budget in each.budgets}
    counted = {each for budget in budgets.values() for each in budget.filters}
    return barrier.look(entities, counted, broker_id=broker_id)


def _too_late() -> NotSentError:
    return NotSentError("Not sent: it was too late after the intent.")


MAX_GROUP_ENTITIES: Final = 500
"""So many entities a group has at most, or a single request: its transaction is to be short."""


class AlterGroup:
    """A group while it fills: no entity and no idempotency key is there twice.

    Source of the bounds: ``QuorumController.MAX_RECORDS_PER_USER_OP``; the controller refuses a
    request beyond them as a whole, so a neighbour's size must not count.
    """

    def __init__(self) -> None:
        self._claimed: set[object] = set()
        self._entities = 0
        self._changes = 0
        self._bytes = 0

    def __call__(self, acting: Acting) -> bool:
        """Take one more in, if the controller takes them all."""
        _, item = acting
        locked = item.locked
        claimed: set[object] = {*locked}
        if (key_hash := item.key_hash) is not None:
            claimed.add(key_hash)
        changes = self._changes + sum(len(change.ops) for change in item.changes)
        entities = self._entities + len(locked)
        size = self._bytes
        if entities <= MAX_GROUP_ENTITIES:
            size += sum(map(encoded_bytes, item.changes))
        fits = (
            entities <= MAX_GROUP_ENTITIES
            and changes <= MAX_CHANGES
            and size <= MAX_ENCODED_BYTES
            and self._claimed.isdisjoint(claimed)
        )
        if fits or not self._claimed:
            self._entities, self._changes, self._bytes = entities, changes, size
            self._claimed |= claimed or {item.alteration_id}
        return fits
