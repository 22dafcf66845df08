"""Values for a time on the page: set in the form, beside the value, listed, made permanent."""

from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.browser.conftest import Visitors
from tests.browser.page_calls import button, field, link, row, set_quota, values_of
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService

KEY = "producer_byte_rate"


def test_a_quota_is_raised_for_hours_and_the_page_says_until_when(
    visitors: Visitors, site: RunningService
):
    name = unique("night")
    set_quota(site, {"user": name}, producer_byte_rate=1048576)
    page = visitors.visit(link({"user": name}, "edit"), now=datetime.now(UTC).isoformat())
    field(page, KEY).fill("4 MiB/s")
    field(page, "For").fill("4 h")
    button(page, "Apply").click()
    expect(page.get_by_text("Write a number of hours.")).to_be_visible()
    field(page, "For").fill("4")
    button(page, "Apply").click()
    expect(page.get_by_text("It ends at")).to_be_visible()
    assert values_of(site, name) == {KEY: 4194304}
    page.goto(f"{site.url}{link({'user': name})}")
    held = row(page, "Values", KEY)
    expect(held).to_contain_text("until ")
    expect(held).to_contain_text("left, then 1 MiB/s")
    page.goto(f"{site.url}/ui/quotas?search=user%3D{name}")
    expect(row(page, "Quotas", name)).to_contain_text("until ")
    button(page, "For a time").click()
    listed = row(page, "For a time", name)
    expect(listed).to_contain_text("4 MiB/s")
    listed.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("table", name="For a time")).not_to_contain_text(name)
    assert site.api("bob").get("/quotas/temporary", params={"filter": f"user={name}"}).json() == {
        "rows": [],
        "next_page_token": None,
    }
    assert values_of(site, name) == {KEY: 4194304}
