"""Clients that alter quotas over HTTP, whatever happens to the service, and note what they saw."""

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, groupby
from typing import Any, Final

import httpx

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Answer, Call, End, Write, answer_of
from tests.testkit.kafka import unique
from tests.testkit.patience import DEADLINE_S
from tests.testkit.service import PLAIN_HTTP
from tests.testkit.sizes import SEED, size

_POLL_S: Final = 0.05
_BACK_OFF_S: Final = 0.5
_UNAVAILABLE: Final = 503
_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate")
_PATH: Final = "/quotas/alterations"
_SHAPES: Final = (("user",), ("client-id",), ("user", "client-id"))


@dataclass(frozen=True)
class Load:
    """How much, and of what kind.

    Attributes:
        clients: Who call at the same time.
        entities: How many entities they share.
        pause_s: The longest that a client thinks before a call, in seconds.
        first_value: The least value that is written; null is one that no earlier load had.
    """

    clients: int = 6
    entities: int = 30
    pause_s: float = size(1.0, 0.2)
    first_value: int | None = None
    name: str = field(default_factory=lambda: unique("load"))


_SEVERAL: Final = 0.2
"""The share of requests for two or three entities."""

_KEYED: Final = 0.15
"""The share of requests with an ``Idempotency-Key``, each sent three times at once."""

_EXPECTING: Final = 0.15
"""The share of requests that name the value that they believe to hold."""


@dataclass(frozen=True)
class Plan:
    """One request to be."""

    writes: tuple[Write, ...]
    expected: tuple[Write, ...] = ()
    key: str | None = None

    def body(self) -> Mapping[str, Any]:
        wanted = {(item.entity, item.key): item.value for item in self.expected}
        alterations = []
        for entity, writes in groupby(self.writes, key=lambda write: write.entity):
            ops = [{"key": write.key, "value": write.value} for write in writes]
            alteration = {"entity": entity.as_dict(), "ops": ops}
            held = {key: value for (of, key), value in wanted.items() if of == entity}
            alterations.append({**alteration, "expected": held} if held else alteration)
        return {"alterations": alterations, "wait": "none"}


class Driver:
    """Drives a load against replicas; a call goes to one of them at random.

    Attributes:
        enough: Set it to end the load.
    """

    def __init__(self, load: Load, urls: Sequence[str], log: list[Call], token: str) -> None:
        self.enough = False
        self._load = load
        self._urls = urls
        self._log = log
        self._random = random.Random(SEED)
        self._entities = [_entity(load, number) for number in range(load.entities)]
        self._believed: dict[tuple[ClientQuotaEntity, str], float] = {}
        self._values = count(load.first_value or time.time_ns() // 1_000_000 * 1_000)
        self._headers = {"Authorization": f"Bearer {token}"}

    async def run(self) -> None:
        """Make calls until it is enough."""
        plans = self._plans()
        async with asyncio.TaskGroup() as clients:
            for number in range(self._load.clients):
                clients.create_task(self._client(f"client-{number}", plans))

    def _plans(self) -> Iterator[Plan]:
        for number in count():
            if self.enough:
                return
            yield self._plan(number)

    def _plan(self, number: int) -> Plan:
        several = self._random.random() < _SEVERAL
        chosen = self._random.sample(self._entities, self._random.choice((2, 3)) if several else 1)
        writes = tuple(
            Write(entity, self._random.choice(_KEYS), float(next(self._values)))
            for entity in chosen
        )
        kind = self._random.random()
        key = f"{self._load.name}-{number}" if kind < _KEYED else None
        expecting = key is None and kind < _KEYED + _EXPECTING
        return Plan(writes, self._expected(writes) if expecting else (), key)

    def _expected(self, writes: Sequence[Write]) -> tuple[Write, ...]:
        return tuple(
            Write(write.entity, write.key, self._believed.get((write.entity, write.key)))
            for write in writes
        )

    async def _client(self, name: str, plans: Iterator[Plan]) -> None:
        async with httpx.AsyncClient(
            headers=self._headers, timeout=DEADLINE_S, verify=PLAIN_HTTP
        ) as http:
            for plan in plans:
                await asyncio.sleep(self._random.uniform(0.0, self._load.pause_s))
                await self._carry_out(http, name, plan)

    async def _carry_out(self, http: httpx.AsyncClient, name: str, plan: Plan) -> None:
        times = 1 if plan.key is None else 3
        answers = await asyncio.gather(*(self._call(http, name, plan) for _ in range(times)))
        if plan.key is not None and all(
            answer is None or answer.end is not End.OK for answer in answers
        ):
            answers.append(await self._call(http, name, plan))
        if None in answers:
            await self._until_an_answer(http)
        elif any(answer is not None and answer.status == _UNAVAILABLE for answer in answers):
            await asyncio.sleep(self._random.uniform(0.0, _BACK_OFF_S))
        if any(answer is not None and answer.end is End.OK for answer in answers):
            for entity, key, value in plan.writes:
                self._believed[entity, key] = value or 0.0

    async def _call(self, http: httpx.AsyncClient, name: str, plan: Plan) -> Answer | None:
        urls = self._random.sample(self._urls, len(self._urls))
        return await send(http, urls, plan, self._log, name)

    async def _until_an_answer(self, http: httpx.AsyncClient) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not await _is_live(http, self._random.choice(self._urls)):
                await asyncio.sleep(_POLL_S)


async def send(
    http: httpx.AsyncClient,
    urls: Sequence[str],
    plan: Plan,
    log: list[Call],
    client: str,
) -> Answer | None:
    """Send a request to the first replica that can be connected to; note how it went."""
    headers = {} if plan.key is None else {"Idempotency-Key": plan.key}
    call = Call(len(log), client, plan.writes, datetime.now(UTC), plan.expected, plan.key)
    log.append(call)
    for url in urls:
        try:
            response = await http.post(url + _PATH, json=plan.body(), headers=headers)
            call.answer = answer_of(response.status_code, response.json(), response.headers)
        except httpx.ConnectError:
            continue
        except httpx.TransportError:
            pass
        break
    call.ended = datetime.now(UTC)
    return call.answer


async def _is_live(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{httpx.URL(url).join('/livez')}")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _entity(load: Load, number: int) -> ClientQuotaEntity:
    shape = _SHAPES[number % len(_SHAPES)]
    return ClientQuotaEntity.of(dict.fromkeys(shape, f"{load.name}-{number}"))
