"""Tokens are replaced while callers call: whoever has a good one passes, and nobody else."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.faults.http.conftest import Serve
from tests.testkit.outages import ask
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

ROTATIONS: Final = size(1, 4)


def moved(path: Path, text: str) -> None:
    """Write beside it and move, as Kubernetes and ``install`` do."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.chmod(0o600)
    beside.replace(path)


def truncated(path: Path, text: str) -> None:
    """Empty it, write half, and then the rest: whoever looks in between finds no JSON."""
    with path.open("w") as file:
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            file.write(half)
            file.flush()
            os.fsync(file.fileno())


@pytest.mark.parametrize("replaced", [moved, truncated])
def test_a_replaced_tokens_file_refuses_who_is_gone_and_nobody_else(
    serve: Serve, replaced: Callable[[Path, str], None]
) -> None:
    service = serve()
    path = Path(service.environ["QUOTAS_TOKENS_FILE"])
    both = path.read_text()
    alone = json.dumps([each for each in json.loads(both) if each["principal"] != "User:bob"])
    enough = Event()

    def call() -> set[int]:
        statuses = set()
        while not enough.is_set():
            statuses.add(
                ask(service, "GET", "/quotas?filter=user=a", principal="alice").status_code
            )
        return statuses

    with ThreadPoolExecutor() as pool:
        calls = pool.submit(call)
        try:
            for _ in range(ROTATIONS):
                replaced(path, alone)
                wait_until(lambda: status(service) == 401, "who is gone still passes")
                replaced(path, both)
                wait_until(lambda: status(service) == 200, "who is back is still refused")
            path.write_text(both[:-9])
            wait_until(lambda: "tokens read before stay good" in service.log_path.read_text())
            assert status(service) == 200
        finally:
            enough.set()
        assert calls.result() == {200}


def status(service: RunningService) -> int:
    answer = ask(service, "GET", "/quotas?filter=user=b", principal="bob")
    return answer.status_code
