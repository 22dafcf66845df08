"""One cluster: every object that is its own is built here, and ends with it.

Clusters have no object in common but those of ``Shared``, so none waits for what another one does.
"""

import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from app.authenticators import CallerLogins, Credentials
from app.cluster_settings import ClusterSettings
from app.domain.authorization import Operation
from app.http.audit import row_bytes
from app.http.authentication.proxies import TrustedProxies
from app.http.guards import Services
from app.http.rate_limits import RateLimits
from app.kafka.acls import cluster_acls
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster, scram_users
from app.kafka.event_topic import KafkaTopic
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum, QueryReader
from app.metrics import ClusterMetrics, Metrics
from app.policy_file import read_policy
from app.postgres.analytics import PostgresAnalytics
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.event_log import PostgresEventLog, PostgresTopicPositions
from app.postgres.plans import PostgresPlans
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.postgres.temporary import PostgresTemporary
from app.service.alterations.alter import AlterQuotas, CountEntities
from app.service.alterations.barrier import Barrier, CurrentValues
from app.service.alterations.pipeline import AlterPipeline
from app.service.alterations.replace import RevertAlterations
from app.service.alterations.write_ahead import EntityLocks, OutcomeWriter
from app.service.auth.actors import Actor, ActorOf
from app.service.auth.authorize import (
    ACL_REFRESH_AFTER_S,
    MAX_ACL_AGE_S,
    AuditTrail,
    AuthorizationPolicy,
    ClusterAuthorizer,
    NarrowingPolicy,
    NoPolicy,
    PolicyGuard,
)
from app.service.auth.denials import DeniedAttempts
from app.service.drift import DriftWatch
from app.service.event_feed import EventFeed
from app.service.event_topic import EventProducer
from app.service.expiry import ExpireQuotas
from app.service.ports.brokers import AclSnapshot, ModelNow, QuotaReader
from app.service.queries.analytics import Analytics
from app.service.queries.callbacks import QuotaCallbacks
from app.service.queries.describe import DescribeQuotas
from app.service.queries.resolve import QuotaImage, ResolveQuotas
from app.service.queries.temporary import TemporaryImage, TemporaryValues
from app.service.recovery import Recovery
from app.service.runtime.clock import AdaptiveDeadline
from app.service.runtime.readiness import Readiness, without_addresses
from app.service.runtime.tasks import CLUSTER, AlterationTasks, Cache
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Shared:
    """What the clusters of a service have in common.

    Attributes:
        recoveries: What recovery asks of the log, for all clusters at once.
        expiries: The same of temporary values.
        served_as: Returns under which other name a cluster is served already; takes the name that
            asks, and the id.
    """

    settings: Settings
    database: Database
    recoveries: PostgresRecovery
    expiries: PostgresTemporary
    metrics: Metrics
    limits: RateLimits
    proxies: TrustedProxies
    credentials: Credentials
    served_as: Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class Backends:
    """What alterations run on: the cluster and the log, and by what brokers decide."""

    admin: KafkaClientQuotaAdmin
    quorum: KafkaMetadataQuorum
    image: QuotaImage
    database: Database
    recoveries: PostgresRecovery
    expiries: PostgresTemporary
    deadline: AdaptiveDeadline
    model: ModelNow


class Alterations:
    """What all alterations share, whoever they are sent as, under a name of this process."""

    def __init__(
        self,
        backends: Backends,
        settings: Settings,
        metrics: ClusterMetrics,
        policy: PolicyGuard,
        in_progress: CountEntities,
    ) -> None:
        admin, database, patience = backends.admin, backends.database, settings.patience
        self.backends, self.metrics = backends, metrics.alterations
        self.tasks = AlterationTasks()
        journal, recoveries = PostgresJournal(database), backends.recoveries
        pipeline = AlterPipeline(
            journal,
            recoveries,
            OutcomeWriter(journal, self.tasks, self.metrics, wait_s=patience.record_s),
            self.metrics,
            owner_name(),
            patience,
            settings.test_failpoint,
        )
        locks = EntityLocks(self.metrics, patience.entity_wait_s)
        self._expiries = backends.expiries
        self.temporary = TemporaryImage(self._expiries, admin)
        self.alter = AlterQuotas(
            pipeline, backends.image, self.temporary, locks, policy, in_progress, backends.model
        )
        barrier = self.barrier(admin)
        self._recovery = Recovery(
            admin,
            backends.quorum,
            barrier,
            recoveries,
            self.metrics,
            pipeline.owner,
            settings.test_final_after_s,
            failpoints=settings.test_failpoint,
            patience=patience,
        )
        self.drift = DriftWatch(
            admin,
            barrier,
            PostgresDriftJournal(database),
            self.metrics,
            interval_s=settings.drift_interval_s,
            budgets=lambda: policy.budgets,
        )

    def barrier(self, reader: QuotaReader) -> Barrier:
        """Return a barrier with values as the reader gets them.

        It is always set with the service's own account: it reveals no quota, and without it a stale
        read would judge the expectations of callers who may not set one.
        """
        present = CurrentValues(reader, self.backends.deadline)
        return Barrier(self.backends.quorum, present)

    def temporary_values(self) -> TemporaryValues:
        """Return what lists temporary values, and lets them end at another time."""
        return TemporaryValues(self._expiries, self.backends.admin, self.temporary)

    def begin(self, own_account: ActorOf) -> None:
        """Recover, watch, and end what has expired in the background."""
        expire = ExpireQuotas(self.alter, self._expiries, self.temporary, own_account, self.metrics)
        self.tasks.watch(self._recovery.run())
        self.tasks.watch(self.drift.run())
        self.tasks.watch(expire.run())


def owner_name() -> str:
    """Return a name for a cluster of this process in the log, which no other has had."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"


class Cluster:
    """A cluster that is served, from ``begin`` to ``end``; neither waits for its brokers.

    Attributes:
        settings: How it is served.
        services: What answers requests to it.
    """

    def __init__(self, settings: ClusterSettings, shared: Shared) -> None:
        self.settings = settings
        self._shared = shared
        self._metrics = shared.metrics.of_cluster(settings.name)
        self._stack = AsyncExitStack()
        self._policy: NoPolicy | NarrowingPolicy = NoPolicy()
        self._is_leaving = False
        self._brokers = self._open_brokers()
        self.services = self._open()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that is served; null until it has answered."""
        return self._brokers.cluster_id

    async def reload_policy(self) -> bool:
        """Read its policy again; tell whether it has one."""
        if isinstance(self._policy, NoPolicy):
            return False
        await self._policy.reload()
        return True

    def end_streams(self) -> None:
        """End answers that do not end by themselves."""
        self.services.feed.close()

    async def end(self, within_s: float) -> None:
        """Let alterations end that run, for so long, and close every connection."""
        self._is_leaving = True
        self.end_streams()
        await self._tasks.drain(within_s)
        await self._stack.aclose()

    async def leave(self, within_s: float) -> None:
        """End while the process goes on: another one may watch the cluster now."""
        await self.end(within_s)
        await self._drift.resign()

    def _open_brokers(self) -> Brokers:
        name, metrics = self.settings.name, self._metrics.brokers

        def served_as(cluster_id: str) -> str | None:
            return None if self._is_leaving else self._shared.served_as(name, cluster_id)

        patience = self._shared.settings.patience
        brokers = Brokers(self.settings.kafka, metrics, patience=patience)
        brokers.served_as = served_as
        metrics.watch(brokers.connections, brokers.another_answers)
        return brokers

    def _open(self) -> Services:
        shared, brokers, settings = self._shared, self._brokers, self._shared.settings
        patience, database = settings.patience, shared.database
        admin = KafkaClientQuotaAdmin(brokers, failpoints=settings.test_failpoint)
        cluster = KafkaCluster(brokers)
        acls = Cache(partial(cluster_acls, brokers), refresh_after_s=ACL_REFRESH_AFTER_S)
        deadline = AdaptiveDeadline(patience.broker_answer_s)
        queries = QueryReader(admin)
        callbacks = QuotaCallbacks(
            cluster.callback_reports, self.settings.read_callback(), cluster.leaders
        )
        image = QuotaImage(queries, callbacks.now, timeout_s=patience.image_s, deadline=deadline)
        for closing in (admin, cluster, callbacks, acls, image):
            self._stack.push_async_callback(closing.close)
        journal = PostgresJournal(database)
        authorizer = ClusterAuthorizer(acls, self._authorization_policy())
        denials = DeniedAttempts(admin.cluster_id, journal)
        self._stack.push_async_callback(denials.write)
        self._policy = self._narrowing(denials, callbacks)
        limits = shared.limits.of_cluster()
        backends = Backends(
            admin,
            KafkaMetadataQuorum(brokers),
            image,
            database,
            shared.recoveries,
            shared.expiries,
            deadline,
            callbacks.model,
        )
        alterations = Alterations(backends, settings, self._metrics, self._policy, limits.entities)
        self._tasks, self._drift = alterations.tasks, alterations.drift
        audit = AuditTrail(journal, authorizer, admin)
        log = PostgresEventLog(database.querying, row_bytes)
        logins = CallerLogins(
            admin,
            alterations.tasks,
            alterations.barrier,
            authorizer,
            self._metrics.brokers,
            patience,
        )
        own_account = partial(
            Actor,
            authorizer=authorizer,
            admin=admin,
            reader=queries,
            describe_now=image.now,
            barrier=alterations.barrier(admin),
            tasks=alterations.tasks,
        )
        services = Services(
            name=self.settings.name,
            authenticators=self._shared.credentials.of_cluster(
                self.settings.login(settings), logins.sessions, self._stack
            ),
            own_account=own_account,
            denials=denials,
            describe=DescribeQuotas(image),
            alter=alterations.alter,
            revert=RevertAlterations(audit, alterations.alter),
            temporary=alterations.temporary_values(),
            resolve=ResolveQuotas(image),
            audit=audit,
            feed=EventFeed(log, admin, self._metrics.events),
            cluster=admin,
            check_cluster=brokers.check_cluster,
            cluster_now=lambda: brokers.answering,
            analytics=Analytics(PostgresAnalytics(database), admin),
            plans=PostgresPlans(database),
            policy=self._policy,
            scram_users=partial(scram_users, brokers),
            readiness=self._readiness(admin, acls),
            metrics=self._metrics,
            limits=limits,
            brokers=cluster.versions,
            proxies=shared.proxies,
        )
        self._begin(alterations, services)
        return services

    def _begin(self, alterations: Alterations, services: Services) -> None:
        """Begin what runs in the background; its log lines name the cluster."""
        token = CLUSTER.set(self.settings.name)
        try:
            alterations.begin(services.own_account)
            works = [services.denials.run(), self._brokers.watch()]
            producer = self._producer(alterations.backends.admin)
            if producer is not None:
                self._stack.push_async_callback(producer.close)
                works += [producer.run(), producer.count()]
            for work in works:
                alterations.tasks.watch(work)
        finally:
            CLUSTER.reset(token)

    def _readiness(self, admin: KafkaClientQuotaAdmin, acls: Cache[AclSnapshot]) -> Readiness:
        """Return its readiness; which cluster answers is asked each time, never remembered."""
        patience = self._shared.settings.patience
        reading = {
            "kafka": partial(_brokers_answer, admin, patience.broker_answer_s),
            "acls": partial(_acls_answer, acls),
        }
        checks = {
            name: without_addresses(check, lambda: self._brokers.number)
            for name, check in reading.items()
        }
        refusals = {"kafka": self._brokers.check_cluster}
        return Readiness(checks, {}, refusals=refusals, patience=patience)

    def _producer(self, admin: KafkaClientQuotaAdmin) -> EventProducer | None:
        settings, database = self._shared.settings, self._shared.database
        name = settings.events_topic
        if name is None:
            return None
        return EventProducer(
            PostgresEventLog(database.recovering, row_bytes),
            PostgresTopicPositions(database),
            KafkaTopic(name, settings.events_kafka(self.settings.kafka)),
            admin,
            self._metrics.events,
            owner_name(),
        )

    def _narrowing(
        self, denials: DeniedAttempts, callbacks: QuotaCallbacks
    ) -> NarrowingPolicy | NoPolicy:
        path = self.settings.policy_file
        if path is None:
            return NoPolicy()
        read = partial(read_policy, path)
        return NarrowingPolicy(read, read(), denials.record, self._metrics.policy, callbacks.model)

    def _authorization_policy(self) -> AuthorizationPolicy:
        return AuthorizationPolicy(
            self.settings.authorizer,
            self._shared.settings.insecure_allow_without_authorizer,
            self.settings.auditors,
        )


async def _brokers_answer(admin: KafkaClientQuotaAdmin, within_s: float) -> None:
    await admin.live_brokers(timeout_s=within_s)


async def _acls_answer(acls: Cache[AclSnapshot]) -> None:
    """Read the ACLs: without them nobody is authorized, whatever else the brokers answer."""
    await acls.get(MAX_ACL_AGE_S[Operation.DESCRIBE_CONFIGS])
