"""Sessions of callers who brought a user and a password: one login for all their requests.

A session is found again by what the caller brings, and soon forgotten.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Protocol

from app.domain.errors import NotSentError
from app.service.auth.actors import ActorOf
from app.service.runtime.tasks import result_of


class Session(Protocol):
    """What a login opens: connections to brokers, which know the caller by them."""

    @property
    def actor(self) -> ActorOf:
        """Returns what acts for the caller, through these connections."""

    @property
    def is_spoilt(self) -> bool:
        """Whether it is of no more use, such as after its password was refused."""

    async def close(self, *, at_once: bool) -> None:
        """End it: when its alterations have ended, or at once. A second time does nothing."""


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
            content = await result_of(entry.task)
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
