"""What is not known is said to be so: before the first run of the pipeline, and of old data."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.browser.conftest import Visitors, visitors_of
from tests.browser.page_calls import button, field, link, row
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

COMMAND = "quota-pipeline run … --pg"
LATE = "2027-10-20T06:00:00Z"
"""Eleven months after the day of which use is published."""


@pytest.fixture(scope="module")
def fresh(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service for which no run of the pipeline has published anything."""
    folder = tmp_path_factory.mktemp("fresh")
    _, url = migrated_database(postgres, folder.name)
    with running_service(folder, broker.bootstrap_servers, url) as service:
        yield service


@pytest.fixture
def newcomers(chrome: Browser, fresh: RunningService) -> Iterator[Visitors]:
    """Tabs on that service."""
    with visitors_of(chrome, fresh) as visitors:
        yield visitors


def test_before_any_run_nobody_reads_that_all_is_well(newcomers: Visitors):
    page = newcomers.visit("/ui/usage")
    expect(page.get_by_text("No use is known")).to_contain_text(COMMAND)
    expect(page.get_by_text("Whether there were any is not known.")).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(0)
    for path in (link({"user": "alice"}), "/ui/health"):
        page.goto(newcomers.site.url + path)
        expect(page.get_by_text("No use is known")).to_contain_text(COMMAND)


def test_values_that_are_not_judged_are_not_called_right(visitors: Visitors):
    def answer(route: Route) -> None:
        rows = [{}] if "action=insufficient" in route.request.url else []
        route.fulfill(json={"rows": rows, "next_page_token": None, "data_through": None})

    page = visitors.visit("/ui/usage")
    page.route("**/analytics/recommendations?*", answer)
    page.get_by_role("link", name="Advice", exact=True).click()
    for name in ("Raise", "Lower"):
        table = page.get_by_role("table", name=name)
        expect(table).to_have_text(re.compile("None yet: of some values the data do not suffice"))


@pytest.mark.parametrize("path", ["/ui/usage", link({"user": "alice"}), "/ui/health"])
def test_old_data_says_how_old_it_is(visitors: Visitors, path: str):
    page = visitors.visit(path, now=LATE)
    expect(page.locator(".notice.open").filter(has_text="11 months old")).to_contain_text(COMMAND)
    page = visitors.visit(path)
    expect(page.get_by_text("Data through 2026-11-20")).to_be_visible()
    expect(page.locator(".notice.open")).to_have_count(0)


def test_a_check_says_of_which_days_it_speaks_where_they_are_long_past(
    visitors: Visitors, site: RunningService
):
    stored = site.api("bob").get("/quotas", params={"filter": "user=alice"}).json()["quotas"]
    for quota in stored:
        site.api().delete(f"/quotas/{quota['entity_key']}").raise_for_status()
    page = visitors.visit(link({"user": "alice"}, "edit"), now=LATE)
    page.get_by_label("producer_byte_rate", exact=True).fill("16 MiB")
    button(page, "Check").click()
    expect(page.get_by_text("the day until 2026-11-20, 11 months ago:")).to_be_visible()


def test_an_empty_list_says_what_was_looked_for(newcomers: Visitors):
    page = newcomers.visit("/ui/quotas?search=nobody")
    expect(page.get_by_text("No quota matches.")).to_be_visible()
    page.goto(newcomers.site.url + "/ui/audit")
    expect(page.get_by_text("No change of yours is recorded.")).to_be_visible()
    page.goto(newcomers.site.url + "/ui/audit?action=drift")
    expect(page.get_by_text("No change of yours matches.")).to_be_visible()


def hour_button(page: Page, user: str) -> Locator:
    return button(row(page, "Near a limit", user), "By hour")


def test_use_by_hour_opens_under_its_row_in_view_and_focused(visitors: Visitors):
    page = visitors.visit("/ui/usage")
    expect(row(page, "Near a limit", "alice")).to_be_visible()
    expect(page.get_by_role("table", name="Near a limit", exact=True)).not_to_contain_text("bob")
    field(page, "Below 70 %, too").check()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        expect(hour_button(page, "bob")).to_have_attribute("aria-expanded", "false")
        hour_button(page, "bob").click()
        expect(hour_button(page, "bob")).to_have_attribute("aria-expanded", "true")
        chart = page.get_by_role("img", name="Use by hour", exact=True)
        expect(chart).to_have_count(1)
        expect(chart).to_be_in_viewport(ratio=1)
        below = row(page, "Near a limit", "bob").locator("xpath=following-sibling::tr[1]")
        expect(below.get_by_role("img", name="Use by hour", exact=True)).to_be_visible()
        expect(below.get_by_role("figure")).to_be_focused()
        expect(below.get_by_text("No hour of these 14 days was published for it.")).to_be_visible()
        hour_button(page, "bob").click()
        expect(chart).to_have_count(0)
