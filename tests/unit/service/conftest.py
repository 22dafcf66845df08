"""What several tests of the service start from: a service that alters, on fakes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Expected, Op
from app.domain.entities import ClientQuotaEntity
from app.service.ports.alterations import Alteration, AlterationRecord, Change
from app.service.ports.brokers import Verdict
from app.service.runtime.tasks import AlterationTasks
from tests.testkit.counted_metrics import CountedMetrics
from tests.testkit.fake_ports import (
    CI,
    FakeBrokers,
    FakeImage,
    FakeJournal,
    Verdicts,
    alter_pipeline,
    alter_quotas,
    fake_actor,
)

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
        self.image = FakeImage(self.brokers)
        pipeline = alter_pipeline(self.journal, self.tasks, self.metrics)
        self.service = alter_quotas(pipeline, self.image)
        self.actor = fake_actor(self.brokers, self.tasks)

    async def alter(self, *alterations: ClientQuotaAlteration, **options: Any) -> AlterationRecord:
        expected: Mapping[int, Expected] = options.pop("expected", {})
        changes = (
            Change(each.entity, each.ops, n, expected.get(n, {}))
            for n, each in enumerate(alterations)
        )
        evidence = {"rule": "allow-acl"}
        return await self.service.alter(
            self.actor, Alteration(CI, "r1", tuple(changes), evidence=evidence, **options)
        )

    def answer(self, **verdicts: Verdict) -> None:
        by_entity = {
            ClientQuotaEntity.of({"user": user}): verdict for user, verdict in verdicts.items()
        }

        def fault(alterations: Sequence[ClientQuotaAlteration], _: bool) -> Verdicts:
            return {
                alteration.entity: by_entity[alteration.entity]
                for alteration in alterations
                if alteration.entity in by_entity
            }

        self.brokers.fault = fault


def setting(entity: ClientQuotaEntity, value: str) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(entity, (Op(KEY, Decimal(value)),))


@pytest.fixture
def world() -> World:
    return World()
