"""Builds what alterations run on, and the sessions of callers who log in at the brokers."""

import asyncio
import logging
import os
import secrets
import socket
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.http.errors import LoginFailedError
from app.kafka.acls import KafkaCallerRights
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaMetadataQuorum
from app.kafka.config import KafkaLogin, ssl_context
from app.kafka.handshake import LoginRefusedError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.postgres.schema import keep_house, months_ahead
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.alterations.replace import RevertAlterations
from app.service.alterations.write_ahead import AlterContext, EntityLocks, OutcomeWriter
from app.service.auth.authorize import AuditTrail, BrokerAuthorizer, ClusterAuthorizer, PolicyGuard
from app.service.auth.denials import DeniedAttempts
from app.service.auth.sessions import (
    AlterAsCaller,
    CallerQuotaAdmin,
    CallerServices,
    RecordReader,
    Sessions,
)
from app.service.ports.brokers import QuotaReader
from app.service.ports.metrics import AlterationMetrics, DependencyMetrics
from app.service.queries.describe import DescribeQuotas, SortedSnapshots
from app.service.queries.resolve import QuotaImage, ResolveQuotas
from app.service.recovery import DriftWatch, Recovery
from app.service.runtime.dependencies import CircuitBreaker
from app.service.runtime.tasks import AlterationTasks, SessionTasks, run_forever
from app.settings import Settings

_LOG_IS_DOWN: Final = (
    "The audit log has not answered several times in a row; nothing was sent. It is tried again "
    "every two seconds."
)


_KEEP_S: Final = 60.0
"""How often missing partitions are made, three months ahead, and expired rows removed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backends:
    """What alterations run on: the cluster and the log."""

    admin: KafkaClientQuotaAdmin
    quorum: KafkaMetadataQuorum
    image: QuotaImage
    database: Database


class Alterations:
    """What all alterations share, whoever they are sent as, under a name of this process."""

    def __init__(
        self,
        backends: Backends,
        settings: Settings,
        metrics: AlterationMetrics,
        policy: PolicyGuard,
    ) -> None:
        admin, database, patience = backends.admin, backends.database, settings.patience
        self.backends = backends
        self.tasks = AlterationTasks()
        watch = partial(metrics.breaker_is, "postgres")
        journal, final_after_s = PostgresJournal(database), settings.test_final_after_s
        self.context = AlterContext(
            owner_name(),
            backends.image,
            journal,
            PostgresRecovery(database, final_after_s=final_after_s),
            OutcomeWriter(journal, self.tasks, metrics, wait_s=patience.record_s),
            metrics,
            CircuitBreaker("audit-log-unavailable", _LOG_IS_DOWN, watch=watch),
            settings.test_failpoint,
            policy,
            patience,
            locks=EntityLocks(patience.entity_wait_s),
        )
        self.alter = AlterQuotas(self.context, admin, self.barrier(admin), self.tasks)
        barrier = self.barrier(admin)
        self._recovery = Recovery(admin, backends.quorum, barrier, self.context, final_after_s)
        self._drift = DriftWatch(
            admin,
            barrier,
            PostgresDriftJournal(database),
            metrics,
            interval_s=settings.drift_interval_s,
        )

    def barrier(self, reader: QuotaReader) -> Barrier:
        """Return a barrier with values as the reader gets them.

        It is set with the service's own account in any case: it tells no quota, and callers who may
        not ask for it would have their expectations judged by a stale read.
        """
        within_s = self.context.patience.check_s
        return Barrier(self.backends.quorum, CurrentValues(reader), within_s=within_s)

    def begin(self) -> None:
        """Recover, watch and keep partitions in the background."""
        database, metrics = self.backends.database, self.context.metrics

        async def count() -> None:
            metrics.partitions_reach(await months_ahead(database))

        keep = partial(keep_house, database)
        self.tasks.watch(self._recovery.run())
        self.tasks.watch(self._drift.run())
        self.tasks.watch(run_forever("keeping the log", keep, pause_s=_KEEP_S, logger=logger))
        self.tasks.watch(run_forever("counting partitions", count, pause_s=_KEEP_S, logger=logger))


def owner_name() -> str:
    """Return a name for this process in the log, which no other process has had."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"


_LOGINS_AT_ONCE: Final = 16
"""So that a crowd of unknown callers takes no more of the brokers."""


class CallerSession:
    """One caller's connections, and the services upon them."""

    def __init__(
        self, brokers: Brokers, admin: KafkaClientQuotaAdmin, user: str, shared: "SharedServices"
    ) -> None:
        principal = f"User:{user}"
        self._brokers = brokers
        self._admin = admin
        self._rights = KafkaCallerRights(brokers, admin)
        self._tasks = SessionTasks(shared.alterations.tasks)
        authorizer = BrokerAuthorizer(self._rights, shared.authorizer)
        as_caller = CallerQuotaAdmin(admin, self._rights, principal)
        image = shared.alterations.backends.image
        # Quotas have no ACLs of their own, so whoever may describe shares the image that is there.
        describe_now = partial(
            as_caller.describe_client_quotas, ALL_ENTITIES, timeout_s=brokers.patience.image_s
        )
        barrier = shared.alterations.barrier(
            RecordReader(as_caller, shared.alterations.backends.admin)
        )
        alter = AlterAsCaller(
            shared.alterations.context, as_caller, barrier, self._tasks, shared.denials
        )
        self.services = CallerServices(
            authorizer,
            DescribeQuotas(as_caller, image, shared.images, describe_now),
            alter,
            RevertAlterations(shared.audit, alter),
            ResolveQuotas(image, describe_now),
        )

    @property
    def is_spoilt(self) -> bool:
        """Whether the brokers have refused the password since."""
        return self._brokers.login_was_refused

    async def close(self, *, at_once: bool) -> None:
        """Drop the connections, when the last alteration has ended or at once."""
        try:
            if not at_once:
                await self._tasks.quiet()
        finally:
            await self._rights.close()
            await self._admin.close()


@dataclass(frozen=True, slots=True)
class SharedServices:
    """What the sessions of all callers share: nothing in it asks a broker what a caller may ask."""

    authorizer: ClusterAuthorizer
    denials: DeniedAttempts
    audit: AuditTrail
    alterations: Alterations
    images: SortedSnapshots
    metrics: DependencyMetrics

    def sessions(self, login: KafkaLogin) -> Sessions:
        """Return the sessions of callers who log in like this, of which there are none yet."""
        context, pending = (
            ssl_context(login("user", "password")),
            asyncio.Semaphore(_LOGINS_AT_ONCE),
        )

        async def open_session(user: str, password: str) -> CallerSession:
            brokers = Brokers(
                login(user, password),
                self.metrics,
                context=context,
                one_login=True,
                patience=self.alterations.context.patience,
            )
            try:
                await self._log_in(brokers, pending)
                admin = KafkaClientQuotaAdmin(brokers, keeps_everything=False)
                return CallerSession(brokers, admin, user, self)
            except BaseException:
                await brokers.close()
                raise

        return Sessions(open_session)

    async def _log_in(self, brokers: Brokers, pending: asyncio.Semaphore) -> None:
        """Log in.

        Raises:
            LoginFailedError: The brokers do not accept the user with this password.
            NotSentError: They cannot be reached in time, or are of another cluster.
        """
        within_s = brokers.patience.broker_answer_s
        deadline = asyncio.get_running_loop().time() + within_s
        try:
            async with asyncio.timeout(within_s):
                try:
                    async with pending:
                        view = await brokers.view(deadline)
                except LoginRefusedError:
                    detail = "The brokers do not accept this user with this password."
                    raise LoginFailedError(detail) from None
                ours = await self.alterations.backends.admin.cluster_id()
        except TimeoutError:
            raise NotSentError("The login took too long.", code="cluster-unreachable") from None
        if view.cluster_id != ours:
            detail = "QUOTAS_BASIC_BOOTSTRAP_SERVERS leads to another cluster."
            raise NotSentError(detail, code="cluster-unreachable")
