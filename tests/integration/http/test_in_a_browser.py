"""What only a browser shows: the recipes of docs/portals.md as they stand, and /docs tried out."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import C, P, change
from tests.testkit.browser import chromium
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService, running_service

ROOT = Path(__file__).resolve().parents[3]
RECIPES = (ROOT / "docs" / "portals.md").read_text(encoding="utf-8")


def recipe(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL)
    return str(block)


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Portal</title>")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def origin() -> Iterator[str]:
    """Serve an empty page at an address of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def portal() -> Iterator[str]:
    with origin() as url:
        yield url


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory,
    broker: LocalKafka,
    postgres: LocalPostgres,
    portal: str,
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("portals")
    _, url = migrated_database(postgres, "portals")
    with running_service(folder, broker.bootstrap_servers, url, cors_origins=portal) as running:
        yield running


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(autouse=True)
def _carol(service: RunningService, empty_cluster: RawQuotas) -> None:
    answer = service.alter(change({"user": "team-carol"}, {P: 1048576, C: 9223372036854775807}))
    assert answer.status_code == 200, answer.text


def run_recipe(page: Page, service: RunningService) -> dict[str, object]:
    code = recipe("js").replace("http://localhost:8080", service.url)
    page.evaluate("sessionStorage.setItem('token', 'alice')")
    script = f"async () => {{ {code}\nreturn changed.document; }}"
    return dict(page.evaluate(script))


def test_a_page_of_the_portal_changes_a_quota(
    chrome: Browser, service: RunningService, portal: str
) -> None:
    page = chrome.new_page()
    page.goto(portal)
    changed = run_recipe(page, service)
    page.close()
    assert changed["outcome"] == "applied"
    (quota,) = service.api().get("/quotas", params={"filter": "user=team-carol"}).json()["quotas"]
    assert quota["values"] == {P: 2097152, C: 9223372036854775807}


def test_a_page_of_another_origin_cannot_even_ask(chrome: Browser, service: RunningService) -> None:
    with origin() as other:
        page = chrome.new_page()
        page.goto(other)
        with pytest.raises(Error, match="Failed to fetch"):
            run_recipe(page, service)
        page.close()


def test_the_documentation_alters_with_its_first_example_and_keeps_the_token(
    chrome: Browser, service: RunningService
) -> None:
    page = chrome.new_page()
    page.goto(f"{service.url}/docs")
    page.locator("button.authorize").first.click()
    page.get_by_label("auth-bearer-value").fill("alice")
    page.get_by_label("Apply credentials").first.click()
    page.get_by_role("button", name="Close").first.click()
    page.reload()
    page.locator("#operations-alterations-alterQuotas .opblock-summary-control").click()
    operation = page.locator("#operations-alterations-alterQuotas")
    with page.expect_response("**/quotas/alterations") as answered:
        operation.locator("button.execute").click()
    answer = answered.value
    assert (answer.status, answer.json()["outcome"]) == (200, "applied"), answer.text()
    page.close()


def test_a_backend_changes_a_quota(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTAL_TOKEN", "alice")
    names: dict[str, object] = {}
    code = recipe("python").replace("http://localhost:8080", service.url)
    exec(f"{code}\nquotas.close()", names)  # noqa: S102 - it is ours
    assert names["after"] == {P: 1048576, C: 4194304}
