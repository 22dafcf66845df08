"""What a service does while its log is in trouble: many callers ask, and every answer is noted."""

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import httpx

from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, DEADLINE_S, change
from tests.testkit.service import RunningService

ATTEMPTS_PER_S: Final = 20.0
READS_PER_S: Final = 50.0
_CROWD_PATIENCE_S: Final = 120.0
"""A broker takes one alteration at a time, and a busy machine takes its time."""

_LONG_REASON: Final = "r" * 1000
"""An intent with it does not fit into what is left of a page."""


def callers(service: RunningService) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=service.url,
        headers={"Authorization": "Bearer alice"},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        timeout=_CROWD_PATIENCE_S,
    )


@dataclass
class Asked:
    """The answers to one kind of request: (seconds, answer), null where none came."""

    answers: list[tuple[float, httpx.Response | None]] = field(default_factory=list)

    async def ask(self, request: Callable[[], Awaitable[httpx.Response]]) -> None:
        began = time.monotonic()
        try:
            answer: httpx.Response | None = await request()
        except httpx.TransportError:
            answer = None
        self.answers.append((time.monotonic() - began, answer))

    @property
    def p99_ms(self) -> float:
        """The 99th percentile by nearest rank, in milliseconds."""
        times = sorted(seconds for seconds, _ in self.answers)
        return round(times[math.ceil(0.99 * len(times)) - 1] * 1000, 1)

    @property
    def slowest_s(self) -> float:
        return round(max((seconds for seconds, _ in self.answers), default=0.0), 2)

    @property
    def refused_unsent(self) -> int:
        """How many were refused with 503, and nothing was sent."""
        return sum(
            answer is not None
            and answer.status_code == 503
            and problem_of(answer, 503)["sent_to_cluster"] == "no"
            for _, answer in self.answers
        )

    def answered(self, *statuses: int) -> int:
        return sum(
            answer is not None and answer.status_code in statuses for _, answer in self.answers
        )


@dataclass
class Traffic:
    """Attempts to alter and reads, at a steady rate however long an answer takes."""

    team: str = field(default_factory=lambda: unique("trouble"))
    attempts: Asked = field(default_factory=Asked)
    reads: Asked = field(default_factory=Asked)

    async def flow(self, service: RunningService, seconds: float) -> None:
        """Let it flow so long, and until each request is answered."""
        names = (f"{self.team}-{number}" for number in itertools.count())

        def alter(http: httpx.AsyncClient) -> Awaitable[httpx.Response]:
            body = change(next(names), reason=_LONG_REASON, wait="none")
            return http.post(ALTERATIONS, json=body)

        def read(http: httpx.AsyncClient) -> Awaitable[httpx.Response]:
            return http.get("/quotas", params={"filter": "user=nobody", "strict": "true"})

        async with callers(service) as http, asyncio.TaskGroup() as group:
            group.create_task(_at_rate(ATTEMPTS_PER_S, seconds, lambda: alter(http), self.attempts))
            group.create_task(_at_rate(READS_PER_S, seconds, lambda: read(http), self.reads))


async def _at_rate(
    per_s: float, seconds: float, ask: Callable[[], Awaitable[httpx.Response]], asked: Asked
) -> None:
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(seconds * per_s)):
            await asyncio.sleep(began + number / per_s - time.monotonic())
            group.create_task(asked.ask(ask))


async def until_answered(service: RunningService, status: int) -> float:
    """Alter until that is the answer; return how long that took, in seconds."""
    began = time.monotonic()
    async with callers(service) as http, asyncio.timeout(DEADLINE_S):
        while True:
            body = change(unique("until"), reason=_LONG_REASON, wait="none")
            if (await http.post(ALTERATIONS, json=body)).status_code == status:
                return time.monotonic() - began
