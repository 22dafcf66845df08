"""Intents: committed with their slots, and completed with what truly held before."""

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, NotSentError, QuotaError
from app.service.alterations.alteration_command import AlterCommand
from app.service.alterations.alteration_outcomes import OutcomeWriter, fault_before_sending
from app.service.alterations.alteration_results import conclusion_not_sent
from app.service.alterations.alteration_sending import send_within_s
from app.service.alterations.barrier import Barrier
from app.service.alterations.entity_slots import EntitySlots, commit_intent
from app.service.alterations.life_context import LifeContext
from app.service.audit_records import AuditRequest
from app.service.journal_ports import AuditJournal, Claim, Intent, KeyTakenError
from app.service.metrics_port import Phase, timed

RECENT_S: Final = 60.0
"""A state that was audited so recently is waited for where no barrier can be set."""


@dataclass(frozen=True, slots=True)
class CommittedIntent:
    """An intent in the log.

    Attributes:
        request: As recorded; its ``before`` values were read without the slots.
        known: What the log gave back under the slots.
        send_by: Until when it may be handed over, by ``boot_time``.
    """

    request: AuditRequest
    known: Intent
    send_by: float

    @property
    def acknowledged(self) -> Quotas:
        """What was applied a short while ago: a broker that does not show it may be behind."""
        states = self.known.known.items()
        return {one: state.values for one, state in states if state.age_s < RECENT_S}


class Intents:
    """Commits intents under the slots of their entities.

    ``slots`` are shared with the intents of other sessions; null where there are none.
    """

    def __init__(
        self,
        journal: AuditJournal,
        outcomes: OutcomeWriter,
        barrier: Barrier,
        context: LifeContext,
        slots: EntitySlots | None = None,
    ) -> None:
        self._journal = journal
        self._outcomes = outcomes
        self._barrier = barrier
        self._failpoints = context.failpoints
        self._metrics = context.metrics
        self._breaker = context.breaker
        self._owner = context.owner
        self._patience = context.patience
        self._slots = slots or EntitySlots()

    @asynccontextmanager
    async def committed(
        self, command: AlterCommand, request: AuditRequest
    ) -> AsyncIterator[CommittedIntent]:
        """Commit the intent and hold the entities while the block runs.

        Raises:
            EntityBusyError: Another alteration holds a slot for too long.
            KeyTakenError: The idempotency key was used before.
            NotSentError: The log cannot be written.
        """
        self._outcomes.refuse_if_full()
        entities = tuple(one.alteration.entity for one in request.entities)
        key, plan = command.key, command.plan
        tables = 2 + (plan is not None) + (command.supersedes is not None)
        claim = Claim(
            self._owner,
            entities,
            key.claim(request.caller.principal, request.cluster_id) if key else None,
            command.supersedes,
            plan.claim if plan else None,
            send_within_s=send_within_s(len(entities), self._patience, tables=tables),
        )
        async with self._held(entities, request.alteration_id) as deadline:
            self._failpoints.reach("before_intent")
            known, began = await self._commit(request, claim, deadline)
            self._failpoints.reach("after_intent")
            yield CommittedIntent(request, known, began + claim.send_within_s)

    @asynccontextmanager
    async def _held(
        self, entities: tuple[ClientQuotaEntity, ...], alteration_id: str
    ) -> AsyncIterator[float]:
        began = time.monotonic()
        try:
            async with self._slots.hold(entities, alteration_id) as deadline:
                self._metrics.phase_took(Phase.SLOT_WAIT, time.monotonic() - began)
                yield deadline
        except EntityBusyError:
            self._metrics.slot_was_taken()
            raise

    async def _commit(
        self, request: AuditRequest, claim: Claim, deadline: float
    ) -> tuple[Intent, float]:
        try:
            with self._breaker.attempt(), timed(self._metrics, Phase.TX1):
                committed = await commit_intent(
                    self._journal, request, claim, deadline, self._failpoints
                )
        except NotSentError as error:
            self._metrics.audit_write_failed("tx1")
            if error.alteration_id is not None:
                self._outcomes.write_later(conclusion_not_sent(request, error))
            raise
        except (QuotaError, KeyTakenError):
            raise
        except Exception as fault:  # the log may have the intent
            unsent = fault_before_sending(request, fault)
            self._outcomes.write_later(conclusion_not_sent(request, unsent))
            raise unsent from fault
        if claim.supersedes is not None:
            self._metrics.superseded()
        return committed

    async def verified_values(
        self,
        request: AuditRequest,
        *,
        acknowledged: Quotas | None = None,
        beside: Iterable[ClientQuotaEntity] = (),
    ) -> Quotas:
        """Return what a barrier read shows of the request's entities, and of those beside them.

        Raises:
            NotSentError: The barrier was not passed in time.
        """
        entities = [*(one.alteration.entity for one in request.entities), *beside]
        broker_id = request.broker_id
        if broker_id is None:
            raise NotSentError("No broker was chosen.", code="cluster-unreachable")
        with timed(self._metrics, Phase.BARRIER):
            read = await self._barrier.read(
                entities, broker_id=broker_id, acknowledged=acknowledged
            )
        return read.values


def with_before(request: AuditRequest, values: Quotas) -> AuditRequest:
    """Return the request with these values before."""
    entities = tuple(
        replace(one, before=values.get(one.alteration.entity, {})) for one in request.entities
    )
    return replace(request, entities=entities)
