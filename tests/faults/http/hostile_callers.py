"""What one hostile caller sends, from an address of its own: a process of its own."""

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tests.testkit.http import head

SOURCE: Final = "127.0.0.2"
LASTS_S: Final = 12.0
DEADLINE_S: Final = 300.0
_LARGE_BYTES: Final = 8_000_000
_LARGE_AT_ONCE: Final = 60
_ENTITIES: Final = 10_000
_CLIENTS: Final = 500
ALTER: Final = "/quotas/alterations"
RATE: Final = "producer_byte_rate"

Answers = Counter[str]
Users = list[dict[str, str]]


def _client(url: str, **options: object) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=SOURCE, verify=False)
    return httpx.AsyncClient(
        base_url=url,
        transport=transport,
        timeout=DEADLINE_S,
        **options,  # type: ignore[arg-type]
    )


async def _post(url: str, path: str, principal: str, body: bytes) -> Answers:
    headers = {"Authorization": f"Bearer {principal}", "Content-Type": "application/json"}
    async with _client(url, headers=headers) as http:
        try:
            answer = await http.post(path, content=body)
        except httpx.TransportError:
            return Answers(["closed"])
    return Answers([f"answered {answer.status_code}"])


async def bodies_of_faults(
    url: str, *, number: int, path: str, principal: str, member: bytes
) -> Answers:
    """Send bodies of 8 MB whose list has nothing but faults."""
    item = b'{"a":1}'
    items = b",".join([item] * (_LARGE_BYTES // (len(item) + 1)))
    body = b'{"%s": [%s]}' % (member, items)
    sent = await asyncio.gather(*(_post(url, path, principal, body) for _ in range(number)))
    return sum(sent, Answers())


async def silent_connections(url: str, *, number: int) -> Answers:
    """Connect and say nothing."""
    address, answers = urlsplit(url), Answers()

    async def connect() -> asyncio.StreamWriter | None:
        try:
            _, writer = await asyncio.open_connection(
                address.hostname, address.port, local_addr=(SOURCE, 0)
            )
        except OSError:
            answers["refused"] += 1
            return None
        answers["connected"] += 1
        return writer

    writers = await asyncio.gather(*(connect() for _ in range(number)))
    await asyncio.sleep(LASTS_S)
    for writer in writers:
        if writer is not None:
            writer.transport.abort()
    return answers


async def clients_of_metrics(url: str) -> Answers:
    answers, end = Answers(), asyncio.get_running_loop().time() + LASTS_S

    async def ask() -> None:
        async with _client(url) as http:
            while asyncio.get_running_loop().time() < end:
                answers[f"answered {(await http.get('/metrics')).status_code}"] += 1

    await asyncio.gather(*(ask() for _ in range(8)))
    return answers


async def logins_with_long_names(url: str) -> Answers:
    answers, numbers = Answers(), iter(range(1_000))

    async def log_in() -> None:
        async with _client(url) as http:
            for number in numbers:
                credentials = (f"{number}-{'x' * 23_000}", "wrong")
                answer = await http.get("/quotas", auth=credentials)
                answers[f"answered {answer.status_code}"] += 1

    await asyncio.gather(*(log_in() for _ in range(20)))
    return answers


def again_and_again(
    principal: str, path: str, document: Callable[[Users], object]
) -> Callable[[str], Awaitable[Answers]]:
    """Post about 10,000 users each from many connections; begin anew once one is answered."""

    async def attack(url: str) -> Answers:
        answers, end = Answers(), asyncio.get_running_loop().time() + LASTS_S

        async def ask(number: int) -> None:
            users = [{"user": f"hostile-{number}-{item}"} for item in range(_ENTITIES)]
            body = json.dumps(document(users)).encode()
            while asyncio.get_running_loop().time() < end:
                answers.update(await _post(url, path, principal, body))

        await asyncio.gather(*map(ask, range(_LARGE_AT_ONCE)))
        return answers

    return attack


def _changes(users: Users) -> list[object]:
    return [{"entity": user, "ops": [{"key": RATE, "value": 1000}]} for user in users]


def _alterations(users: Users) -> object:
    return {"wait": "all_brokers", "wait_ms": 60_000, "alterations": _changes(users)}


def _plan(users: Users) -> object:
    quotas = [{"entity": user, "values": {RATE: 1000}} for user in users]
    return {"document": {"apiVersion": "quotas/v1", "quotas": quotas}}


_CHUNK: Final = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
_CHUNKS: Final = 129
"""8 MiB, and one more."""

_POST: Final = head(
    f"POST {ALTER} HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked"
)


async def too_much(writer: asyncio.StreamWriter) -> None:
    writer.write(_POST)
    for _ in range(_CHUNKS):
        writer.write(_CHUNK)
        await writer.drain()


async def half_a_body(writer: asyncio.StreamWriter) -> None:
    """Send as much of a body as is read at once, and no more."""
    writer.write(_POST + _CHUNK[:60_000])


async def half_a_header(writer: asyncio.StreamWriter) -> None:
    """Send a header that goes on and on."""
    writer.write(_POST[:-2])
    while True:
        await asyncio.sleep(1.0)
        writer.write(b"X-More: 1\r\n")
        await writer.drain()


SLOW: Final[dict[str, Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]]] = {
    "500 oversized bodies": too_much,
    "500 bodies that stop half-way": half_a_body,
    "500 headers that do not end": half_a_header,
}


async def slow_clients(url: str, *, kind: str) -> Answers:
    """Let 500 come at once, who send too much, too little or without an end."""
    address, answers = urlsplit(url), Answers()

    async def come() -> None:
        reader, writer = await asyncio.open_connection(
            address.hostname, address.port, local_addr=(SOURCE, 0)
        )
        sending, line = asyncio.create_task(SLOW[kind](writer)), b""
        with suppress(ConnectionError):
            line = await reader.readline()
        answers[f"answered {line[9:12].decode()}" if line else "closed"] += 1
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()

    await asyncio.gather(*(come() for _ in range(_CLIENTS)))
    return answers


HOSTILE: Final[dict[str, Callable[[str], Awaitable[Answers]]]] = {
    "one denied request of 8 MB": partial(
        bodies_of_faults, number=1, path=ALTER, principal="mallory", member=b"alterations"
    ),
    "two bodies of 8 MB of violations": partial(
        bodies_of_faults, number=2, path="/quotas/resolve", principal="bob", member=b"identities"
    ),
    "3,000 silent connections to TLS": partial(silent_connections, number=3_000),
    "1,000 idle connections": partial(silent_connections, number=1_000),
    "8 clients of the metrics": clients_of_metrics,
    "1,000 logins with names of 23 KB": logins_with_long_names,
    "alterations of 10,000": again_and_again("alice", ALTER, _alterations),
    "validations of 10,000": again_and_again(
        "alice", ALTER, lambda users: {"validate_only": True, "alterations": _changes(users)}
    ),
    "plans of 10,000": again_and_again("bob", "/quotas/plans", _plan),
    "resolves of 10,000": again_and_again(
        "bob", "/quotas/resolve", lambda users: {"identities": users}
    ),
    **{kind: partial(slow_clients, kind=kind) for kind in SLOW},
}
OVER_TLS: Final = frozenset({"3,000 silent connections to TLS"})
VERY_LARGE: Final = frozenset(kind for kind in HOSTILE if "10,000" in kind or "two bodies" in kind)


async def _main(url: str, kind: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with asyncio.timeout(DEADLINE_S):
        print(json.dumps(await HOSTILE[kind](url)))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
