"""The parts that alter quotas, put together on fakes."""

from dataclasses import dataclass

from app.service.alterations.alter import AlterationParts, AlterQuotas
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
from app.service.metrics_port import AlterationMetrics
from app.service.permissions.policy import NoPolicy, PolicyGuard
from tests.testkit.fake_ports import FakeBrokers, FakeImage, FakeJournal


def life_context(metrics: AlterationMetrics) -> LifeContext:
    """Return a context in which nothing is broken yet."""
    breaker = CircuitBreaker("audit-log-unavailable", "Down.")
    return LifeContext("test", metrics, breaker, Failpoints())


@dataclass(frozen=True)
class FakeSurroundings:
    """Where alterations go, and where they are written down."""

    brokers: FakeBrokers
    journal: FakeJournal
    tasks: AlterationTasks
    metrics: AlterationMetrics

    def alter_quotas(
        self, image: FakeImage | None = None, policy: PolicyGuard | None = None
    ) -> AlterQuotas:
        """Return what alters quotas here; without a policy nobody is narrowed."""
        context = life_context(self.metrics)
        outcomes = OutcomeWriter(self.journal, self.tasks, self.metrics)
        late = LateAnswers(self.journal, self.tasks, self.metrics)
        present = PresentValues(self.brokers)
        barrier = Barrier(self.brokers, present)
        return AlterQuotas(
            AlterationParts(
                self.brokers,
                present,
                Intents(self.journal, outcomes, barrier, context),
                AlterationSending(self.brokers, self.journal, outcomes, late, context),
                Replays(self.journal, self.brokers),
                self.tasks,
                image or FakeImage(self.brokers),
                policy or NoPolicy(),
            )
        )
