"""Callers who begin a TLS connection and never end its handshake: they are not waited for."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.testkit.certificates import Authority, person
from tests.testkit.service import DEADLINE_S, RunningService, running_service

pytestmark = pytest.mark.long

HOST = "127.0.0.1"
STALLED = 200
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handshakes")
    authority = Authority()
    (folder / "authority.pem").write_text(authority.own.pem)
    authority.sign(person("server"), host=HOST).write(folder / "server.pem")
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[RunningService]:
    """A service whose broker and database are not there, of which connections know nothing."""
    settings = {"tls_port": "0", "tls_cert_file": str(folder / "server.pem")}
    database_url = f"postgresql://quotas@{NOWHERE}/quotas"
    with running_service(folder, NOWHERE, database_url, **settings) as running:
        yield running


async def closed_by_the_service(port: int, beginning: bytes) -> bool:
    """Send the beginning of a handshake, and wait for the end of the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    with closing(writer):
        writer.write(beginning)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await reader.read() == b""
        except ConnectionResetError:
            return True


async def test_whoever_stalls_in_the_handshake_is_sent_away_and_others_are_served(
    service: RunningService, folder: Path
):
    port = int(service.environ["QUOTAS_TLS_PORT"])
    context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    beginnings = (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01")
    stalled = [
        asyncio.create_task(closed_by_the_service(port, beginnings[number % len(beginnings)]))
        for number in range(STALLED)
    ]
    async with httpx.AsyncClient(verify=context, timeout=DEADLINE_S) as client:
        for _ in range(20):
            answer = await client.get(f"https://{HOST}:{port}/livez")
            assert answer.status_code == httpx.codes.OK
    assert await asyncio.gather(*stalled) == [True] * STALLED
