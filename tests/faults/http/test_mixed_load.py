"""Callers of every kind for a long time: what the service holds does not grow."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import httpx
import psutil
import pytest

from tests.faults.http.trouble import callers
from tests.testkit.history.checker import note_figures
from tests.testkit.http import head
from tests.testkit.outages import ALTERATIONS, change
from tests.testkit.service import RunningService
from tests.testkit.sizes import SEED

pytestmark = pytest.mark.long

CALLERS: Final = 12
ROUND: Final = 600
"""Requests, each of a kind that chance chooses."""

WARM_UP: Final = 4
"""After so many rounds every cache is as full as it gets."""

ROUNDS: Final = 10
MOST_MB: Final = 20
MOST_FILES: Final = 20
TEAM: Final = [f"mixed-{number}" for number in range(300)]

Ask = Callable[[httpx.AsyncClient, random.Random], Awaitable[object]]


def any_name(chance: random.Random) -> str:
    return f"{chance.getrandbits(64):x}"


async def describe(http: httpx.AsyncClient, chance: random.Random) -> None:
    await answered(http.get("/quotas", params={"filter": f"user={chance.choice(TEAM)}"}), 200)


async def describe_all(http: httpx.AsyncClient, chance: random.Random) -> None:
    accept = chance.choice(("application/json", "text/csv", "application/yaml"))
    await answered(http.get("/quotas", headers={"Accept": accept}), 200)


async def resolve(http: httpx.AsyncClient, chance: random.Random) -> None:
    query = {"user": any_name(chance), "client-id": any_name(chance)}
    await answered(http.get("/quotas/resolve", params=query), 200)


async def resolve_many(http: httpx.AsyncClient, chance: random.Random) -> None:
    identities = [{"user": any_name(chance), "client-id": "etl"} for _ in range(50)]
    await answered(http.post("/quotas/resolve", json={"identities": identities}), 200)


async def alter(http: httpx.AsyncClient, chance: random.Random) -> None:
    body = change(chance.choice(TEAM), chance.randrange(1, 10**9), wait="none")
    key = {"Idempotency-Key": any_name(chance)}
    await answered(http.post(ALTERATIONS, json=body, headers=key), 200, 409)


async def plan(http: httpx.AsyncClient, chance: random.Random) -> None:
    values = {"producer_byte_rate": chance.randrange(1, 10**9)}
    quotas = [{"entity": {"user": chance.choice(TEAM)}, "values": values}]
    document = {"apiVersion": "quotas/v1", "quotas": quotas}
    await answered(http.post("/quotas/plans", json={"document": document}), 200, 201, 429)


async def read_log(http: httpx.AsyncClient, chance: random.Random) -> None:
    page = {"page_size": str(chance.choice((1, 10, 200))), "entity": f"user={chance.choice(TEAM)}"}
    await answered(http.get("/audit", params=page), 200)


async def denied(http: httpx.AsyncClient, chance: random.Random) -> None:
    headers = {"Authorization": "Bearer mallory"}
    body = change(any_name(chance))
    await answered(http.post(ALTERATIONS, json=body, headers=headers), 403)


async def unreadable(http: httpx.AsyncClient, chance: random.Random) -> None:
    body = {"alterations": [{any_name(chance): 1}] * 20}
    await answered(http.post(ALTERATIONS, json=body), 400)


async def measure(http: httpx.AsyncClient, chance: random.Random) -> None:
    await answered(http.get(chance.choice(("/metrics", "/readyz", "/metrics/quotas"))), 200)


async def hang_up(http: httpx.AsyncClient, chance: random.Random) -> None:
    """Send a request, or half of it, and go away."""
    whole = head("GET /quotas HTTP/1.1", "Authorization: Bearer alice")
    body = head(f"POST {ALTERATIONS} HTTP/1.1", "Authorization: Bearer alice", "Content-Length: 99")
    _, writer = await connection(http)
    writer.write(chance.choice((whole, whole[:40], body, body + b"{")))
    await writer.drain()
    writer.transport.abort()


async def read_slowly(http: httpx.AsyncClient, chance: random.Random) -> None:
    """Ask for everything several times, read a little, and go away."""
    reader, writer = await connection(http)
    writer.write(head("GET /quotas HTTP/1.1", "Authorization: Bearer alice") * 5)
    await reader.read(chance.choice((1, 100, 5_000)))
    writer.transport.abort()


async def connection(
    http: httpx.AsyncClient,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(http.base_url.host, http.base_url.port)


async def answered(asking: Awaitable[httpx.Response], *statuses: int) -> None:
    answer = await asking
    assert answer.status_code in statuses, (
        f"{answer.request.url} {answer.status_code} {answer.text}"
    )


KINDS: Final[dict[Ask, int]] = {
    describe: 10,
    describe_all: 2,
    resolve: 20,
    resolve_many: 3,
    alter: 8,
    plan: 2,
    read_log: 3,
    denied: 4,
    unreadable: 2,
    measure: 2,
    hang_up: 4,
    read_slowly: 2,
}
"""By what is asked: how often."""


async def test_memory_and_open_files_do_not_grow_under_a_mixed_load(
    service: RunningService,
) -> None:
    assert service.process is not None
    process, chance = psutil.Process(service.process.pid), random.Random(SEED)
    asked, sizes = Counter[str](), list[tuple[float, int]]()
    async with callers(service) as http:
        for _ in range(ROUNDS):
            await make_calls(http, chance, asked)
            sizes.append((round(process.memory_info().rss / 2**20, 1), process.num_fds()))
    warm, most = sizes[WARM_UP - 1][0], max(mb for mb, _ in sizes[WARM_UP:])
    note_figures(
        {
            "requests": sum(asked.values()),
            "resident after each round, MB": str([mb for mb, _ in sizes]),
            "descriptors after each round": str([files for _, files in sizes]),
        }
    )
    assert most - warm <= MOST_MB, sizes
    assert sizes[-1][1] - sizes[WARM_UP - 1][1] <= MOST_FILES, sizes


async def make_calls(http: httpx.AsyncClient, chance: random.Random, asked: Counter[str]) -> None:
    chosen = iter(chance.choices(list(KINDS), list(KINDS.values()), k=ROUND))

    async def call() -> None:
        for ask in chosen:
            asked[ask.__name__] += 1
            await ask(http, chance)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call())
