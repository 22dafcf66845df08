"""Port 0: the service takes a free port, and its log says which."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testkit.certificates import Authority, person
from tests.testkit.patience import wait_until
from tests.testkit.service import DEADLINE_S, STARTS_WITHIN_S, RunningService, running_service

HOST = "127.0.0.1"
NOWHERE = f"{HOST}:1"
Workers = tuple[RunningService, Path]
"""A service, and its policy's file."""

POLICY = """\
apiVersion: quotas-policy/v1
rules:
  - {name: users, principals: ["*"], entities: [user], keys: {"*": {remove: true}}}
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    (folder / "authority.pem").write_text(authority.own.pem)
    authority.sign(person("server"), host=HOST).write(folder / "server.pem")
    return folder


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[RunningService]:
    """Serve without a broker and a database, of which a listener knows nothing."""
    database_url = f"postgresql://quotas@{NOWHERE}/quotas"
    with running_service(folder, NOWHERE, database_url, **settings) as running:
        yield running


def answers(url: str, certificates: Path, path: str = "/livez") -> bool:
    context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    return httpx.get(f"{url}{path}", verify=context, timeout=DEADLINE_S).is_success


def events(service: RunningService) -> list[dict[str, Any]]:
    """Return what was logged, in lines that are complete."""
    complete = service.log_path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in complete.splitlines()]


def served(service: RunningService) -> list[int]:
    """Return the processes of the workers, in the order in which they began to serve."""
    reports = [re.search(r"serves: process (\d+)", line["event"]) for line in events(service)]
    return [int(match[1]) for match in reports if match]


def test_a_log_for_people_names_the_port_that_was_free(tmp_path: Path, certificates: Path):
    with serving(tmp_path, log_format="text") as service:
        assert service.url.startswith(f"http://{HOST}:")
        assert answers(service.url, certificates)


def test_the_log_names_a_port_for_tls_beside_a_plain_port(tmp_path: Path, certificates: Path):
    tls = {"tls_cert_file": str(certificates / "server.pem"), "tls_port": "0"}
    with serving(tmp_path, **tls) as service:
        assert service.url.startswith(f"http://{HOST}:")
        assert service.tls_url.startswith(f"https://{HOST}:")
        assert answers(service.url, certificates)
        assert answers(service.tls_url, certificates)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Workers]:
    """Two workers, to which a policy belongs; the last test of this module ends them."""
    folder = tmp_path_factory.mktemp("two-workers")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    settings = {
        "tls_cert_file": str(certificates / "server.pem"),
        "operations_port": "0",
        "policy_file": str(policy),
    }
    with serving(folder, workers="2", **settings) as service:
        yield service, policy


@pytest.fixture
def one_worker(tmp_path: Path, certificates: Path) -> Iterator[Workers]:
    tls = {"tls_cert_file": str(certificates / "server.pem")}
    with serving(tmp_path, operations_port="0", **tls) as service:
        yield service, tmp_path


@pytest.mark.parametrize("workers", ["one_worker", "two_workers"])
def test_probes_and_metrics_are_on_the_port_for_operations_alone(
    request: pytest.FixtureRequest, certificates: Path, workers: str
):
    service, _ = request.getfixturevalue(workers)
    assert service.operations_url.startswith(f"http://{HOST}:")
    context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    with httpx.Client(verify=context, timeout=DEADLINE_S) as client:
        for path in ("/livez", "/readyz", "/metrics"):
            there = client.get(f"{service.operations_url}{path}")
            assert there.status_code == (503 if path == "/readyz" else 200)
            problem = client.get(f"{service.url}{path}").json()
            assert (problem["status"], problem["code"]) == (404, "not-found")
        for path in ("/version", "/quotas", "/openapi.json"):
            problem = client.get(f"{service.operations_url}{path}").json()
            assert (problem["status"], problem["code"]) == (404, "not-found")
        assert client.get(f"{service.url}/version").status_code == 200


def test_callers_take_no_connection_from_the_port_for_operations(tmp_path: Path):
    settings = {"operations_port": "0", "max_connections": "3"}
    with serving(tmp_path, **settings) as service, ExitStack() as stack:
        port, operations = (
            int(service.environ[f"QUOTAS_{name}"]) for name in ("PORT", "OPERATIONS_PORT")
        )
        probe = http.client.HTTPConnection(HOST, operations, timeout=DEADLINE_S)
        stack.callback(probe.close)
        probe.request("GET", "/livez")
        probe.getresponse().read()
        connected = probe.sock
        address = HOST, port
        callers = [
            stack.enter_context(socket.create_connection(address, DEADLINE_S)) for _ in range(10)
        ]
        assert callers[0].recv(1) == b"", "the oldest connection of a caller is closed"
        probe.request("GET", "/metrics")
        text = probe.getresponse().read().decode()
        assert 'http_server_connections_dropped_total{reason="all"} ' in text
        assert probe.sock is connected


def test_workers_share_the_port_that_was_free_and_it_is_reported_once(
    two_workers: Workers, certificates: Path
):
    service, _ = two_workers
    assert service.url.startswith(f"https://{HOST}:")
    wait_until(lambda: len(served(service)) == 2, "a worker does not listen", STARTS_WITHIN_S)
    urls = [line["url"] for line in events(service) if line["event"] == "listening"]
    assert urls == [service.url, service.operations_url]
    assert answers(service.url, certificates, "/version")


def test_a_worker_that_cannot_start_is_tried_again_and_ends_the_service_where_none_serves(
    two_workers: Workers,
):
    service, policy = two_workers
    wait_until(lambda: len(served(service)) == 2, "a worker does not listen", STARTS_WITHIN_S)
    policy.write_text("broken")
    killed, survivor = served(service)
    os.kill(killed, signal.SIGKILL)
    tried = "ended with exit code 3; the next one starts now"
    wait_until(
        lambda: any(line["event"].endswith(tried) for line in events(service)),
        "no worker was tried",
        STARTS_WITHIN_S,
    )
    policy.write_text(POLICY)
    wait_until(lambda: len(served(service)) == 3, "the worker does not come back", STARTS_WITHIN_S)
    policy.write_text("broken")
    for worker in (survivor, served(service)[-1]):
        os.kill(worker, signal.SIGKILL)
    assert service.process is not None
    assert service.process.wait(STARTS_WITHIN_S) == 3
    ends = "ended with exit code 3 and could not start; so the service ends"
    assert any(line["event"].endswith(ends) for line in events(service))
