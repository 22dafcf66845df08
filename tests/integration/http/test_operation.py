"""Probes, metrics, documentation: what operators see, and what nobody sees without a credential."""

import json
import re
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http.service_calls import C, I, M, P, R, change
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.service import PLAIN_HTTP, RunningService


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
    route = {"route": "/quotas/alterations", "method": "POST"}
    count = "http_server_request_duration_seconds_count"
    assert grown[sample("quota_alterations_total", verdict="applied")] == 2
    assert grown[sample("quota_alterations_total", verdict="refused")] == 1
    assert grown[sample("quota_alterations_total", verdict="validated")] == 1
    assert grown[sample(count, **route, status="200")] == 2
    assert grown[sample(count, **route, status="207")] == 1
    assert grown[sample("request_rejected_total", reason="unauthenticated")] == 1
    denied = sample("authz_total", operation="DESCRIBE_CONFIGS", result="denied")
    assert grown[denied] == 1


def test_metrics_name_nobody(service: RunningService, nobody: httpx.Client) -> None:
    name = unique("user")
    service.alter(change({"user": name}, {P: 5}))
    service.api().get(f"/quotas/alterations/{name}")
    service.api().get(f"/{name}")
    service.api().get("/quotas", params={"filter": f"user={name}", name: name})
    text = nobody.get("/metrics").text
    assert name not in text
    assert "alice" not in text


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


def test_a_problem_names_the_request_and_a_page_about_itself(
    service: RunningService, nobody: httpx.Client
) -> None:
    api = service.api()
    names = {"user": unique()}
    problems = [
        nobody.get("/quotas"),
        nobody.get("/quotas", headers={"Authorization": "Bearer nobody"}),
        service.api("mallory").get("/quotas"),
        service.api("bob").get("/audit", params={"actor": "User:alice"}),
        api.get("/nothing"),
        api.put("/quotas"),
        api.get("/quotas", headers={"Accept": "text/html"}),
        api.get("/quotas", params={"nonsense": "1"}),
        api.get("/quotas", params={"page_token": "0"}),
        api.get("/quotas", headers={"X-Padding": "x" * 40_000}),
        api.post("/quotas/alterations", content=b"{}"),
        api.post(
            "/quotas/alterations",
            content=b" " * (8 * 1024 * 1024 + 1),
            headers={"Content-Type": "application/json"},
        ),
        service.alter(),
        service.alter(change(names, {P: 0})),
        service.alter({**change(names, {P: 5}), "expected": {P: 4}}),
    ]
    codes = []
    for answer in problems:
        problem = answer.json()
        codes.append(problem["code"])
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert problem["status"] == answer.status_code
        assert problem["request_id"] == answer.headers["X-Request-Id"]
        assert problem["instance"] == answer.request.url.path
        assert problem["type"] == f"/problems/{problem['code']}"
        assert problem["retry"] in {"safe", "same-key-only", "never"}
        assert problem["sent_to_cluster"] == "no"
        assert nobody.get(problem["type"]).status_code == 200
    assert len(set(codes)) == len(codes), codes


def test_a_request_is_one_line_of_the_log_with_its_id_and_no_secret(
    service: RunningService,
) -> None:
    request_id = unique("log")
    service.api().get("/quotas", params={"filter": "user=a"}, headers={"X-Request-Id": request_id})
    wait_until(lambda: '"event":"request"' in last_line(service, request_id))
    line = json.loads(last_line(service, request_id))
    assert (line["method"], line["route"], line["status"]) == ("GET", "/quotas", 200)
    assert line["principal"] == "User:alice"
    assert "Bearer" not in service.log_path.read_text()


def last_line(service: RunningService, words: str) -> str:
    lines = service.log_path.read_text().splitlines()
    return next((line for line in reversed(lines) if words in line), "")
