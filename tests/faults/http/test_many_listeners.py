"""Many listeners of the audit log, one of which reads nothing: the others are served."""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from app.localdev.postgres import LocalPostgres
from tests.faults.http.conftest import fake_kafka_with_rights
from tests.testkit.history.checker import note_figures
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, ask
from tests.testkit.patience import DEADLINE_S
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service
from tests.testkit.sizes import size

LISTENERS = size(40, 200)
ENTITIES = size(500, 1_000)
TURNS = size(2, 4)
MOST_GROWTH_BYTES = 150 << 20
"""The texts for 200 listeners would be a gigabyte."""

_END = b"}\n\n"
_ID = re.compile(rb"^id: (\S+)$", re.MULTILINE)


class Listener:
    """A caller who follows the log, and reads when it is asked to."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = b""

    @property
    def ids(self) -> list[bytes]:
        """The events that have come whole."""
        return _ID.findall(self.received.rpartition(b"\n\n")[0])

    async def read_until(self, number: int) -> None:
        """Read until so many events have come, or the connection ends."""
        loop, chunks, found = asyncio.get_running_loop(), [self.received], len(self.ids)
        end = self.received[1 - len(_END) :]
        while found < number:
            chunk = await loop.sock_recv(self.connection, 1 << 16)
            if not chunk:
                break
            end += chunk
            found += end.count(_END)
            end = end[1 - len(_END) :]
            chunks.append(chunk)
        self.received = b"".join(chunks)


@pytest.fixture
def service(database: LocalPostgres, tmp_path: Path) -> Iterator[RunningService]:
    """A service whose cluster and log are new: no drift of other tests is among the events."""
    _, url = migrated_database(database, unique("listeners").replace("-", "_"))
    with (
        fake_kafka_with_rights() as cluster,
        running_service(tmp_path, cluster.bootstrap_servers, url) as running,
    ):
        yield running


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes the connections of listeners at the end."""
    with ExitStack() as stack:
        yield stack


async def listen(
    service: RunningService, opened: ExitStack, last_event_id: bytes | None = None
) -> Listener:
    loop, url = asyncio.get_running_loop(), urlsplit(service.url)
    connection = opened.enter_context(closing(socket.socket()))
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(connection, (url.hostname, url.port))
    head = b"GET /audit/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer auditor\r\n"
    if last_event_id is not None:
        head += b"Last-Event-ID: " + last_event_id + b"\r\n"
    await loop.sock_sendall(connection, head + b"\r\n")
    listener = Listener(connection)
    while b"\n\n" not in listener.received:
        listener.received += await loop.sock_recv(connection, 4096)
    assert listener.received.startswith(b"HTTP/1.1 200")
    return listener


def alter_many(service: RunningService) -> None:
    name = unique("many")
    op = {"key": "producer_byte_rate", "value": 1024}
    entities = [{"user": f"{name}-{number}"} for number in range(ENTITIES)]
    body = {"alterations": [{"entity": entity, "ops": [op]} for entity in entities]}
    answer = ask(service, "POST", ALTERATIONS, {**body, "wait": "none"})
    assert answer.status_code == 200, answer.text


async def test_who_reads_nothing_holds_up_nobody_and_can_go_on(
    service: RunningService, opened: ExitStack
):
    assert service.process is not None
    process = psutil.Process(service.process.pid)
    silent = await listen(service, opened)
    others = await asyncio.gather(*(listen(service, opened) for _ in range(LISTENERS - 1)))
    before = most = process.memory_info().rss
    wanted = 2 * ENTITIES * TURNS
    async with asyncio.timeout(4 * DEADLINE_S):
        reading = asyncio.gather(*(listener.read_until(wanted) for listener in others))
        for _ in range(TURNS):
            await asyncio.to_thread(alter_many, service)
            most = max(most, process.memory_info().rss)
        await reading
    most = max(most, process.memory_info().rss)
    assert most - before < MOST_GROWTH_BYTES
    expected = others[0].ids
    assert len(expected) == len(set(expected)) == wanted
    assert all(listener.ids == expected for listener in others)
    if size(0, 1):
        await until_closed(service)
    async with asyncio.timeout(4 * DEADLINE_S):
        await silent.read_until(size(wanted // 2, wanted))
        again = await listen(service, opened, silent.ids[-1])
        await again.read_until(wanted - len(silent.ids))
    assert [*silent.ids, *again.ids] == expected
    note_figures({"listeners": LISTENERS, "events": wanted, "growth_mb": (most - before) >> 20})


async def until_closed(service: RunningService) -> None:
    """Wait until the service has closed the connection that nobody reads: after a minute."""
    closed = 'receive_deadline_closed_total{stage="answer"} 1.0'
    async with asyncio.timeout(4 * DEADLINE_S):
        while closed not in (await asyncio.to_thread(ask, service, "GET", "/metrics")).text:
            await asyncio.sleep(0.5)
