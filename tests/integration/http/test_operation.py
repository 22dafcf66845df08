"""Ports, probes, metrics and the log: what operators see, and a start in production."""

import http.client
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
from prometheus_client.parser import text_string_to_metric_families

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.postgres.migrate import migrate
from tests.integration.http.service_calls import C, I, M, P, R, change
from tests.testkit.certificates import Authority, person
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.service import (
    DEADLINE_S,
    PLAIN_HTTP,
    RunningService,
    running_service,
)


@pytest.fixture
def nobody(service: RunningService) -> Any:
    """A client without a credential."""
    with httpx.Client(base_url=service.url, timeout=30, verify=PLAIN_HTTP) as client:
        yield client


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/readyz?for=write"])
def test_a_probe_of_a_healthy_service_says_ok(nobody: httpx.Client, path: str) -> None:
    answer = nobody.get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_version_is_that_of_the_package(nobody: httpx.Client) -> None:
    document = nobody.get("/version").json()
    assert document["name"] == "kafka-quota-service"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", document["version"])


def samples(nobody: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = nobody.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def sample(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_metrics_count_what_happens(service: RunningService, nobody: httpx.Client) -> None:
    names = {"user": unique()}
    before = samples(nobody)
    service.alter(change(names, {P: 5}))
    service.alter(change(names, {P: 0}), change({"user": unique()}, {P: 5}), all_or_nothing=False)
    service.alter(change(names, {P: 6}), validate_only=True)
    service.api("mallory").get("/quotas")
    nobody.get("/quotas")
    after = samples(nobody)
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    cluster = {"cluster": "default"}
    route = {**cluster, "route": "/quotas/alterations", "method": "POST"}
    count = "http_server_request_duration_seconds_count"
    assert grown[sample("quota_alterations_total", **cluster, verdict="applied")] == 2
    assert grown[sample("quota_alterations_total", **cluster, verdict="refused")] == 1
    assert grown[sample("quota_alterations_total", **cluster, verdict="validated")] == 1
    assert grown[sample(count, **route, status="200")] == 2
    assert grown[sample(count, **route, status="207")] == 1
    assert grown[sample("request_rejected_total", reason="unauthenticated")] == 1
    denied = sample("authz_total", **cluster, operation="DESCRIBE_CONFIGS", result="denied")
    assert grown[denied] == 1


def test_capabilities_tell_types_keys_bounds_and_limits(service: RunningService) -> None:
    document = service.api("bob").get("/quotas/capabilities").json()
    assert document["entity_types"] == ["user", "client-id", "ip"]
    keys = document["keys"]
    assert list(keys) == [P, C, R, M, I]
    assert {key: rule["unit"] for key, rule in keys.items()} == {
        P: "bytes/s", C: "bytes/s", R: "percent", M: "partitions/s", I: "connections/s"
    }  # fmt: skip
    assert {key: (rule["minimum"], rule["maximum"]) for key, rule in keys.items()} == {
        P: (1, 2**63 - 1),
        C: (1, 2**63 - 1),
        R: (0.01, 10**9),
        M: (0.01, 10**9),
        I: (1, 2147483647),
    }
    assert [key for key, rule in keys.items() if rule["integral"]] == [P, C, I]
    assert [key for key, rule in keys.items() if rule["scope"] == "cluster"] == [M]
    assert [key for key, rule in keys.items() if rule["entity_types"] == ["ip"]] == [I]
    assert document["brokers"]["alter_api_version"] == 1
    assert document["limits"]["changes_per_request"] == 10_000
    assert document["limits"]["body_bytes"] == 8 * 1024 * 1024
    assert document["limits"]["name_bytes"] == 512


def test_one_role_for_everything_on_one_machine_works_in_production(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path
) -> None:
    owner_url, _ = postgres.create_database("one_role")
    migrate(owner_url, owner_url)
    (tmp_path / "database_url").write_text(f"{owner_url}\n", encoding="utf-8")
    settings = {
        "mode": "production",
        "database_url_file": str(tmp_path / "database_url"),
        "migration_database_url": owner_url,
        "shutdown_delay_s": "0",
    }
    with running_service(tmp_path, broker.bootstrap_servers, "", **settings) as service:
        assert httpx.get(f"{service.url}/readyz?for=write", timeout=DEADLINE_S).status_code == 200
        assert service.alter(change({"user": unique()}, {P: 5})).status_code == 200
        assert service.process is not None
        limits = Path(f"/proc/{service.process.pid}/limits").read_text(encoding="utf-8")
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
        service.process.send_signal(signal.SIGHUP)
        reread = "nothing to read again: there is no policy"
        wait_until(lambda: reread in [line["event"] for line in service.lines()])
        assert service.alter(change({"user": unique()}, {P: 5})).status_code == 200
        assert service.stop() == 0
    logged = "\n".join(line["event"] for line in service.lines())
    for words in (
        "risky: QUOTAS_TOKENS_FILE",
        "the role quotas_owner owns the audit log",
        "unsafe: QUOTAS_DATABASE_URL: Postgres has fsync off",
    ):
        assert words in logged


HOST = "127.0.0.1"
NOWHERE = f"{HOST}:1"


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


def test_probes_and_metrics_are_on_the_port_for_operations_alone(
    tmp_path: Path, certificates: Path
):
    tls = {"tls_cert_file": str(certificates / "server.pem")}
    context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    with (
        serving(tmp_path, operations_port="0", **tls) as service,
        httpx.Client(verify=context, timeout=DEADLINE_S) as client,
    ):
        assert service.operations_url.startswith(f"http://{HOST}:")
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
