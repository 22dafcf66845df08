"""What is shown is what is exported and what the curl command asks for."""

import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import MIB, Visitors
from tests.browser.page_calls import button, field, link, row, set_quota
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService

FOUND = [{"user": "found-b"}, {"user": "x", "client-id": "FOUND-a"}, {"user": "found-a"}]


@pytest.fixture(scope="module", autouse=True)
def stored(site: RunningService) -> None:
    for entity in FOUND:
        set_quota(site, {**entity}, producer_byte_rate=1 * MIB)
    set_quota(site, {"user": "hidden"}, producer_byte_rate=1 * MIB)


def curl_of(page: Page, title: str = "curl") -> str:
    """Return the URL of a command, whose other words are the token's header."""
    command = page.locator("details[open]").filter(has_text="curl -sS").locator("pre").first

    def is_open() -> bool:  # what is read meanwhile closes it again
        if not command.is_visible():
            page.get_by_text(title, exact=True).click()
        return command.is_visible()

    wait_until(is_open, "the command does not show")
    words = shlex.split(command.inner_text().replace("\\\n", " "))
    assert words[:2] == ["curl", "-sS"]
    return words[-1]


def test_a_search_is_exported_and_asked_for_alike(
    visitors: Visitors, site: RunningService, tmp_path: Path
):
    page = visitors.visit("/ui/quotas")
    field(page, "Search").fill("ound-")
    expect(page.get_by_text(re.compile("^3 entities"))).to_be_visible()
    listed = site.api("bob").get(httpx.URL(curl_of(page)).raw_path.decode()).json()["quotas"]
    assert sorted(map(str, (each["entity"] for each in listed))) == sorted(map(str, FOUND))
    with page.expect_download() as saved:
        button(page, "Export 3 as YAML").click()
    document: Any = yaml.safe_load(Path(saved.value.path()).read_text("utf-8"))
    assert [each["entity"] for each in document["quotas"]] == [each["entity"] for each in listed]
    with page.expect_download() as saved:
        button(page, "Export 3 as CSV").click()
    lines = Path(saved.value.path()).read_text("utf-8").splitlines()
    assert len(lines) == 4
    field(page, "Search").fill("nobody at all")
    expect(button(page, "Export 0 as YAML")).to_be_disabled()


def test_a_component_of_the_grammar_is_a_filter_and_half_of_one_a_text(visitors: Visitors):
    page = visitors.visit("/ui/quotas?search=user%3Dfound-a")
    expect(page.get_by_text("1 entity", exact=True)).to_be_visible()
    field(page, "Search").fill("user:")
    expect(page.get_by_text("No quota matches.")).to_be_visible()
    field(page, "Search").fill("user^=found")
    expect(page.get_by_text(re.compile("^2 entities"))).to_be_visible()


@pytest.mark.parametrize(
    ("typed", "count"),
    [
        ("user=x,client-id=FOUND-a", 1),
        ("user=x, client-id~=found", 1),
        ("{user=x, client-id=FOUND-a}", 1),
        ("user=x,client-id:absent", 0),
        ("user=CN=x,O=y", 1),
        (r"user=CN=x\,O=y", 1),
    ],
)
def test_a_search_reads_an_entity_as_the_command_writes_it(
    visitors: Visitors, site: RunningService, typed: str, count: int
):
    set_quota(site, {"user": "CN=x,O=y"}, producer_byte_rate=1 * MIB)
    page = visitors.visit("/ui/quotas")
    field(page, "Search").fill(typed)
    found = "1 entity" if count else "0 entities"
    expect(page.get_by_text(found, exact=True)).to_be_visible()
    if count:
        page.goto(f"{visitors.site.url}/ui/audit?entity={quote(typed)}")
        expect(row(page, "Audit", "1 MiB/s")).to_be_visible()


@pytest.mark.parametrize("path", ["entity/%FF", "entity/e30", "edit/WzFd", "entity/eyJ1c2VyIjo1fQ"])
def test_an_address_of_no_entity_says_so(visitors: Visitors, path: str):
    page = visitors.visit(f"/ui/{path}")
    expect(page.get_by_role("heading", name="No such entity")).to_be_visible()


def test_the_audit_log_is_searched_as_the_quotas_are(visitors: Visitors, site: RunningService):
    page = visitors.visit("/ui/audit")
    field(page, "Entity").fill("FOUND-")
    button(page, "Filter").click()
    rows = page.get_by_role("table", name="Audit", exact=True).get_by_role("row")
    expect(rows).to_have_count(1 + len(FOUND))
    asked = site.api("alice").get(httpx.URL(curl_of(page)).raw_path.decode()).json()["rows"]
    assert sorted(str(each["entity"]) for each in asked) == sorted(map(str, FOUND))


def rows_of(page: Page) -> Locator:
    return page.get_by_role("table", name="Quotas", exact=True).get_by_role("row")


def test_further_pages_are_of_the_same_search_and_sorted_as_a_whole(
    visitors: Visitors, site: RunningService
):
    entities = [
        {"entity": {"user": f"many-{i:04}"}, "ops": [{"key": "request_percentage", "value": i + 1}]}
        for i in range(1_050)
    ]
    site.alter(*entities).raise_for_status()
    page = visitors.visit("/ui/quotas?search=MANY-")
    expect(page.get_by_text("200 of 1,050 entities")).to_be_visible()
    button(page, "Show more").click()
    expect(page.get_by_text("400 of 1,050 entities")).to_be_visible()
    expect(rows_of(page)).to_have_count(401)
    expect(button(page, "Export 1,050 as YAML")).to_be_enabled()
    rate = button(
        page.get_by_role("table", name="Quotas", exact=True), "Request time request_percentage"
    )
    rate.click()
    expect(rows_of(page).nth(1)).to_contain_text("many-0000")
    rate.click()
    expect(rows_of(page).nth(1)).to_contain_text("many-1049")
    expect(page.get_by_text("400 of 1,050 entities")).to_be_visible()
    expect(rows_of(page)).to_have_count(401)
    button(page, "Show all 1,050").click()
    expect(rows_of(page)).to_have_count(1_051)


def test_a_plan_is_applied_only_while_its_document_is_there(
    visitors: Visitors, site: RunningService
):
    document = (
        "apiVersion: quotas/v1\nquotas:\n  - entity: {user: seen-plan}\n"
        "    values: {producer_byte_rate: 5}\n"
    )
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill(document)
    button(page, "Plan").click()
    expect(row(page, "Changes", "seen-plan")).to_be_visible()
    field(page, "Document").fill(document.replace("5", "6"))
    expect(page.get_by_text("What you typed has changed since this plan")).to_be_visible()
    expect(button(page, "Apply")).to_be_disabled()
    field(page, "Document").fill(document)
    expect(button(page, "Apply")).to_be_enabled()


def test_the_command_for_ci_is_one_that_a_shell_reads_as_it_is_meant(visitors: Visitors):
    page = visitors.visit("/ui/plan")
    field(page, "Owner").fill("it's team; a")
    field(page, "Scope").fill("user^=team a")
    page.get_by_text("In CI", exact=True).click()
    command = page.locator("details[open] pre").inner_text().splitlines()[0]
    words = shlex.split(command)
    assert words[words.index("--owner") + 1] == "it's team; a"
    assert words[words.index("--scope") + 1] == "user^=team a"


def test_what_is_tried_does_not_stand_beside_another_value(visitors: Visitors):
    page = visitors.visit("/ui/resolve?user=found-a")
    page.get_by_text("What if?").click()
    field(page, "Rule").select_option(label="3 user found-a")
    field(page, "New value").fill("5 MiB")
    button(page, "Try").click()
    expect(page.get_by_text("then 5 MiB/s").first).to_be_visible()
    field(page, "New value").fill("6 MiB")
    expect(page.get_by_text(re.compile("^then"))).to_have_count(0)


def test_a_checked_change_does_not_stand_beside_another_value(visitors: Visitors):
    page = visitors.visit(link({"user": "found-a"}, "edit"))
    field(page, "producer_byte_rate").fill("5 MiB")
    button(page, "Check").click()
    expect(row(page, "After", "producer_byte_rate")).to_contain_text("5 MiB/s")
    field(page, "producer_byte_rate").fill("6 MiB")
    expect(page.get_by_role("table", name="After", exact=True)).to_have_count(0)


@pytest.mark.parametrize(
    ("path", "titles"),
    [
        ("/ui/usage", ["curl", "curl, of the incidents"]),
        (link({"user": "found-a"}), ["curl", "curl, of its use", "curl, of its history"]),
        ("/ui/health", ["curl", "curl, of the runs"]),
        ("/ui/resolve?user=found-a", ["curl"]),
    ],
)
def test_each_list_has_the_command_that_asks_for_it(
    visitors: Visitors, site: RunningService, path: str, titles: list[str]
):
    page = visitors.visit(path)
    for title in titles:
        url = httpx.URL(curl_of(page, title))
        assert site.api("alice").get(url.raw_path.decode()).status_code == 200
        page.get_by_text(title, exact=True).click()
