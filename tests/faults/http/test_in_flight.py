"""Callers hang up, operators stop, the log goes: an alteration ends as it would have."""

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from app.localdev.postgres import LocalPostgres
from tests.faults.http.conftest import Serve
from tests.testkit.fake_kafka.cluster import HELD, FakeCluster, Fault
from tests.testkit.http import connected, head, problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, DEADLINE_S, alter, ask, change, outage
from tests.testkit.patience import wait_until
from tests.testkit.service import PLAIN_HTTP, STOPS_WITHIN_S, RunningService

ALTER_LINE = f"POST {ALTERATIONS} HTTP/1.1"
JSON = "Content-Type: application/json"


@pytest.fixture
def pool(fake_kafka: FakeCluster) -> Iterator[ThreadPoolExecutor]:
    """A caller that waits; at the end nothing is held any more that it may wait for."""
    with ThreadPoolExecutor(1) as executor:
        yield executor
        fake_kafka.apply_held()


def outcome_of(service: RunningService, name: str) -> str | None:
    """Return what the log says of the one alteration of a user."""
    path = f"/audit?entity=user={name}&action=alter"
    rows = ask(service, "GET", path, principal="auditor").json()["rows"]
    return rows[0]["outcome"] if len(rows) == 1 else None


def hold_next(cluster: FakeCluster) -> None:
    """Let the next alteration be neither applied nor answered until the test says so."""
    cluster.fail_next(Fault(applies=(HELD,)))


def wait_until_held(cluster: FakeCluster) -> None:
    wait_until(lambda: cluster.held, "the alteration did not arrive")


def held(
    cluster: FakeCluster, service: RunningService, pool: ThreadPoolExecutor, name: str
) -> "Future[httpx.Response]":
    """Alter a user, and return when that is held."""
    hold_next(cluster)
    answer = pool.submit(alter, service, name, wait="none")
    wait_until_held(cluster)
    return answer


def test_a_caller_that_hangs_up_during_the_body_has_asked_for_nothing(
    fake_kafka: FakeCluster, scripted_service: RunningService
) -> None:
    name, following = unique("half"), unique("next")
    body = json.dumps(change(name)).encode()
    with connected(scripted_service) as connection:
        start = head(ALTER_LINE, JSON, f"Content-Length: {len(body)}")
        connection.sendall(start + body[: len(body) // 2])
    with connected(scripted_service) as connection:
        connection.sendall(head(ALTER_LINE, JSON, "Transfer-Encoding: chunked"))
        connection.sendall(b"%x\r\n%s\r\n" % (len(body), body))
    assert alter(scripted_service, following, wait="none").status_code == 200
    assert outcome_of(scripted_service, name) is None
    assert (fake_kafka.sent(name), fake_kafka.sent(following)) == (0, 1)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_caller_that_hangs_up_during_the_alteration_changes_nothing_about_it(
    fake_kafka: FakeCluster, scripted_service: RunningService, how: str
) -> None:
    name = unique("gone")
    hold_next(fake_kafka)
    body = json.dumps(change(name, wait="none")).encode()
    with connected(scripted_service) as connection:
        connection.sendall(head(ALTER_LINE, JSON, f"Content-Length: {len(body)}") + body)
        wait_until_held(fake_kafka)
        if how == "reset":
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    fake_kafka.apply_held()
    wait_until(
        lambda: outcome_of(scripted_service, name) == "applied", "the outcome is not recorded"
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_waits_for_an_alteration_in_flight(
    fake_kafka: FakeCluster, serve: Serve, pool: ThreadPoolExecutor, how: signal.Signals
) -> None:
    service, name = serve(), unique("stopped")
    answer = held(fake_kafka, service, pool, name)
    service.send(how)
    wait_until(lambda: refuses(service), "new connections are still accepted")
    fake_kafka.apply_held()
    assert answer.result().status_code == 200
    assert service.process is not None
    assert service.process.wait(STOPS_WITHIN_S) == 0
    service.start()
    assert outcome_of(service, name) == "applied"


def refuses(service: RunningService) -> bool:
    try:
        answer = httpx.get(f"{service.url}/readyz", timeout=DEADLINE_S, verify=PLAIN_HTTP)
    except httpx.TransportError:
        return True
    return answer.status_code == 503


def test_a_stop_that_cannot_wait_any_longer_leaves_the_outcome_unknown(
    fake_kafka: FakeCluster, serve: Serve, pool: ThreadPoolExecutor
) -> None:
    service, name = serve(shutdown_grace_s="1"), unique("cut")
    answer = held(fake_kafka, service, pool, name)
    assert service.stop() == 0
    assert answer.exception() is not None or answer.result().status_code >= 500
    service.start()
    assert outcome_of(service, name) == "unknown"


def test_a_stop_does_not_wait_for_callers_that_are_idle_or_stuck(serve: Serve) -> None:
    service = serve(shutdown_grace_s="1")
    with connected(service) as idle, connected(service) as stuck:
        idle.sendall(head("GET /livez HTTP/1.1"))
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        stuck.sendall(head(ALTER_LINE, JSON, "Content-Length: 100") + b"{")
        assert service.stop() == 0


@pytest.mark.parametrize("signals", [[signal.SIGINT] * 2, [signal.SIGTERM] * 3])
def test_a_stop_that_is_asked_for_repeatedly_is_one_stop(
    serve: Serve, signals: list[signal.Signals]
) -> None:
    service = serve()
    assert ask(service, "GET", "/quotas").status_code == 200
    assert service.process is not None
    for number in signals:
        service.send(number)
    assert service.process.wait(STOPS_WITHIN_S) == 0
    assert "Traceback" not in service.log_path.read_text()


def test_an_outcome_that_cannot_be_recorded_is_answered_and_recorded_later(
    fake_kafka: FakeCluster,
    scripted_service: RunningService,
    pool: ThreadPoolExecutor,
    database: LocalPostgres,
) -> None:
    name = unique("late")
    waiting = held(fake_kafka, scripted_service, pool, name)
    with outage(database, "paused"):
        fake_kafka.apply_held()
        answer = waiting.result()
    problem = problem_of(answer, 503)
    assert problem["code"] == "outcome-not-recorded"
    assert problem["retry"] != "safe"
    assert problem["sent_to_cluster"] == "yes"
    assert [result["outcome"] for result in problem["results"]] == ["applied"]

    def outcome() -> str:
        return str(ask(scripted_service, "GET", answer.headers["Location"]).json()["outcome"])

    wait_until(lambda: outcome() == "applied", "the outcome was not recorded")
    assert fake_kafka.sent(name) == 1


MANY = 10_000
MANY_WITHIN_S = 120
"""What is left alone by its caller may take as long as that of a caller who waits."""


@pytest.mark.long
@pytest.mark.parametrize("after_bytes", [0, 1 << 16], ids=["before", "within"])
def test_a_caller_that_hangs_up_on_an_answer_of_10_000_entities_leaves_nothing_open(
    patient_service: RunningService, after_bytes: int
) -> None:
    """The same users are altered again: no lock and no turn is left behind."""
    service, prefix = patient_service, unique("many")
    op = {"key": "producer_byte_rate", "value": 1024}
    users = [f"{prefix}-{number}" for number in range(MANY)]
    body = {"alterations": [{"entity": {"user": user}, "ops": [op]} for user in users]}
    sent = json.dumps({**body, "wait": "none"}).encode()
    with connected(service) as connection:
        connection.sendall(head(ALTER_LINE, JSON, f"Content-Length: {len(sent)}") + sent)
        if after_bytes:
            connection.settimeout(MANY_WITHIN_S)
            assert connection.recv(after_bytes).startswith(b"HTTP/1.1 200")

    def outcomes() -> set[str]:
        """Return what became of the first and the last user, and of as many as a page has."""
        path = f"/audit?entity=user^={prefix}&page_size={MANY}"
        rows = ask(service, "GET", path, principal="auditor").json()["rows"]
        return {row["outcome"] for row in rows} if len(rows) == MANY else set()

    wait_until(lambda: outcomes() == {"applied"}, "not all are applied", MANY_WITHIN_S)
    again = {**body["alterations"][-1], "ops": [{**op, "value": 2048}]}
    answer = ask(service, "POST", ALTERATIONS, {"alterations": [again], "wait": "none"})
    assert answer.status_code == 200, answer.text
    removed = [
        {**each, "ops": [{"key": op["key"], "remove": True}]} for each in body["alterations"]
    ]
    answer = service.api().post(
        ALTERATIONS, json={"alterations": removed, "wait": "none"}, timeout=MANY_WITHIN_S
    )
    assert answer.status_code == 200, answer.text[:500]
