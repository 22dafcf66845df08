"""A service that alters, on fakes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.callers import Caller
from app.domain.entities import ClientQuotaEntity
from app.service.alterations.alter import AlterationParts, AlterQuotas
from app.service.alterations.alteration_command import (
    AlterationReport,
    AlterCommand,
)
from app.service.alterations.alteration_intents import Intents
from app.service.alterations.alteration_outcomes import OutcomeWriter
from app.service.alterations.alteration_sending import AlterationSending
from app.service.alterations.alteration_tasks import AlterationTasks
from app.service.alterations.barrier import Barrier
from app.service.alterations.failpoints import Failpoints
from app.service.alterations.late_answers import LateAnswers
from app.service.alterations.life_context import LifeContext
from app.service.alterations.present_values import PresentValues
from app.service.alterations.replays import Replays
from app.service.breaker import CircuitBreaker
from app.service.cluster_ports import EntityVerdict
from app.service.permissions.policy import NoPolicy
from tests.support.fake_metrics import CountedMetrics
from tests.support.fake_ports import FakeBrokers, FakeImage, FakeJournal, Verdicts

ALICE = ClientQuotaEntity.of({"user": "alice"})
BOB = ClientQuotaEntity.of({"user": "bob"})
KEY = "producer_byte_rate"


@dataclass
class World:
    """A service on fakes; ``log`` tells what happened in which order."""

    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.brokers = FakeBrokers(self.log)
        self.journal = FakeJournal(self.log)
        self.tasks = AlterationTasks()
        self.metrics = CountedMetrics()
        outcomes = OutcomeWriter(self.journal, self.tasks, self.metrics)
        breaker = CircuitBreaker("audit-log-unavailable", "Down.")
        context = LifeContext("test", self.metrics, breaker, Failpoints())
        late = LateAnswers(self.journal, self.tasks, self.metrics)
        present = PresentValues(self.brokers)
        barrier = Barrier(self.brokers, present)
        self.service = AlterQuotas(
            AlterationParts(
                self.brokers,
                present,
                Intents(self.journal, outcomes, barrier, context),
                AlterationSending(self.brokers, self.journal, outcomes, late, context),
                Replays(self.journal, self.brokers),
                self.tasks,
                FakeImage(self.brokers),
                NoPolicy(),
            )
        )

    async def alter(
        self, *alterations: ClientQuotaAlteration, **options: object
    ) -> AlterationReport:
        command = AlterCommand(
            caller=Caller("User:ci", "127.0.0.1", "bearer"),
            evidence={"rule": "allow-acl"},
            request_id="r1",
            alterations=alterations,
        )
        return await self.service.alter(replace(command, **options))  # type: ignore[arg-type]

    def answer(self, **verdicts: EntityVerdict) -> None:
        by_entity = {ClientQuotaEntity.of({"user": user}): one for user, one in verdicts.items()}

        def fault(alterations: Sequence[ClientQuotaAlteration], _: bool) -> Verdicts:
            return {
                one.entity: by_entity[one.entity] for one in alterations if one.entity in by_entity
            }

        self.brokers.fault = fault


def setting(entity: ClientQuotaEntity, value: str) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity, (Op(KEY, Decimal(value)),))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)
