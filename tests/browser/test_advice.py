"""Advice on the page: what is shown of it, and that it becomes a plan, which is then applied."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.browser.conftest import MIB, Visitors, visitors_of
from tests.browser.page_calls import button, field, row, set_quota, values_of
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

USERS = ("advised-up", "advised-down", "advised-away")


@pytest.fixture(autouse=True)
def stored(site: RunningService) -> None:
    for user in USERS:
        set_quota(site, {"user": user}, producer_byte_rate=4 * MIB, request_percentage=50)


def added(page: Page, table: str, user: str) -> None:
    found = row(page, table, user)
    button(found, "Add to plan").click()
    expect(button(found, "In the plan")).to_be_disabled()


def test_each_row_has_its_evidence(visitors: Visitors):
    page = visitors.visit("/ui/usage")
    page.get_by_role("link", name="Advice", exact=True).click()
    raised = row(page, "Raise", "advised-up")
    for text in (
        "4 MiB/s",
        "8 MiB/s × 2",
        "The busiest broker needs 6.4 MiB/s.",
        "needs 6.4 MiB/s on broker 1; peak 8 MiB/s; throttled in 96 of 9,000 minutes",
        "throttled for 45 min now, then hardly at all",
        "7 days, 98 % of the minutes seen",
        "measure again after the change",
    ):
        expect(raised).to_contain_text(text)
    expect(row(page, "Lower", "advised-down")).to_contain_text("2 MiB/s ÷ 2")
    expect(row(page, "Remove", "advised-away")).to_contain_text("nobody of these names was seen")
    shadowed = row(page, "Remove", "its user is in no inventory")
    expect(shadowed).to_contain_text("before it: default user")
    expect(button(shadowed, "Add to plan")).to_have_count(0)


def test_advice_becomes_a_plan_that_is_looked_at_and_then_applied(
    visitors: Visitors, site: RunningService
):
    page = visitors.visit("/ui/advice")
    added(page, "Raise", "advised-up")
    added(page, "Lower", "advised-down")
    added(page, "Remove", "advised-away")
    expect(page.get_by_role("status").filter(has_text="3 changes are in the plan")).to_be_visible()
    page.reload()
    expect(button(row(page, "Raise", "advised-up"), "In the plan")).to_be_disabled()
    page.get_by_role("link", name="see what it would do").click()
    expect(field(page, "Document")).to_have_value(re.compile("advised-down"))
    button(page, "Plan").click()
    expect(row(page, "Changes", "advised-away")).to_contain_text("removed")
    assert values_of(site, "advised-up")["producer_byte_rate"] == 4 * MIB
    button(page, "Apply").click()
    expect(page.get_by_role("status").filter(has_text="applied")).to_be_visible()
    found = [values_of(site, user).get("producer_byte_rate") for user in USERS]
    assert found == [8 * MIB, 2 * MIB, None]
    page.get_by_role("link", name="Advice", exact=True).click()
    expect(button(row(page, "Raise", "advised-up"), "Add to plan")).to_be_enabled()


def test_a_draft_can_be_emptied_and_nothing_is_asked_when_it_is_left(visitors: Visitors):
    page = visitors.visit("/ui/advice")
    added(page, "Raise", "advised-up")
    page.get_by_role("link", name="see what it would do").click()
    expect(field(page, "Document")).to_have_value(re.compile("advised-up"))
    page.get_by_role("link", name="Advice", exact=True).click()
    expect(page.get_by_role("heading", name="Advice", exact=True, level=1)).to_be_visible()
    button(page, "Empty it").click()
    expect(button(row(page, "Raise", "advised-up"), "Add to plan")).to_be_enabled()
    page.get_by_role("link", name="Plan", exact=True).first.click()
    expect(field(page, "Document")).to_have_value("")


@pytest.fixture(scope="module")
def budgeted(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service with a budget, for which no run of the pipeline has published anything."""
    folder = tmp_path_factory.mktemp("budgeted")
    policy = folder / "policy.yaml"
    policy.write_text(
        "apiVersion: quotas-policy/v1\n"
        'budgets: [{name: paged, users: "paged-", limits: {producer_byte_rate: 10MiB}}]\n'
    )
    _, url = migrated_database(postgres, "budgeted-page")
    with running_service(folder, broker.bootstrap_servers, url, policy_file=str(policy)) as service:
        yield service


def test_before_any_run_the_screen_says_what_fills_it_and_budgets_say_how_full_they_are(
    chrome: Browser, budgeted: RunningService
):
    set_quota(budgeted, {"user": "paged-a"}, producer_byte_rate=9 * MIB)
    set_quota(budgeted, {"user": "paged-b"}, request_percentage=10)
    with visitors_of(chrome, budgeted) as visitors:
        page = visitors.visit("/ui/advice")
        expect(page.get_by_text("quota-pipeline rightsize … --pg")).to_have_count(2)
        expect(page.get_by_text("quota-pipeline stale … --pg")).to_be_visible()
        page.get_by_role("link", name="Near a limit", exact=True).click()
        full = row(page, "Budgets", "paged")
        for text in ("90 %", "9 MiB/s", "10 MiB/s"):
            expect(full).to_contain_text(text)
        page.goto(f"{budgeted.url}/ui/new")
        field(page, "User").fill("paged-c")
        field(page, "producer_byte_rate").fill("2 MiB")
        button(page, "Check").click()
        expect(field(page, "producer_byte_rate")).to_have_attribute("aria-invalid", "true")
        expect(field(page, "producer_byte_rate")).to_have_accessible_description(
            re.compile("Budget paged: producer_byte_rate would add up to 11 MiB/s")
        )
        page.close()
