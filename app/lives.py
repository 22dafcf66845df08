"""The life of alterations, put together: from the intent to the last word of recovery."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from app.kafka.image import QuotaImage
from app.kafka.quorum import KafkaMetadataQuorum
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.migrate import keep_house, months_ahead
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.alterations.alter import AlterDeps, AlterQuotas
from app.service.alterations.context import AlterContext, Failpoints
from app.service.alterations.current_values import Barrier, CurrentValues, QuotaReader
from app.service.alterations.entity_locks import EntitySlots
from app.service.alterations.idempotency import Replays
from app.service.alterations.sending import AlterExecutor, LateAnswers
from app.service.alterations.write_ahead import Intents, OutcomeWriter
from app.service.auth.policy import PolicyGuard
from app.service.ports.brokers import ClientQuotaAdmin
from app.service.ports.metrics import AlterationMetrics
from app.service.recovery.drift import DriftWatch
from app.service.recovery.recovery import Fences, Recovery, RecoveryDeps
from app.service.runtime.circuit_breaker import CircuitBreaker
from app.service.runtime.clock import USUAL, Patience
from app.service.runtime.tasks import AlterationTasks, PartitionKeeper, Tasks

_LOG_IS_DOWN: Final = (
    "The audit log has not answered several times in a row; nothing was sent. It is tried again "
    "every two seconds."
)


@dataclass(frozen=True, slots=True)
class Outside:
    """What alterations are lived upon: the cluster and the log."""

    admin: KafkaClientQuotaAdmin
    quorum: KafkaMetadataQuorum
    image: QuotaImage
    database: Database


@dataclass(frozen=True, slots=True)
class LifeSettings:
    """How alterations are lived.

    Attributes:
        owner: The name of this process in the log.
        failpoints: None is armed outside of tests.
        drift_interval_s: How often the cluster is compared with the log, in seconds.
        final_after_s: When recovery is final, in seconds after the sending.
        patience: How long others may take.
    """

    owner: str
    failpoints: Failpoints
    final_after_s: float
    drift_interval_s: float
    patience: Patience = USUAL


@dataclass(frozen=True, slots=True)
class AlterationRoom:
    """What all alterations share, whoever they are sent as: the log, the slots, the tasks."""

    outside: Outside
    context: AlterContext
    journal: PostgresJournal
    recovery_journal: PostgresRecovery
    outcomes: OutcomeWriter
    slots: EntitySlots
    tasks: AlterationTasks

    def parts(
        self, admin: ClientQuotaAdmin, tasks: Tasks, reader: QuotaReader | None = None
    ) -> AlterDeps:
        """Return what alters through these connections.

        The barrier is set with the service's own account in any case: it tells no quota, and
        callers who may not ask for it would have their expectations judged by a stale read.

        Args:
            admin: Alters.
            tasks: Runs the alterations.
            reader: Reads what holds before and after; null lets ``admin`` do it.
        """
        present = CurrentValues(reader or admin)
        within_s = self.context.patience.check_s
        barrier = Barrier(self.outside.quorum, present, within_s=within_s)
        late = LateAnswers(self.recovery_journal, tasks, self.context.metrics)
        return AlterDeps(
            admin,
            present,
            Intents(self.journal, self.outcomes, barrier, self.context, self.slots),
            AlterExecutor(admin, self.journal, self.outcomes, late, self.context),
            Replays(self.journal, admin),
            tasks,
            self.outside.image,
            self.context.policy,
        )


@dataclass(frozen=True, slots=True)
class Lives:
    """The two ends of an alteration's life, what goes on beside it, and the tasks."""

    alter: AlterQuotas
    room: AlterationRoom
    recovery: Recovery
    drift: DriftWatch
    partitions: PartitionKeeper
    tasks: AlterationTasks

    def begin(self) -> None:
        """Recover, watch and keep partitions in the background."""
        for watching in (self.recovery.run(), self.drift.run(), self.partitions.run()):
            self.tasks.watch(watching)


def build_lives(
    outside: Outside, settings: LifeSettings, metrics: AlterationMetrics, policy: PolicyGuard
) -> Lives:
    """Put the parts together."""
    admin, database = outside.admin, outside.database
    watch = partial(metrics.breaker_is, "postgres")
    breaker = CircuitBreaker("audit-log-unavailable", _LOG_IS_DOWN, watch=watch)
    patience = settings.patience
    context = AlterContext(settings.owner, metrics, breaker, settings.failpoints, policy, patience)
    journal = PostgresJournal(database)
    recovery_journal = PostgresRecovery(database, final_after_s=settings.final_after_s)
    tasks = AlterationTasks()
    barrier = Barrier(outside.quorum, CurrentValues(admin), within_s=patience.check_s)
    outcomes = OutcomeWriter(journal, tasks, metrics, wait_s=patience.record_s)
    room = AlterationRoom(
        outside,
        context,
        journal,
        recovery_journal,
        outcomes,
        EntitySlots(patience.entity_wait_s),
        tasks,
    )
    fences = Fences(admin, outside.quorum)
    parts = RecoveryDeps(admin, recovery_journal, fences, barrier, context)
    watcher = DriftWatch(
        admin,
        barrier,
        PostgresDriftJournal(database),
        metrics,
        interval_s=settings.drift_interval_s,
    )
    return Lives(
        AlterQuotas(room.parts(admin, tasks)),
        room,
        Recovery(parts, final_after_s=settings.final_after_s),
        watcher,
        PartitionKeeper(partial(keep_house, database), partial(months_ahead, database), metrics),
        tasks,
    )
