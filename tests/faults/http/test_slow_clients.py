"""What 500 bad clients may have: the service does not grow much, and others are served on."""

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.http.concurrency import callers
from tests.faults.http.slow_clients import BAD, CLIENTS
from tests.faults.http.trouble import Asked
from tests.testkit.history.checker import note_figures
from tests.testkit.service import RunningService

pytestmark = pytest.mark.long

MOST_MB: Final = 50
NORMAL_S: Final = 10.0


@pytest.mark.parametrize("kind", BAD)
async def test_500_bad_clients_take_little_and_the_others_are_served(
    kind: str, scripted_service: RunningService
) -> None:
    assert scripted_service.process is not None
    pid, endings = scripted_service.process.pid, dict[str, int]()
    before = await healthy_while(scripted_service, asyncio.sleep(NORMAL_S))
    resident_mb = memory_mb(pid, "VmRSS")
    forget_peak(pid)
    during = await healthy_while(scripted_service, bad_clients(scripted_service, kind, endings))
    grown_mb = round(memory_mb(pid, "VmHWM") - resident_mb, 1)
    note_figures(
        {
            "clients": CLIENTS,
            **endings,
            "grown by at most, MB": grown_mb,
            "healthy requests": len(during.answers),
            "healthy answered 200": during.answered(200),
            "healthy p99, ms": during.p99_ms,
            "healthy p99 before, ms": before.p99_ms,
        }
    )
    assert during.answered(200) == len(during.answers)
    assert grown_mb <= MOST_MB


async def bad_clients(service: RunningService, kind: str, endings: dict[str, int]) -> None:
    """Let them come in a process of their own, and collect how they end."""
    module = ["-m", "tests.faults.http.slow_clients", service.url, kind]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *module, stdout=pipe)
    out, _ = await process.communicate()
    assert process.returncode == 0
    endings.update(json.loads(out))


async def healthy_while(service: RunningService, what: Awaitable[Any]) -> Asked:
    """Read ten times a second until it is over."""
    asked, over = Asked(), asyncio.ensure_future(what)
    async with callers(service) as http:
        while not over.done():
            await asked.ask(lambda: http.get("/quotas/capabilities"))
            await asyncio.wait({over}, timeout=0.1)
    await over
    return asked


def forget_peak(pid: int) -> None:
    """Let ``VmHWM`` begin anew. Source: proc_pid_clear_refs(5)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_mb(pid: int, name: str) -> float:
    """Return a figure of the memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) / 1024
