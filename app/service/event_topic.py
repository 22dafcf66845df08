"""The topic of events: one process copies the log into it, in order, at least once.

The position moves after the brokers have acknowledged what is before it. So a process that takes
over repeats some events, whose ids are the same, and leaves none out.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from app.domain.errors import NotSentError
from app.metrics import EventMetrics
from app.service.ports.brokers import ClusterIdentity
from app.service.ports.events import (
    EventLog,
    LoggedEvent,
    LogPosition,
    Record,
    Topic,
    TopicPositions,
)
from app.service.runtime.tasks import run_forever

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.25
_AGAIN_S: Final = 1.0
_CLAIM_EVERY_S: Final = 3.0
_COUNT_EVERY_S: Final = 5.0
_TYPE: Final = "kafka.quota.alteration"
_EXPIRY: Final = "expire"
_ENDS: Final = frozenset({"outcome", "validated"})


def record_of(event: LoggedEvent) -> Record:
    """Return an event as a record. Source: CloudEvents' Kafka protocol binding, binary mode."""
    is_expiry = event.row.action == _EXPIRY and event.kind in _ENDS
    headers = {
        "ce_specversion": "1.0",
        "ce_id": event.id,
        "ce_type": f"{_TYPE}.{_EXPIRY if is_expiry else event.kind}",
        "ce_source": f"/clusters/{event.row.cluster_id}",
        "ce_time": f"{event.occurred_at.isoformat(timespec='milliseconds')[:-6]}Z",
        "content-type": "application/json",
    }
    text = None if event.entity is None else event.entity.canonical_json()
    key = None if text is None else text.encode("utf-8", "surrogatepass")
    return Record(key, event.document, [(name, value.encode()) for name, value in headers.items()])


@dataclass
class EventProducer:
    """Copies the log into a topic, if no other process does."""

    log: EventLog
    positions: TopicPositions
    topic: Topic
    cluster: ClusterIdentity
    metrics: EventMetrics
    owner: str
    _reached: LogPosition | None = field(default=None, init=False)
    _claimed_at: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Produce until cancelled; what fails is tried again."""
        what = f"producing to the topic {self.topic.name}"
        await run_forever(what, self.round, pause_s=_PAUSE_S, logger=logger)

    async def count(self) -> None:
        """Measure until cancelled how far the topic is behind, whoever produces."""
        what = f"measuring the topic {self.topic.name}"
        await run_forever(what, self._measure, pause_s=_COUNT_EVERY_S, logger=logger)

    async def round(self) -> None:
        """Produce what the topic does not have yet."""
        try:
            cluster_id = await self.cluster.cluster_id()
            if await self._claim(cluster_id):
                await self._produce(cluster_id)
        except Exception:
            self._reached = None
            self.metrics.topic_failed()
            await asyncio.sleep(_AGAIN_S)
            raise

    async def close(self) -> None:
        """Give up what is not acknowledged, and let another process produce at once."""
        await self.topic.close()
        with suppress(NotSentError):  # then another produces when the lease is over
            await self.positions.give_back(self.topic.name, self.owner)

    async def _claim(self, cluster_id: str) -> bool:
        now = asyncio.get_running_loop().time()
        if self._reached is None or now - self._claimed_at > _CLAIM_EVERY_S:
            is_new = self._reached is None
            self._claimed_at = now
            self._reached = await self.positions.claim(cluster_id, self.topic.name, self.owner)
            if is_new and self._reached is not None:
                await self.topic.append(())  # what is missing is reported before there are events
        return self._reached is not None

    async def _produce(self, cluster_id: str) -> None:
        settled = await self.log.settled()
        while self._reached is not None and self._reached < settled:
            page = await self.log.page(cluster_id, self._reached, settled)
            if page.events:
                await self.topic.append(list(map(record_of, page.events)))
            name = self.topic.name
            if not await self.positions.move(cluster_id, name, self.owner, page.reached):
                raise NotSentError(f"Another process produces to {name} now.")
            self._reached, self._claimed_at = page.reached, asyncio.get_running_loop().time()
            self.metrics.events_produced(len(page.events))

    async def _measure(self) -> None:
        cluster_id = await self.cluster.cluster_id()
        self.metrics.topic_is_behind(*await self.positions.backlog(cluster_id, self.topic.name))
