"""A run: how much is measured, and its connections, warm from the first call to the last."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Final

from benchmarks.competitors.peers import Peers
from benchmarks.http_connection import HttpConnection, open_http
from benchmarks.stack import Progress, Stack
from benchmarks.wire import Entities, WireQuotas

_MANY: Final = 20_000


@dataclass(frozen=True)
class Plan:
    """Rounds for each section of a run.

    Attributes:
        describes: Exact describes.
        single_alters: Alterations of one entity.
        batch_alters: Alterations of many entities.
        largest_alters: Alterations of as many entities as a request may have.
        shell_alters: Alterations by a process of each kind.
        describe_alls: Describes of everything; ``describe_all_rounds`` tells for how many.
        tool_calls: Runs of kafka-configs, each a Java process; at most ``single_alters``.
        windows: Windows of load for each server and number of connections.
        window_s: The length of a window, in seconds.
        entities: Stored entities, and entities in a large alteration.
        largest: Entities in the largest alteration.
        everything: Numbers of entities that are described all at once.
        large: From so many of them on, what a large cluster is good for is measured too.
        large_describes: Exact describes there.
        paced_windows: Windows of requests at fixed times, for each age of the image.
        paced_s: The length of one, in seconds.
        paced_rate: Requests a second in them.
        end_to_end_windows: Windows of alterations for each arm and number of clients.
        end_to_end_window_s: The length of one, in seconds.
        warm_up: Rounds whose figures are thrown away.
    """

    describes: int = 400
    single_alters: int = 40
    batch_alters: int = 25
    largest_alters: int = 15
    shell_alters: int = 20
    describe_alls: int = 15
    tool_calls: int = 10
    windows: int = 20
    window_s: float = 1.0
    entities: int = 1000
    largest: int = 10_000
    everything: tuple[int, ...] = (10_000,)
    large: int = 100_000
    large_describes: int = 100
    paced_windows: int = 5
    paced_s: float = 6.0
    paced_rate: float = 1000.0
    end_to_end_windows: int = 20
    end_to_end_window_s: float = 1.5
    warm_up: int = 5

    def describe_all_rounds(self, entities: int) -> int:
        """Return the describes of so many entities: a third where each takes a while."""
        return self.describe_alls if entities <= _MANY else max(3, self.describe_alls // 3)


FULL = Plan()
QUICK = Plan(
    describes=3,
    single_alters=3,
    batch_alters=3,
    largest_alters=3,
    shell_alters=2,
    describe_alls=3,
    tool_calls=1,
    windows=3,
    window_s=0.2,
    entities=50,
    largest=500,
    everything=(1000,),
    large=1000,
    large_describes=3,
    paced_windows=1,
    paced_s=0.5,
    paced_rate=100.0,
    end_to_end_windows=2,
    end_to_end_window_s=0.2,
    warm_up=1,
)
"""Shows that everything works; its figures mean nothing."""


@dataclass(frozen=True)
class Run:
    """What is measured: the connections are to the broker, the service and the no-op server."""

    stack: Stack
    plan: Plan
    peers: Peers
    stored: Entities
    wire: WireQuotas
    service: HttpConnection
    noop: HttpConnection
    progress: Progress

    async def store(self, entities: Entities) -> None:
        """Have these entities stored and no others."""
        self.progress.say(f"storing {entities.count:,} entities")
        await self.wire.keep_only(entities)
        await self.wire.store(entities, 1)


@asynccontextmanager
async def opened(stack: Stack, plan: Plan, peers: Peers, progress: Progress) -> AsyncIterator[Run]:
    """Open the connections; close them when the block ends."""
    with (
        closing(await WireQuotas.open(stack.bootstrap_servers)) as wire,
        closing(await open_http(stack.service_port)) as service,
        closing(await open_http(stack.noop_port)) as noop,
    ):
        stored = Entities("bench", plan.entities)
        yield Run(stack, plan, peers, stored, wire, service, noop, progress)
