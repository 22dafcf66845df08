"""Callers that hang up and operators that stop the service: an alteration ends as it would have."""

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.faults.http.conftest import Script
from tests.testkit.fake_kafka.cluster import FakeCluster
from tests.testkit.fake_kafka.server import ALTER, Alterations, HeldAlterations, verdict
from tests.testkit.http import connected, head
from tests.testkit.kafka import unique
from tests.testkit.outages import DEADLINE_S, ask, change
from tests.testkit.patience import wait_until
from tests.testkit.service import STOPS_WITHIN_S, RunningService, running_service

ALTERATIONS = "/quotas/alterations"
ALTER_LINE = f"POST {ALTERATIONS} HTTP/1.1"
JSON = "Content-Type: application/json"


@pytest.fixture
def stoppable(
    fake_kafka: FakeCluster, scripted_url: str, tmp_path: Path
) -> Iterator[RunningService]:
    """A service that a test may stop."""
    with running_service(tmp_path, fake_kafka.bootstrap_servers, scripted_url) as running:
        yield running


def outcome_of(service: RunningService, name: str) -> str | None:
    """Return what the log says of the one alteration of a user.

    The script's broker only says that it has applied it: in time that is found to be drift.
    """
    path = f"/audit?entity=user={name}&action=alter"
    rows = ask(service, "GET", path, principal="auditor").json()["rows"]
    return rows[0]["outcome"] if len(rows) == 1 else None


def test_a_caller_that_hangs_up_during_the_body_has_asked_for_nothing(
    script: Script, scripted_service: RunningService
) -> None:
    alterations, name = Alterations(verdict()), unique("half")
    script(ALTER, alterations)
    body = json.dumps(change(name)).encode()
    with connected(scripted_service) as connection:
        start = head(ALTER_LINE, JSON, f"Content-Length: {len(body)}")
        connection.sendall(start + body[: len(body) // 2])
    with connected(scripted_service) as connection:
        connection.sendall(head(ALTER_LINE, JSON, "Transfer-Encoding: chunked"))
        connection.sendall(b"%x\r\n%s\r\n" % (len(body), body))
    following = change(unique("next"), wait="none")
    assert ask(scripted_service, "POST", ALTERATIONS, following).status_code == 200
    assert outcome_of(scripted_service, name) is None
    assert alterations.count == 1


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_caller_that_hangs_up_during_the_alteration_changes_nothing_about_it(
    script: Script, scripted_service: RunningService, how: str
) -> None:
    held, name = HeldAlterations(verdict()), unique("gone")
    script(ALTER, held)
    body = json.dumps(change(name, wait="none")).encode()
    with connected(scripted_service) as connection:
        connection.sendall(head(ALTER_LINE, JSON, f"Content-Length: {len(body)}") + body)
        held.wait()
        if how == "reset":
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    held.release()
    wait_until(
        lambda: outcome_of(scripted_service, name) == "applied", "the outcome is not recorded"
    )


def altering(
    service: RunningService, pool: ThreadPoolExecutor, name: str
) -> "Future[httpx.Response]":
    body = change(name, wait="none")
    return pool.submit(service.api().post, ALTERATIONS, json=body, timeout=DEADLINE_S)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_waits_for_an_alteration_in_flight(
    script: Script, stoppable: RunningService, how: signal.Signals
) -> None:
    held, name = HeldAlterations(verdict()), unique("stopped")
    script(ALTER, held)
    with ThreadPoolExecutor(1) as pool:
        answer = altering(stoppable, pool, name)
        held.wait()
        assert stoppable.process is not None
        stoppable.process.send_signal(how)
        wait_until(lambda: refuses(stoppable), "new connections are still accepted")
        held.release()
        assert answer.result().status_code == 200
    assert stoppable.process.wait(STOPS_WITHIN_S) == 0
    stoppable.start()
    assert outcome_of(stoppable, name) == "applied"


def refuses(service: RunningService) -> bool:
    try:
        answer = httpx.get(f"{service.url}/readyz", timeout=DEADLINE_S)
    except httpx.TransportError:
        return True
    return answer.status_code == 503


@pytest.fixture
def impatient(
    fake_kafka: FakeCluster, scripted_url: str, tmp_path: Path
) -> Iterator[RunningService]:
    """A service that does not wait long when it stops."""
    with running_service(
        tmp_path, fake_kafka.bootstrap_servers, scripted_url, shutdown_grace_s="1"
    ) as running:
        yield running


def test_a_stop_that_cannot_wait_any_longer_leaves_the_outcome_unknown(
    script: Script, impatient: RunningService
) -> None:
    held, name = HeldAlterations(verdict()), unique("cut")
    script(ALTER, held)
    with ThreadPoolExecutor(1) as pool:
        answer = altering(impatient, pool, name)
        held.wait()
        assert impatient.stop() == 0
        held.release()
        assert answer.exception() is not None or answer.result().status_code >= 500
    script(ALTER, None)
    impatient.start()
    assert outcome_of(impatient, name) == "unknown"


def test_a_stop_does_not_wait_for_callers_that_are_idle_or_stuck(impatient: RunningService) -> None:
    with connected(impatient) as idle, connected(impatient) as stuck:
        idle.sendall(head("GET /livez HTTP/1.1"))
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        stuck.sendall(head(ALTER_LINE, JSON, "Content-Length: 100") + b"{")
        assert impatient.stop() == 0


@pytest.mark.parametrize("signals", [[signal.SIGINT] * 2, [signal.SIGTERM] * 3])
def test_a_stop_that_is_asked_for_repeatedly_is_one_stop(
    stoppable: RunningService, signals: list[signal.Signals]
) -> None:
    assert ask(stoppable, "GET", "/quotas").status_code == 200
    assert stoppable.process is not None
    for number in signals:
        stoppable.process.send_signal(number)
    assert stoppable.process.wait(STOPS_WITHIN_S) == 0
    assert "Traceback" not in stoppable.log_path.read_text()
