"""The feed of the log: one reader of this process, whatever the number of its listeners.

It has what came last in memory; whoever is further behind reads the log itself until there. Nothing
is kept for a listener but its position.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Final

from app.domain.errors import NotSentError
from app.metrics import EventMetrics
from app.service.ports.audit_log import AuditQuery, AuditRow
from app.service.ports.brokers import ClusterIdentity
from app.service.ports.events import BEGINNING, EventLog, EventPage, LoggedEvent, LogPosition
from app.service.runtime.tasks import run_forever

logger = logging.getLogger(__name__)

MOST_RECENT: Final = 1_000
"""So many events are in memory, for all listeners together."""

_LOOK_EVERY_S: Final = 0.2
_CATCHING_UP: Final = 2
"""So many listeners at a time read the log itself."""


def selects(query: AuditQuery, row: AuditRow) -> bool:
    """Tell whether a row meets the conditions of a query."""
    return (
        (query.actor is None or row.principal == query.actor)
        and (query.action is None or row.action == query.action)
        and (query.outcome is None or row.outcome == query.outcome)
        and (query.since is None or row.at >= query.since)
        and (query.until is None or row.at < query.until)
        and (query.entity is None or (row.entity is not None and query.entity.matches(row.entity)))
    )


class EventFeed:
    """Follows the log of the cluster while somebody listens.

    Args:
        log: For this feed alone.
        cluster: Whose events are read.
        metrics: Tell how many listen.
    """

    def __init__(self, log: EventLog, cluster: ClusterIdentity, metrics: EventMetrics) -> None:
        self._log = log
        self._cluster = cluster
        self._metrics = metrics
        self._cluster_id = ""
        self._recent: deque[LoggedEvent] = deque()
        self._begin = self._reached = BEGINNING
        self._listeners = 0
        self._joining = asyncio.Lock()
        self._news = asyncio.Event()
        self._catching_up = asyncio.Semaphore(_CATCHING_UP)
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    async def join(self, held: ExitStack) -> None:
        """Follow the log until the end of ``held``.

        Raises:
            NotSentError: The log cannot be read, or the service is stopping.
        """
        self._count(1)
        held.callback(self._leave)
        await self._ensure_reading()

    def _leave(self) -> None:
        self._count(-1)
        if not self._listeners:
            self._stop_reading()

    def _count(self, more: int) -> None:
        self._listeners += more
        self._metrics.listeners_are(self._listeners)

    async def start(self, event_id: str | None, since: datetime | None) -> LogPosition | None:
        """Return where a listener begins: behind an event, at a time, or now.

        Null where the log has no such event.
        """
        if event_id is not None:
            return await self._log.position_of(self._cluster_id, event_id)
        if since is not None:
            return min(self._reached, await self._log.position_at(self._cluster_id, since))
        return self._reached

    async def next(self, after: LogPosition, within_s: float) -> EventPage | None:
        """Return what follows a position, nothing after so many seconds; null where it is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while after >= self._reached and not self._closed:
                    await self._news.wait()
        if self._closed:
            return None
        if after < self._begin:
            async with self._catching_up:
                return await self._log.page(self._cluster_id, after, self._reached)
        events = list(self._since(after))[::-1]
        return EventPage(events, max(after, self._reached))

    def close(self) -> None:
        """End every stream: the service is stopping."""
        self._closed = True
        self._stop_reading()
        self._wake()

    def _since(self, after: LogPosition) -> Iterator[LoggedEvent]:
        for event in reversed(self._recent):
            if event.position <= after:
                return
            yield event

    async def _ensure_reading(self) -> None:
        async with self._joining:
            if self._closed:
                raise NotSentError("The service is stopping; connect again.", code="stopping")
            if self._reading is None:
                self._cluster_id = await self._cluster.cluster_id()
                self._recent.clear()
                self._begin = self._reached = await self._log.settled()
                what = "following the log"
                work = run_forever(what, self._read, pause_s=_LOOK_EVERY_S, logger=logger)
                self._reading = asyncio.create_task(work)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self) -> None:
        settled = await self._log.settled()
        while self._reached < settled:
            page = await self._log.page(self._cluster_id, self._reached, settled)
            self._recent.extend(page.events)
            self._reached = page.reached
            while len(self._recent) > MOST_RECENT:
                self._begin = self._recent.popleft().position
            self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
