"""Callers who brought a user and a password: their requests run as them, in sessions.

A refusal is the caller's own, not this service's. A session is found again, and soon forgotten.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from app.domain.alterations import KafkaRefusal
from app.domain.authorization import Operation
from app.domain.errors import (
    BrokerError,
    ClusterAuthorizationError,
    NotSentError,
    QuotaError,
    Retry,
)
from app.service.alterations.alter import AlterQuotas, no_check
from app.service.alterations.barrier import Barrier
from app.service.alterations.replace import RevertAlterations
from app.service.alterations.write_ahead import AlterContext
from app.service.auth.authorize import NOT_AUTHORIZED, RULE, Authorizer, lacks
from app.service.auth.denials import DeniedAttempt, DeniedAttempts, requested_change
from app.service.ports.alterations import Alteration, AlterationRecord
from app.service.ports.brokers import (
    ClientQuotaAdmin,
    ClusterRights,
    Described,
    Handover,
    QuotaReader,
    Verdict,
)
from app.service.queries.describe import DescribeQuotas
from app.service.queries.resolve import ResolveQuotas
from app.service.runtime.tasks import Tasks


@dataclass(eq=False)
class RefusedAtTheActError(ClusterAuthorizationError, NotSentError):
    """The broker refused the caller a read that the service thought allowed.

    For the caller it is a 403, and repeating is of no use before an ACL is changed; for the log it
    is an alteration of which nothing was sent.
    """

    retry: Retry = Retry.NEVER


class RecordReader:
    """Reads what an alteration is recorded and answered with: as the caller, else as this service.

    To alter, ALTER_CONFIGS is enough for a broker and for this service alike, and what held before
    belongs to an alteration's record. So a caller who may alter and not describe is not refused for
    the sake of the record.
    """

    def __init__(self, as_caller: QuotaReader, as_service: QuotaReader) -> None:
        self._as_caller = as_caller
        self._as_service = as_service

    async def describe_client_quotas(self, *asked: Any, **options: Any) -> Described:
        """See ``QuotaReader``."""
        try:
            return await self._as_caller.describe_client_quotas(*asked, **options)
        except RefusedAtTheActError:
            return await self._as_service.describe_client_quotas(*asked, **options)


class CallerQuotaAdmin:
    """See ``ClientQuotaAdmin``; no earlier answer outlives a refusal."""

    def __init__(self, admin: ClientQuotaAdmin, rights: ClusterRights, principal: str) -> None:
        self._admin = admin
        self.live_brokers = admin.live_brokers
        self.preferred_broker = admin.preferred_broker
        self.cluster_id = admin.cluster_id
        self._rights = rights
        self._principal = principal

    async def describe_client_quotas(self, *asked: Any, **options: Any) -> Described:
        """See ``ClientQuotaAdmin``.

        Raises:
            RefusedAtTheActError: The caller lacks DESCRIBE_CONFIGS.
        """
        try:
            return await self._admin.describe_client_quotas(*asked, **options)
        except QuotaError as error:
            if error.kafka_error != NOT_AUTHORIZED:
                raise
            self._rights.forget()
            detail = lacks(self._principal, Operation.DESCRIBE_CONFIGS)
            raise RefusedAtTheActError(detail, kafka_error=NOT_AUTHORIZED) from error

    async def alter_client_quotas(self, *asked: Any, **options: Any) -> Handover:
        """See ``ClientQuotaAdmin``; a refusal of the caller says so."""
        answer = await self._admin.alter_client_quotas(*asked, **options)
        verdicts = {
            entity: self._own_verdict(verdict) for entity, verdict in answer.verdicts.items()
        }
        return replace(answer, verdicts=verdicts)

    def _own_verdict(self, verdict: Verdict) -> Verdict:
        if verdict.error is None or verdict.error.kafka_error != NOT_AUTHORIZED:
            return verdict
        self._rights.forget()
        message = lacks(self._principal, Operation.ALTER_CONFIGS)
        return replace(verdict, error=KafkaRefusal(NOT_AUTHORIZED, message))


class AlterAsCaller(AlterQuotas):
    """Answers ``POST /quotas/alterations`` with the broker's own refusals.

    What was thought allowed and is refused at the act is recorded as a denied attempt. The
    connections of ``admin`` are logged in as the caller.
    """

    def __init__(
        self,
        context: AlterContext,
        admin: ClientQuotaAdmin,
        barrier: Barrier,
        tasks: Tasks,
        denials: DeniedAttempts,
    ) -> None:
        super().__init__(context, admin, barrier, tasks)
        self._denials = denials

    async def alter(
        self, alteration: Alteration, check: Callable[[], None] = no_check
    ) -> AlterationRecord:
        """See ``AlterQuotas``.

        Raises:
            ClusterAuthorizationError: The broker refused the caller, at the act.
        """
        try:
            return await super().alter(alteration, check)
        except RefusedAtTheActError as error:
            refusal = ClusterAuthorizationError(error.detail, kafka_error=NOT_AUTHORIZED)
        except BrokerError as error:
            if error.kafka_error != NOT_AUTHORIZED or error.results is None:
                raise
            refusal = ClusterAuthorizationError(
                lacks(alteration.caller.principal, Operation.ALTER_CONFIGS),
                kafka_error=NOT_AUTHORIZED,
                sent=error.sent,
                violations=error.violations,
                alteration_id=error.alteration_id,
                results=error.results,
            )
        await self._denials.record(alteration.caller, refusal, _attempt(alteration))
        raise refusal


def _attempt(alteration: Alteration) -> DeniedAttempt:
    evidence = {**alteration.evidence, "allowed": False, "rule": RULE, "asked": "AlterClientQuotas"}
    route = "POST /quotas/alterations"
    if alteration.action == "revert":
        route += "/…/revert"
    read = requested_change(alteration.changes, alteration.reason)
    return DeniedAttempt(alteration.request_id, route, evidence, read)


@dataclass(frozen=True, slots=True)
class CallerServices:
    """What a caller has instead of everybody's, whose requests run as the caller."""

    authorizer: Authorizer
    describe: DescribeQuotas
    alter: AlterQuotas
    revert: RevertAlterations
    resolve: ResolveQuotas


class Session(Protocol):
    """What a login opens: services whose requests run as the caller."""

    @property
    def services(self) -> CallerServices:
        """What answers the caller."""

    @property
    def is_spoilt(self) -> bool:
        """Whether it is of no more use, such as after its password was refused."""

    async def close(self, *, at_once: bool) -> None:
        """End it: when what goes on in it has ended, or at once. A second time does nothing."""


MOST_SESSIONS: Final = 256
"""So many there are at a time; the one that was not used for longest goes first."""

MOST_LOGINS: Final = 64
"""So many logins may be in flight: callers whose password is not proved end nobody's session."""

IDLE_S: Final = 60.0
"""A session that nobody uses for so long ends, and with it the memory of the password."""

LONGEST_S: Final = 300.0
"""A session that is older is not taken again: the password is proved anew."""

_LENGTH_BYTES: Final = 4


@dataclass(eq=False, slots=True)
class _Entry:
    """One session, from the begin of its login on."""

    key: bytes
    task: asyncio.Task[Session]
    begun_at: float
    leases: int = 0
    idle: asyncio.TimerHandle | None = None
    is_retired: bool = False


class SessionLease:
    """The right to use a session, until it is released."""

    def __init__(self, content: Session, entry: _Entry, sessions: "Sessions") -> None:
        self.content = content
        self._entry: _Entry | None = entry
        self._sessions = sessions

    def release(self) -> None:
        """Give it back; a second time nothing happens."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._sessions.give_back(entry)


class Sessions:
    """One session for each user and password, opened by one login for all who wait for it.

    A session is found by a keyed hash of both, whose key is as old as this process: nothing here
    holds a password. A session that is in use is never closed under those who use it.
    """

    def __init__(
        self,
        opening: Callable[[str, str], Coroutine[Any, Any, Session]],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opening = opening
        self._now = now
        self._process_key = secrets.token_bytes(32)
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._open: set[Session] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, user: str, password: str) -> bool:
        """Tell whether ``lease`` would need no login of its own."""
        return self._usable(self._key(user, password)) is not None

    async def lease(self, user: str, password: str) -> SessionLease:
        """Return the session of these credentials; log in where there is none.

        Raises:
            NotSentError: There are too many sessions, all in use, or what ``opening`` raises.
        """
        key = self._key(user, password)
        entry = self._usable(key) or self._open_entry(key, user, password)
        self._entries.move_to_end(key)
        entry.leases += 1
        if entry.idle is not None:
            entry.idle.cancel()
            entry.idle = None
        try:
            content = await asyncio.shield(entry.task)
        except BaseException:
            self.give_back(entry)
            raise
        return SessionLease(content, entry, self)

    def give_back(self, entry: _Entry) -> None:
        """Let a session rest, or end, that one user less has."""
        entry.leases -= 1
        if entry.leases:
            return
        if entry.is_retired:
            self._end(entry)
        else:
            entry.idle = asyncio.get_running_loop().call_later(IDLE_S, self._retire, entry)

    async def close(self) -> None:
        """End every session, whoever uses it."""
        self._closed = True
        in_flight = [*self._ending, *(entry.task for entry in self._entries.values())]
        for task in in_flight:
            task.cancel()
        for entry in list(self._entries.values()):
            self._retire(entry)
        await asyncio.gather(*in_flight, return_exceptions=True)
        await asyncio.gather(*(each.close(at_once=True) for each in self._open))
        self._open.clear()

    def _key(self, user: str, password: str) -> bytes:
        name = user.encode()
        text = len(name).to_bytes(_LENGTH_BYTES, "big") + name + password.encode()
        return hmac.digest(self._process_key, text, hashlib.sha256)

    def _usable(self, key: bytes) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None or not self._is_old(entry):
            return entry
        self._retire(entry)
        return None

    def _is_old(self, entry: _Entry) -> bool:
        task = entry.task
        if self._now() - entry.begun_at > LONGEST_S:
            return True
        if not task.done():
            return False
        failed = task.cancelled() or task.exception() is not None
        return failed or task.result().is_spoilt

    def _open_entry(self, key: bytes, user: str, password: str) -> _Entry:
        if self._closed:
            raise NotSentError("The service is stopping; nothing was sent.", code="stopping")
        self._refuse_too_many()
        task = asyncio.create_task(self._opening(user, password), context=Context())
        entry = self._entries[key] = _Entry(key, task, self._now())
        task.add_done_callback(lambda _: self._finish_login(entry))
        return entry

    def _refuse_too_many(self) -> None:
        ready = [entry for entry in self._entries.values() if entry.task.done()]
        if len(self._entries) - len(ready) >= MOST_LOGINS:
            detail = f"{MOST_LOGINS} logins are in progress."
        elif len(ready) >= MOST_SESSIONS and all(entry.leases for entry in ready):
            detail = f"There are {MOST_SESSIONS} sessions of callers, and all are in use."
        else:
            return
        raise NotSentError(detail, code="too-many-sessions", retry_after_s=1)

    def _evict(self, newest: _Entry) -> None:
        """End the session that was unused for longest; without one the newest is used once."""
        ready = [entry for entry in self._entries.values() if entry.task.done()]
        if len(ready) > MOST_SESSIONS:
            self._retire(next((entry for entry in ready if not entry.leases), newest))

    def _finish_login(self, entry: _Entry) -> None:
        if entry.task.cancelled() or entry.task.exception() is not None:
            self._retire(entry)
        else:
            self._open.add(entry.task.result())
            self._evict(entry)

    def _retire(self, entry: _Entry) -> None:
        """Give it to nobody any more; end it when nobody has it."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        entry.is_retired = True
        if not entry.leases:
            self._end(entry)

    def _end(self, entry: _Entry) -> None:
        if entry.idle is not None:
            entry.idle.cancel()
        if self._closed:
            return
        ending = asyncio.create_task(self._close_when_ready(entry.task), context=Context())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _close_when_ready(self, task: asyncio.Task[Session]) -> None:
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            await task.result().close(at_once=False)
            self._open.discard(task.result())
