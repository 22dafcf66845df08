"""Probes, metrics, documentation: what operators see, and what nobody sees without a credential."""

import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.http.problem_catalog import PROBLEMS
from tests.integration.http.service_calls import C, I, M, P, R, change
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.service import PLAIN_HTTP, RunningService

OPEN = {"/", "/livez", "/readyz", "/version", "/metrics", "/problems/", "/problems/{code}"}
"""The documented routes that need no credential; beside them there are the documents themselves."""


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


class Links(HTMLParser):
    """The addresses that a page names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_documentation_needs_no_other_host(nobody: httpx.Client) -> None:
    page = nobody.get("/docs")
    assert page.status_code == 200
    assert "//" not in re.sub(r"<!--.*?-->", "", page.text, flags=re.DOTALL)
    security = page.headers["Content-Security-Policy"]
    assert security.startswith("default-src 'self';")
    assert "script-src" not in security
    addresses = Links(page.text).addresses
    assert {urlsplit(item).path.rpartition(".")[2] for item in addresses} == {"css", "js", "ico"}
    script = nobody.get("/ui/docs.js").text
    assert 'url: "/openapi.json"' in script
    assert "persistAuthorization: true" in script
    for address in addresses:
        asset = nobody.get(urljoin("/docs", address))
        assert asset.status_code == 200
        assert len(asset.content) > 100
        if address.endswith(".css"):
            assert not re.search(r"(url|@import)\s*\(?['\"]?(https?:)?//", asset.text)
    assert nobody.get("/ui/..%2f__init__.py").status_code == 404
    assert nobody.get("/ui/nothing.js").status_code == 404


def test_every_problem_has_a_page(nobody: httpx.Client, subtests: pytest.Subtests) -> None:
    for code in PROBLEMS:
        with subtests.test(code=code):
            page = nobody.get(f"/problems/{code}")
            assert page.status_code == 200
            assert page.headers["Content-Type"].startswith("text/html")
            assert f"<code>{code}</code>" in page.text
            assert "//" not in page.text


@pytest.mark.parametrize("code", ["nothing", "<script>", "%00"])
def test_a_problem_that_there_is_not_has_no_page(nobody: httpx.Client, code: str) -> None:
    answer = nobody.get(f"/problems/{code}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert "<script>" not in answer.text


def routes(nobody: httpx.Client) -> list[tuple[str, str, dict[str, Any]]]:
    document = nobody.get("/openapi.json").json()
    return [
        (method.upper(), path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


def test_nothing_but_what_is_meant_for_everybody_answers_without_a_credential(
    nobody: httpx.Client,
) -> None:
    listed = routes(nobody)
    assert {path for _, path, _ in listed} > OPEN
    for method, path, operation in listed:
        address = path.replace("{code}", "not-found").replace("{alteration_id}", "0")
        answer = nobody.request(method, address)
        if path in OPEN:
            assert answer.status_code == 200, path
            assert operation["security"] == []
            continue
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), path
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert operation["security"] == [{"bearer": []}, {"basic": []}, {"certificate": []}]


def test_a_credential_that_is_none_is_refused_before_anything_is_read(
    nobody: httpx.Client, subtests: pytest.Subtests
) -> None:
    for credential, code in [
        ("Bearer nobody", "invalid-token"),
        ("Bearer alice2", "invalid-token"),
        ("Bearer ALICE", "invalid-token"),
        ("Bearer", "invalid-token"),
        ("Bearer alice bob", "invalid-token"),
        ("Basic YWxpY2U6YWxpY2U=", "invalid-token"),
        ("alice", "invalid-token"),
        ("", "invalid-token"),
    ]:
        with subtests.test(credential=credential, code=code):
            for method, path, operation in routes(nobody):
                if operation["security"]:
                    answer = nobody.request(
                        method,
                        path.replace("{alteration_id}", "0"),
                        headers={"Authorization": credential},
                        params={"nonsense": "1"},
                    )
                    assert answer.status_code == 401, path
                    assert answer.json()["code"] in {code, "unauthenticated"}
                    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_word_bearer_may_be_written_in_any_case(nobody: httpx.Client) -> None:
    for word in ("Bearer", "bearer", "BEARER"):
        answer = nobody.get("/quotas", headers={"Authorization": f"{word} bob"})
        assert answer.status_code == 200


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


@pytest.mark.parametrize(
    ("request_id", "echoed"),
    [
        ("a.b_C-9", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ("a/b", False),
        ("", False),
    ],
)
def test_a_valid_request_id_is_echoed(
    nobody: httpx.Client, request_id: str, *, echoed: bool
) -> None:
    answer = nobody.get("/livez", headers={"X-Request-Id": request_id})
    assert (answer.headers["X-Request-Id"] == request_id) is echoed
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", answer.headers["X-Request-Id"])


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
