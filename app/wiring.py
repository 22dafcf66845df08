"""Wiring: every object of the service is built here and passed in."""

import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.authenticators import CallerLogins, open_authenticators
from app.documents.callbacks import read_callback
from app.domain.authorization import AuthorizerSettings, Operation
from app.http.audit import row_bytes
from app.http.authentication.proxies import TrustedProxies
from app.http.guards import Services
from app.http.rate_limits import Limits, RateLimits
from app.kafka.acls import cluster_acls
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster, scram_users
from app.kafka.event_topic import KafkaTopic
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum, QueryReader
from app.metrics import AlterationMetrics, Metrics
from app.policy_file import read_policy
from app.postgres.analytics import PostgresAnalytics
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.event_log import PostgresEventLog, PostgresTopicPositions
from app.postgres.plans import PostgresPlans
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.postgres.schema import (
    clock_problem,
    keep_house,
    months_ahead,
    schema_problem,
    server_facts,
)
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
from app.service.ports.brokers import AclSnapshot, ClusterIdentity, ModelNow, QuotaReader
from app.service.queries.analytics import Analytics
from app.service.queries.callbacks import QuotaCallbacks
from app.service.queries.describe import DescribeQuotas
from app.service.queries.resolve import QuotaImage, ResolveQuotas
from app.service.queries.temporary import TemporaryImage, TemporaryValues
from app.service.recovery import Recovery
from app.service.runtime.clock import DATABASE_CLOCK, AdaptiveDeadline
from app.service.runtime.readiness import Readiness, without_addresses
from app.service.runtime.tasks import AlterationTasks, Cache, run_forever
from app.settings import Settings

logger = logging.getLogger(__name__)

_LEAST_DRAIN_S: Final = 1.0

_CLOCK_S: Final = 10.0
"""How often Postgres's clock is read."""

_KEEP_S: Final = 60.0
"""How often missing partitions are made, three months ahead, and expired rows removed."""


@dataclass(frozen=True, slots=True)
class Backends:
    """What alterations run on: the cluster and the log, and by what brokers decide."""

    admin: KafkaClientQuotaAdmin
    quorum: KafkaMetadataQuorum
    image: QuotaImage
    database: Database
    deadline: AdaptiveDeadline
    model: ModelNow


class Alterations:
    """What all alterations share, whoever they are sent as, under a name of this process."""

    def __init__(
        self,
        backends: Backends,
        settings: Settings,
        metrics: AlterationMetrics,
        policy: PolicyGuard,
        in_progress: CountEntities,
    ) -> None:
        admin, database, patience = backends.admin, backends.database, settings.patience
        self.backends, self.metrics = backends, metrics
        self.tasks = AlterationTasks()
        journal, final_after_s = PostgresJournal(database), settings.test_final_after_s
        recoveries = PostgresRecovery(database, final_after_s=final_after_s)
        pipeline = AlterPipeline(
            journal,
            recoveries,
            OutcomeWriter(journal, self.tasks, metrics, wait_s=patience.record_s),
            metrics,
            owner_name(),
            patience,
            settings.test_failpoint,
        )
        locks = EntityLocks(metrics, patience.entity_wait_s)
        self._expiries = PostgresTemporary(database)
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
            metrics,
            pipeline.owner,
            final_after_s,
            failpoints=settings.test_failpoint,
            patience=patience,
        )
        self._drift = DriftWatch(
            admin,
            barrier,
            PostgresDriftJournal(database),
            metrics,
            interval_s=settings.drift_interval_s,
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
        """Recover, watch, end what has expired and keep partitions in the background."""
        database, metrics = self.backends.database, self.metrics
        expire = ExpireQuotas(self.alter, self._expiries, self.temporary, own_account, metrics)

        async def count() -> None:
            metrics.partitions_reach(await months_ahead(database))

        keep = partial(keep_house, database)
        self.tasks.watch(self._recovery.run())
        self.tasks.watch(self._drift.run())
        self.tasks.watch(expire.run())
        self.tasks.watch(run_forever("keeping the log", keep, pause_s=_KEEP_S, logger=logger))
        self.tasks.watch(run_forever("counting partitions", count, pause_s=_KEEP_S, logger=logger))
        clock = partial(server_facts, database)
        self.tasks.watch(run_forever("reading the clock", clock, pause_s=_CLOCK_S, logger=logger))


def owner_name() -> str:
    """Return a name for this process in the log, which no other process has had."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"


class Wiring:
    """The objects that the settings ask for; ``services`` opens them.

    Args:
        settings: As ``load_settings`` has checked them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.proxies = TrustedProxies(settings.trusted_proxies, settings.forwarded_header)
        limits = Limits(
            settings.reads_per_s,
            settings.alterations_per_s,
            settings.requests_at_once,
            settings.authentication_failures_per_s,
            settings.public_requests_per_s,
            settings.streams_at_once,
            settings.max_streams,
        )
        self._limits = RateLimits(limits, self.metrics.count_rate_limited)
        self._narrowed: NarrowingPolicy | None = None
        self._readiness: Readiness | None = None
        self._feed: EventFeed | None = None
        self._stops_at: float | None = None

    def begin_drain(self) -> bool:
        """Turn ``/readyz`` off; tell whether this is the first announcement of the stop."""
        if self._stops_at is not None:
            return False
        settings = self._settings
        self._stops_at = time.monotonic() + settings.stop_delay_s + settings.shutdown_grace_s
        if self._readiness is not None:
            self._readiness.draining = True
        return True

    def end_streams(self) -> None:
        """End answers that do not end by themselves: the server is about to wait for all."""
        if self._feed is not None:
            self._feed.close()

    async def reload(self) -> None:
        """Read the policy again; the file of tokens is followed without being asked to."""
        if self._narrowed is None:
            logger.info("nothing to read again: there is no policy")
        else:
            await self._narrowed.reload()

    def _time_to_drain(self) -> float:
        """Return how long alterations that still run may take to end, in seconds."""
        if self._stops_at is None:
            return self._settings.shutdown_grace_s
        return max(_LEAST_DRAIN_S, self._stops_at - time.monotonic())

    @asynccontextmanager
    async def services(self) -> AsyncIterator[Services]:
        """Open the services; close them when the application stops, alterations first."""
        async with AsyncExitStack() as stack:
            counted = self.metrics.dependencies
            patience = self._settings.patience
            brokers = Brokers(self._settings.kafka, counted, patience=patience)
            admin = KafkaClientQuotaAdmin(brokers, failpoints=self._settings.test_failpoint)
            database = Database(self._settings.database_url.get_secret_value(), counted, patience)
            counted.watch(
                brokers.connections,
                database.in_use,
                brokers.another_answers,
                DATABASE_CLOCK.ahead_s,
            )
            cluster = KafkaCluster(brokers)
            acls = Cache(partial(cluster_acls, brokers), refresh_after_s=ACL_REFRESH_AFTER_S)
            deadline = AdaptiveDeadline(patience.broker_answer_s)
            queries = QueryReader(admin)
            callbacks = self._callbacks(cluster)
            image = QuotaImage(
                queries, callbacks.now, timeout_s=patience.image_s, deadline=deadline
            )
            for closing in (admin, database, cluster, callbacks, acls, image):
                stack.push_async_callback(closing.close)
            backends = Backends(
                admin, KafkaMetadataQuorum(brokers), image, database, deadline, callbacks.model
            )
            journal = PostgresJournal(database)
            authorizer = ClusterAuthorizer(acls, _authorization_policy(self._settings))
            denials = DeniedAttempts(admin.cluster_id, journal)
            stack.push_async_callback(denials.write)
            policy = self._narrowing(denials, callbacks)
            alterations = Alterations(
                backends,
                self._settings,
                self.metrics.alterations,
                policy,
                self._limits.entities,
            )
            audit = AuditTrail(journal, authorizer, admin)
            log = PostgresEventLog(database.querying, row_bytes)
            self._feed = feed = EventFeed(log, admin, self.metrics.events)
            stack.callback(feed.close)
            producer = self._producer(database, admin)
            if producer is not None:
                stack.push_async_callback(producer.close)
            logins = CallerLogins(
                admin, alterations.tasks, alterations.barrier, authorizer, counted, patience
            )
            authenticators = open_authenticators(
                self._settings, self.metrics, stack, logins.sessions
            )
            stack.push_async_callback(self._drain, alterations.tasks)
            own_account = partial(
                Actor,
                authorizer=authorizer,
                admin=admin,
                reader=queries,
                describe_now=image.now,
                barrier=alterations.barrier(admin),
                tasks=alterations.tasks,
            )
            alterations.begin(own_account)
            alterations.tasks.watch(denials.run())
            if producer is not None:
                alterations.tasks.watch(producer.run())
                alterations.tasks.watch(producer.count())
            alterations.tasks.watch(brokers.watch())
            reading = {
                "kafka": partial(_brokers_answer, admin, patience.broker_answer_s),
                "acls": partial(_acls_answer, acls),
            }
            self._readiness = Readiness(
                {
                    name: without_addresses(check, lambda: brokers.number)
                    for name, check in reading.items()
                },
                {
                    "audit_log": journal.check_writable,
                    "schema": partial(schema_problem, database),
                    "clock": partial(clock_problem, database),
                },
                patience=patience,
            )
            yield Services(
                authenticators=authenticators,
                own_account=own_account,
                denials=denials,
                describe=DescribeQuotas(image),
                alter=alterations.alter,
                revert=RevertAlterations(audit, alterations.alter),
                temporary=alterations.temporary_values(),
                resolve=ResolveQuotas(image),
                audit=audit,
                feed=feed,
                cluster=admin,
                check_cluster=brokers.check_cluster,
                analytics=Analytics(PostgresAnalytics(database), admin),
                plans=PostgresPlans(database),
                policy=policy,
                scram_users=partial(scram_users, brokers),
                readiness=self._readiness,
                metrics=self.metrics,
                limits=self._limits,
                brokers=cluster.versions,
                proxies=self.proxies,
            )

    def _producer(self, database: Database, cluster: ClusterIdentity) -> EventProducer | None:
        name = self._settings.events_topic
        if name is None:
            return None
        return EventProducer(
            PostgresEventLog(database.recovering, row_bytes),
            PostgresTopicPositions(database),
            KafkaTopic(name, self._settings.events_kafka),
            cluster,
            self.metrics.events,
            owner_name(),
        )

    def _callbacks(self, cluster: KafkaCluster) -> QuotaCallbacks:
        path = self._settings.callback_file
        configured = None if path is None else read_callback(path)
        return QuotaCallbacks(cluster.callback_reports, configured, cluster.leaders)

    def _narrowing(
        self, denials: DeniedAttempts, callbacks: QuotaCallbacks
    ) -> NarrowingPolicy | NoPolicy:
        if self._settings.policy_file is None:
            return NoPolicy()
        read = partial(read_policy, self._settings.policy_file)
        self._narrowed = NarrowingPolicy(
            read, read(), denials.record, self.metrics.policy, callbacks.model
        )
        return self._narrowed

    async def _drain(self, tasks: AlterationTasks) -> None:
        await tasks.drain(self._time_to_drain())


def _authorization_policy(settings: Settings) -> AuthorizationPolicy:
    return AuthorizationPolicy(
        AuthorizerSettings(settings.super_users, settings.allow_everyone_if_no_acl_found),
        settings.insecure_allow_without_authorizer,
        settings.auditors,
    )


async def _brokers_answer(admin: KafkaClientQuotaAdmin, within_s: float) -> None:
    await admin.live_brokers(timeout_s=within_s)


async def _acls_answer(acls: Cache[AclSnapshot]) -> None:
    """Read the ACLs: without them nobody is authorized, whatever else the brokers answer."""
    await acls.get(MAX_ACL_AGE_S[Operation.DESCRIBE_CONFIGS])
