"""Sessions of callers who bring a user and a password: everything in them asks as the caller."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.domain.errors import NotSentError
from app.http.errors import LoginFailedError
from app.http.services import CallerServices
from app.kafka.acls import KafkaCallerRights
from app.kafka.cluster_client import Brokers
from app.kafka.config import PassThrough, ssl_context
from app.kafka.handshake import LoginRefusedError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.kafka.sessions import Sessions
from app.lives import AlterationRoom
from app.service.alterations.revert import RevertAlterations
from app.service.auth.authorize import BrokerAuthorizer, ClusterAuthorizer
from app.service.auth.denials import DeniedAttempts
from app.service.auth.run_as_caller import (
    AlterAsCaller,
    CallerImage,
    CallerQuotaAdmin,
    RecordReader,
)
from app.service.ports.brokers import CallbackDetector
from app.service.ports.metrics import DependencyMetrics
from app.service.queries.audit import AuditTrail
from app.service.queries.describe import DescribeQuotas, SortedSnapshots
from app.service.queries.resolve import IndexCache, ResolveQuotas
from app.service.runtime.tasks import SessionTasks

_LOGINS_AT_ONCE: Final = 16
"""So that a crowd of unknown callers takes no more of the brokers."""


@dataclass(frozen=True, slots=True)
class SharedServices:
    """What the sessions of all callers share: nothing in it asks a broker what a caller may ask."""

    authorizer: ClusterAuthorizer
    denials: DeniedAttempts
    audit: AuditTrail
    room: AlterationRoom
    callbacks: CallbackDetector
    images: SortedSnapshots
    index: IndexCache
    metrics: DependencyMetrics


class CallerSession:
    """One caller's connections, and the services upon them."""

    def __init__(
        self, brokers: Brokers, admin: KafkaClientQuotaAdmin, user: str, shared: SharedServices
    ) -> None:
        principal = f"User:{user}"
        self._brokers = brokers
        self._admin = admin
        self._rights = KafkaCallerRights(brokers, admin)
        self._tasks = SessionTasks(shared.room.tasks)
        authorizer = BrokerAuthorizer(self._rights, shared.authorizer)
        as_caller = CallerQuotaAdmin(admin, self._rights, principal)
        within_s = brokers.patience.image_s
        image = CallerImage(as_caller, shared.room.outside.image, within_s=within_s)
        reader = RecordReader(as_caller, shared.room.outside.admin)
        parts = shared.room.parts(as_caller, self._tasks, reader)
        alter = AlterAsCaller(parts, principal, shared.denials)
        self.services = CallerServices(
            authorizer,
            DescribeQuotas(as_caller, image, shared.images),
            alter,
            RevertAlterations(shared.audit, alter),
            ResolveQuotas(image, shared.callbacks, shared.index),
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


class Logins:
    """Opens sessions.

    Args:
        way: How callers are logged in.
        shared: What their sessions have in common.
    """

    def __init__(self, way: PassThrough, shared: SharedServices) -> None:
        self._way = way
        self._shared = shared
        self._context = ssl_context(way.settings("user", "password"))
        self._places = asyncio.Semaphore(_LOGINS_AT_ONCE)

    async def open(self, user: str, password: str) -> CallerSession:
        """Log in.

        Raises:
            LoginFailedError: The brokers do not accept the user with this password.
            NotSentError: They cannot be reached, or are of another cluster.
        """
        settings = self._way.settings(user, password)
        brokers = Brokers(
            settings,
            self._shared.metrics,
            context=self._context,
            one_login=True,
            patience=self._shared.room.context.patience,
        )
        try:
            async with asyncio.timeout(brokers.patience.broker_answer_s):
                await self._log_in(brokers)
            return CallerSession(
                brokers, KafkaClientQuotaAdmin(brokers, keeps_everything=False), user, self._shared
            )
        except TimeoutError:
            await brokers.close()
            raise NotSentError("The login took too long.", code="cluster-unreachable") from None
        except BaseException:
            await brokers.close()
            raise

    async def _log_in(self, brokers: Brokers) -> None:
        deadline = asyncio.get_running_loop().time() + brokers.patience.broker_answer_s
        async with self._places:
            try:
                view = await brokers.view(deadline)
            except LoginRefusedError:
                detail = "The brokers do not accept this user with this password."
                raise LoginFailedError(detail) from None
        ours = await self._shared.room.outside.admin.cluster_id()
        if view.cluster_id != ours:
            detail = "QUOTAS_BASIC_BOOTSTRAP_SERVERS leads to another cluster."
            raise NotSentError(detail, code="cluster-unreachable")


OpenSessions = Callable[[PassThrough], Sessions[CallerSession]]
"""Makes the sessions of a way to log in, once what they share is open."""


def open_sessions(shared: SharedServices, way: PassThrough) -> Sessions[CallerSession]:
    """Return the sessions, of which there are none yet."""
    return Sessions(Logins(way, shared).open)
