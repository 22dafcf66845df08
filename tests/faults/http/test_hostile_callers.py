"""What one hostile caller can cost: the figures of docs/operating.md."""

import asyncio
import json
import os
import ssl
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.localdev.postgres import LocalPostgres
from tests.faults.http.conftest import fake_kafka_with_rights
from tests.faults.http.hostile_callers import HOSTILE, OVER_TLS, SLOW, VERY_LARGE
from tests.faults.http.trouble import Asked
from tests.testkit.certificates import Authority, person
from tests.testkit.history.checker import note_figures
from tests.testkit.kafka import unique
from tests.testkit.outages import change
from tests.testkit.postgres import migrated_database
from tests.testkit.service import DEADLINE_S, RunningService, running_service

pytestmark = pytest.mark.long

HOST: Final = "127.0.0.1"
NOWHERE: Final = f"{HOST}:1"
STALLED: Final = 200
BEFORE_S: Final = 5.0
PAUSE_S: Final = 0.05
MOST_MB: Final = {**dict.fromkeys(VERY_LARGE, 300), **dict.fromkeys(SLOW, 50)}
MOST_FILES: Final = 1_100
READ: Final = "/quotas/resolve?user=a&client-id=b"
BODY_BYTES: Final = 20_000
"""Of the others' alterations, which need a slot for bodies that are not small."""


@pytest.fixture
def attacked_service(database: LocalPostgres, tmp_path: Path) -> Iterator[RunningService]:
    """A service with a TLS port that takes passwords, with the default limits, all of it new."""
    Authority().sign(person("server"), host=HOST).write(tmp_path / "server.pem")
    _, url = migrated_database(database, unique("attacked").replace("-", "_"))
    with (
        fake_kafka_with_rights() as cluster,
        running_service(
            tmp_path,
            cluster.bootstrap_servers,
            url,
            tls_port="0",
            tls_cert_file=str(tmp_path / "server.pem"),
            basic_sasl_mechanism="SCRAM-SHA-512",
            basic_security_protocol="SASL_PLAINTEXT",
        ) as running,
    ):
        yield running


@pytest.mark.parametrize("kind", HOSTILE)
async def test_one_hostile_caller_costs_little_and_the_others_are_served(
    kind: str, attacked_service: RunningService
) -> None:
    service = attacked_service
    assert service.process is not None
    pid, files = service.process.pid, list[int]()
    before = await others_while(service, lambda: asyncio.sleep(BEFORE_S), files)
    rows_before, resident_mb = denied_rows(service), memory_mb(pid, "VmRSS")
    forget_peak(pid)
    during = await others_while(service, partial(attack, service, kind), files)
    grown_mb = round(memory_mb(pid, "VmHWM") - resident_mb, 1)
    rows = denied_rows(service) - rows_before
    note_figures(
        {
            "load average": round(os.getloadavg()[0], 1),
            **(during.result or {}),
            "seconds": during.seconds,
            "grown by at most, MB": grown_mb,
            "descriptors at most": max(files),
            "denied rows": rows,
            "slowest /livez, ms": during.livez.slowest_s * 1000,
            "slowest /livez before, ms": before.livez.slowest_s * 1000,
            "median of others, ms": median_ms(during.reads),
            "median of others before, ms": median_ms(before.reads),
            "p99 of others, ms": during.reads.p99_ms,
            "alterations of others": len(during.alterations.answers),
            "median of others' alterations, ms": median_ms(during.alterations),
            "median of others' alterations before, ms": median_ms(before.alterations),
            "slowest of others' alterations, ms": during.alterations.slowest_s * 1000,
        }
    )
    for asked in (during.livez, during.reads, during.alterations):
        assert asked.answered(200) == len(asked.answers)
    assert grown_mb <= MOST_MB.get(kind, 100)
    assert max(files) <= MOST_FILES
    assert rows <= 2


@dataclass
class Others:
    """Probes, reads and alterations while something goes on, and what comes of that."""

    livez: Asked = field(default_factory=Asked)
    reads: Asked = field(default_factory=Asked)
    alterations: Asked = field(default_factory=Asked)
    seconds: float = 0.0
    result: dict[str, int] | None = None


def median_ms(asked: Asked) -> float:
    return round(statistics.median(seconds for seconds, _ in asked.answers) * 1000, 1)


async def attack(service: RunningService, kind: str) -> dict[str, int]:
    """Let a hostile caller come in a process of its own; return the answers that it has had."""
    url = service.tls_url if kind in OVER_TLS else service.url
    module = ["-m", "tests.faults.http.hostile_callers", url, kind]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *module, stdout=pipe)
    out, _ = await process.communicate()
    assert process.returncode == 0
    answers: dict[str, int] = json.loads(out)
    return answers


async def others_while(
    service: RunningService, what: Callable[[], Awaitable[Any]], files: list[int]
) -> Others:
    """Probe, read and alter until it is over, at most 20 times a second; note the descriptors."""
    others, loop = Others(), asyncio.get_running_loop()
    begun, over = loop.time(), asyncio.ensure_future(what())
    assert service.process is not None
    folder = Path(f"/proc/{service.process.pid}/fd")

    async def ask(asked: Asked, request: Callable[[], Awaitable[httpx.Response]]) -> None:
        while not over.done():
            await asked.ask(request)
            await asyncio.wait({over}, timeout=PAUSE_S)

    headers = {"Authorization": "Bearer root", "Content-Type": "application/json"}
    alteration = json.dumps(change(unique("other")))
    body = alteration.ljust(BODY_BYTES)
    async with (
        httpx.AsyncClient(base_url=service.url, timeout=DEADLINE_S) as probe,
        httpx.AsyncClient(base_url=service.url, timeout=DEADLINE_S, headers=headers) as reader,
        httpx.AsyncClient(base_url=service.url, timeout=DEADLINE_S, headers=headers) as writer,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(ask(others.livez, lambda: probe.get("/livez")))
        group.create_task(ask(others.reads, lambda: reader.get(READ)))
        alter = partial(writer.post, "/quotas/alterations", content=body)
        group.create_task(ask(others.alterations, alter))
        while not over.done():
            with suppress(OSError):
                files.append(len(await asyncio.to_thread(os.listdir, folder)))
            await asyncio.wait({over}, timeout=PAUSE_S)
    others.result = await over
    others.seconds = round(loop.time() - begun, 1)
    return others


def denied_rows(service: RunningService) -> int:
    answer = service.api("auditor").get("/audit?action=denied&page_size=10000")
    assert answer.status_code == httpx.codes.OK, answer.text
    return len(answer.json()["rows"])


def forget_peak(pid: int) -> None:
    """Let ``VmHWM`` begin anew. Source: proc_pid_clear_refs(5)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_mb(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) / 1024


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


async def test_whoever_stalls_in_the_handshake_is_sent_away_and_others_are_served(tmp_path: Path):
    """The broker and the database are not there, of which connections know nothing."""
    authority = Authority()
    (tmp_path / "authority.pem").write_text(authority.own.pem)
    authority.sign(person("server"), host=HOST).write(tmp_path / "server.pem")
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    settings = {"tls_port": "0", "tls_cert_file": str(tmp_path / "server.pem")}
    beginnings = (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01")
    database_url = f"postgresql://quotas@{NOWHERE}/quotas"
    with running_service(tmp_path, NOWHERE, database_url, **settings) as service:
        port = int(service.environ["QUOTAS_TLS_PORT"])
        stalled = [
            asyncio.create_task(closed_by_the_service(port, beginnings[number % len(beginnings)]))
            for number in range(STALLED)
        ]
        async with httpx.AsyncClient(verify=context, timeout=DEADLINE_S) as client:
            for _ in range(20):
                answer = await client.get(f"{service.tls_url}/livez")
                assert answer.status_code == httpx.codes.OK
        assert await asyncio.gather(*stalled) == [True] * STALLED
