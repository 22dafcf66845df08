"""Several clusters on the page: one is picked, links stay in it, and all are searched."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import free_ports
from tests.browser.conftest import MIB, visitors_of
from tests.browser.page_calls import button, field, row
from tests.testkit.accounts import allow
from tests.testkit.class_archive import shared_classes
from tests.testkit.clusters import running_clusters
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, acl


@pytest.fixture(scope="module")
def clusters(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """Two clusters, and one that is away: bob describes in the first, and alters in the other."""
    folder = tmp_path_factory.mktemp("clusters-page")
    _, url = migrated_database(postgres, "clusters-page")
    (closed,) = free_ports(1)
    with LocalKafka(folder / "other", java_options=shared_classes()) as other:
        allow(other, acl("bob", "ALTER_CONFIGS"))
        servers = {"prod": broker.bootstrap_servers, "test": other.bootstrap_servers}
        servers["away"] = f"127.0.0.1:{closed}"
        entries = {name: {"bootstrap_servers": each} for name, each in servers.items()}
        with running_clusters(folder, url, entries) as service:
            wait_until(lambda: ready(service) == {"prod", "test"})
            yield service


def ready(service: RunningService) -> set[str]:
    listed = service.api("bob").get("/clusters").json()["clusters"]
    return {each["name"] for each in listed if each["ready"]}


def values(service: RunningService, cluster: str, user: str) -> list[dict[str, float]]:
    path = f"/clusters/{cluster}/quotas?filter=user={user}"
    return [each["values"] for each in service.api("bob").get(path).json()["quotas"]]


def test_a_cluster_is_picked_and_the_page_stays_in_it(chrome: Browser, clusters: RunningService):
    ops = [{"key": "producer_byte_rate", "value": MIB}]
    for name, who in (("prod", "alice"), ("test", "bob")):
        body = {"alterations": [{"entity": {"user": f"only-{name}"}, "ops": ops}]}
        path = f"/clusters/{name}/quotas/alterations"
        clusters.api(who).post(path, json=body).raise_for_status()
    with visitors_of(chrome, clusters) as visitors:
        page = visitors.visit("/ui/quotas", "bob")
        picker = field(page, "Cluster")
        expect(picker).to_have_value("prod")
        expect(picker.get_by_role("option")).to_have_text(["prod", "test", "away (not ready)"])
        expect(row(page, "Quotas", "only-prod")).to_be_visible()
        expect(button(page, "New quota")).to_have_count(0)
        picker.select_option("test")
        page.wait_for_url("**/clusters/test/ui/quotas")
        expect(row(page, "Quotas", "only-test")).to_be_visible()
        expect(page.get_by_role("table", name="Quotas")).not_to_contain_text("only-prod")
        button(page, "New quota").click()
        field(page, "User").fill("picked")
        field(page, "producer_byte_rate").fill("2 MiB")
        button(page, "Apply").click()
        expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
        assert values(clusters, "test", "picked") == [{"producer_byte_rate": 2 * MIB}]
        assert values(clusters, "prod", "picked") == []
        page.get_by_role("link", name="See its record").click()
        page.wait_for_url("**/clusters/test/ui/alteration/*")
        expect(page.get_by_role("heading", name="History")).to_be_visible()
        field(page, "Cluster").select_option("prod")
        expect(row(page, "Quotas", "only-prod")).to_be_visible()
        button(page, "Undo").click()
        expect(page.get_by_role("log", name="Messages")).to_contain_text("are back")
        assert values(clusters, "test", "picked") == []
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
        page.keyboard.type("only-")
        page.get_by_role("option", name="user only-test quota in test").click()
        page.wait_for_url("**/clusters/test/ui/entity/*")
        expect(row(page, "Values", "producer_byte_rate")).to_contain_text("1 MiB/s")
        field(page, "Cluster").select_option("away")
        expect(page.get_by_role("heading", name="away", exact=True)).to_be_visible()
        expect(page.get_by_role("alert")).to_be_visible()
        field(page, "Cluster").select_option("prod")
        expect(row(page, "Quotas", "only-prod")).to_be_visible()
        page.goto(f"{clusters.url}/")
        page.wait_for_url("**/clusters/prod/ui/quotas")
        expect(field(page, "Cluster")).to_have_value("prod")


def test_health_shows_the_figures_of_its_own_cluster(chrome: Browser, clusters: RunningService):
    text = """\
quotas_open_intents{cluster="prod"} 0.0
quotas_open_intents{cluster="test"} 3.0
quotas_drift_scan_age_seconds{cluster="prod"} 30.0
quotas_drift_scan_age_seconds{cluster="test"} 60.0
"""
    with visitors_of(chrome, clusters) as visitors:
        for path, figures in (
            ("/clusters/test/ui/health", ["3", "60 s"]),
            ("/clusters/prod/ui/health", ["0", "30 s"]),
            ("/ui/health", ["0", "30 s"]),
        ):
            page = visitors.visit(path, "bob")
            page.route("**/metrics", lambda route: route.fulfill(body=text))
            button(page, "Refresh").click()
            expect(page.locator(".tile dd")).to_have_text(["ready", "ready", *figures])


def test_who_signs_in_while_the_default_cluster_is_away_can_pick_another(
    chrome: Browser, clusters: RunningService
):
    path = Path(clusters.environ["QUOTAS_CLUSTERS_FILE"])
    before = path.read_text("utf-8")

    def reload(text: str, default: str) -> None:
        path.write_text(text, "utf-8")
        clusters.send(signal.SIGHUP)
        listed = clusters.api("bob").get
        wait_until(lambda: listed("/clusters").json()["default"] == default)

    reload(json.dumps({**json.loads(before), "default": "away"}), "away")
    try:
        with visitors_of(chrome, clusters) as visitors:
            page = visitors.visit("/ui/quotas", who=None)
            field(page, "Token").fill("bob")
            button(page, "Sign in").click()
            expect(page.get_by_text("User:bob").first).to_be_visible()
            expect(page.get_by_role("alert")).to_contain_text("No broker answers")
            expect(field(page, "Cluster")).to_have_value("away")
            field(page, "Cluster").select_option("test")
            expect(button(page, "New quota")).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        reload(before, "prod")
