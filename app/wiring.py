"""Wiring: every object of the service is built here and passed in."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from app.alteration_wiring import Alterations, Backends, SharedServices
from app.authenticators import open_authenticators
from app.domain.authorization import AuthorizerSettings, Operation
from app.http.authentication.proxies import TrustedProxies
from app.http.metrics import HttpMetrics, SharedCounts
from app.http.rate_limits import Limits, RateLimits
from app.http.route import Services
from app.kafka.acls import KafkaClusterAclSource
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster, KafkaMetadataQuorum, scram_users
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.policy_file import read_policy
from app.postgres.analytics import PostgresAnalytics
from app.postgres.audit_log import PostgresJournal
from app.postgres.authentication_failures import record_authentication_failures
from app.postgres.plans import PostgresPlans
from app.postgres.pool import Database
from app.postgres.schema import schema_problem
from app.service.alterations.replace import RevertAlterations
from app.service.auth.authorize import (
    MAX_ACL_AGE_S,
    AuditTrail,
    AuthorizationPolicy,
    ClusterAuthorizer,
    NarrowingPolicy,
    NoPolicy,
)
from app.service.auth.denials import AuthenticationFailures, DeniedAttempts, FailureWriter
from app.service.queries.analytics import Analytics
from app.service.queries.describe import DescribeQuotas, SortedSnapshots
from app.service.queries.resolve import QuotaImage, ResolveQuotas
from app.service.runtime.dependencies import Readiness, without_addresses
from app.service.runtime.tasks import AlterationTasks
from app.settings import Settings

_LEAST_DRAIN_S: Final = 1.0

logger = logging.getLogger(__name__)


class Wiring:
    """The objects that the settings ask for; ``services`` opens them.

    Args:
        settings: As ``load_settings`` has checked them.
        shared: Where the workers count; null for a process that serves alone.
    """

    def __init__(self, settings: Settings, shared: SharedCounts | None = None) -> None:
        self._settings = settings
        self.metrics = HttpMetrics(shared)
        self.proxies = TrustedProxies(settings.trusted_proxies, settings.forwarded_header)
        self._limits = Limits(
            settings.reads_per_s,
            settings.alterations_per_s,
            settings.requests_at_once,
            settings.authentication_failures_per_s,
            settings.public_requests_per_s,
        )
        self._narrowed: NarrowingPolicy | None = None
        self._readiness: Readiness | None = None
        self._stops_at: float | None = None

    def begin_drain(self) -> bool:
        """Say ``/readyz`` no; tell whether this is the first announcement."""
        if self._stops_at is not None:
            return False
        settings = self._settings
        self._stops_at = time.monotonic() + settings.stop_delay_s + settings.shutdown_grace_s
        if self._readiness is not None:
            self._readiness.draining = True
        return True

    async def reload(self) -> None:
        """Read the policy again; the file of tokens is followed without being asked to."""
        if self._narrowed is None:
            logger.info("nothing to read again: there is no policy")
        else:
            await self._narrowed.reload()

    def _time_to_drain(self) -> float:
        """What is left of the grace for alterations that still run, in seconds."""
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
            counted.watch(brokers.connections, database.in_use, brokers.another_answers)
            cluster = KafkaCluster(brokers)
            acls = KafkaClusterAclSource(brokers)
            image = QuotaImage(admin, cluster.custom_callback, timeout_s=patience.image_s)
            for closing in (admin, database, cluster, acls, image):
                stack.push_async_callback(closing.close)
            backends = Backends(admin, KafkaMetadataQuorum(brokers), image, database)
            journal = PostgresJournal(database)
            authorizer = ClusterAuthorizer(acls, _authorization_policy(self._settings))
            denials = DeniedAttempts(admin.cluster_id, journal)
            stack.push_async_callback(denials.write)
            policy = self._narrowing(denials)
            alterations = Alterations(backends, self._settings, self.metrics.alterations, policy)
            failures = AuthenticationFailures()
            failure_writer = FailureWriter(
                failures,
                partial(record_authentication_failures, database),
                self.metrics.alterations,
            )
            stack.push_async_callback(failure_writer.close)
            audit = AuditTrail(journal, authorizer, admin)
            images = SortedSnapshots()
            shared = SharedServices(authorizer, denials, audit, alterations, images, counted)
            authenticator = open_authenticators(
                self._settings, self.metrics, stack, shared.sessions
            )
            stack.push_async_callback(self._drain, alterations.tasks)
            alterations.begin()
            alterations.tasks.watch(failure_writer.run())
            alterations.tasks.watch(denials.run())
            alterations.tasks.watch(brokers.watch())
            reading = {
                "kafka": partial(_brokers_answer, admin, patience.check_s),
                "acls": partial(_acls_answer, acls),
            }
            self._readiness = Readiness(
                {
                    name: without_addresses(check, lambda: brokers.number)
                    for name, check in reading.items()
                },
                {"audit_log": journal.check_writable, "schema": partial(schema_problem, database)},
                within_s=patience.check_s,
            )
            yield Services(
                authenticator=authenticator,
                authorizer=authorizer,
                denials=denials,
                describe=DescribeQuotas(admin, image, images),
                alter=alterations.alter,
                revert=RevertAlterations(audit, alterations.alter),
                resolve=ResolveQuotas(image),
                audit=audit,
                cluster=admin,
                check_cluster=brokers.check_cluster,
                analytics=Analytics(PostgresAnalytics(database), admin),
                plans=PostgresPlans(database),
                policy=policy,
                scram_users=partial(scram_users, brokers),
                readiness=self._readiness,
                metrics=self.metrics,
                limits=RateLimits(self._limits, self.metrics.count_rate_limited),
                brokers=cluster.versions,
                failures=failures,
                proxies=self.proxies,
            )

    def _narrowing(self, denials: DeniedAttempts) -> NarrowingPolicy | NoPolicy:
        if self._settings.policy_file is None:
            return NoPolicy()
        read = partial(read_policy, self._settings.policy_file)
        self._narrowed = NarrowingPolicy(read, read(), denials.record, self.metrics.policy)
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


async def _acls_answer(acls: KafkaClusterAclSource) -> None:
    """Without them nobody passes, whatever the brokers answer to this service itself."""
    await acls.cluster_acls(max_age_s=MAX_ACL_AGE_S[Operation.DESCRIBE_CONFIGS])
