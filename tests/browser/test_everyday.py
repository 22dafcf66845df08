"""What people do all day: find, sort, change several, paste a spreadsheet, undo."""

import re

from playwright.sync_api import Page, expect

from app.localdev.kafka import LocalKafka
from tests.browser.conftest import MIB, Visitors
from tests.browser.page_calls import button, field, link, row, set_quota, values_of
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

USERS = 500


def toast(page: Page, text: str) -> None:
    expect(page.get_by_role("log", name="Messages")).to_contain_text(text)


def test_an_applied_change_is_undone_unless_it_was_changed_again(
    visitors: Visitors, site: RunningService
):
    set_quota(site, {"user": "undone"}, producer_byte_rate=1 * MIB, request_percentage=20)
    page = visitors.visit(link({"user": "undone"}, "edit"))
    field(page, "producer_byte_rate").fill("3 MiB")
    field(page, "request_percentage").fill("")
    button(page, "Apply").click()
    toast(page, "Changed user undone.")
    assert values_of(site, "undone") == {"producer_byte_rate": 3 * MIB}
    button(page, "Undo").click()
    toast(page, "the values from before are back")
    assert values_of(site, "undone") == {"producer_byte_rate": MIB, "request_percentage": 20}
    expect(field(page, "producer_byte_rate")).to_have_value(str(MIB))
    field(page, "producer_byte_rate").fill("4 MiB")
    button(page, "Apply").click()
    toast(page, "Changed user undone.")
    set_quota(site, {"user": "undone"}, producer_byte_rate=7 * MIB)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("undo")
    page.keyboard.press("Enter")
    toast(page, "Not undone: it was changed again since.")
    assert values_of(site, "undone")["producer_byte_rate"] == 7 * MIB


def test_from_signing_in_to_an_applied_change_by_keyboard_alone(
    visitors: Visitors, site: RunningService
):
    set_quota(site, {"user": "typist"}, producer_byte_rate=1 * MIB)
    page = visitors.visit("/", who=None)
    expect(field(page, "Token")).to_be_focused()
    page.keyboard.type("alice")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Quotas", exact=True)).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("typist")
    option = page.get_by_role("option", name="user typist quota")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="user typist")).to_be_focused()
    for _ in range(2):
        page.keyboard.press("Tab")
    expect(button(page, "Edit")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Edit user typist")).to_be_focused()
    expect(field(page, "producer_byte_rate")).to_have_value(str(MIB))
    while not page.evaluate("document.activeElement.matches('.limit input')"):
        page.keyboard.press("Tab")
    page.keyboard.type("2 MiB")
    page.keyboard.press("Enter")
    expect(row(page, "After", "producer_byte_rate")).to_contain_text("2 MiB/s × 2")
    while not page.evaluate("document.activeElement.textContent === 'Apply'"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    toast(page, "Changed user typist.")
    assert values_of(site, "typist") == {"producer_byte_rate": 2 * MIB}
    page.keyboard.press("Escape")
    page.get_by_role("heading", level=1).focus()
    page.keyboard.press("/")
    expect(page.get_by_role("heading", name="Quotas", exact=True)).to_be_focused()
    page.keyboard.press("/")
    expect(field(page, "Search")).to_be_focused()


def test_several_quotas_are_changed_at_once_and_undone_at_once(
    visitors: Visitors, site: RunningService
):
    for number in (1, 2, 3):
        set_quota(site, {"user": f"several-{number}"}, producer_byte_rate=number * MIB)
    page = visitors.visit("/ui/quotas?search=several-")
    page.get_by_label("Select user several-1", exact=True).check()
    page.get_by_label("Select user several-3", exact=True).check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    button(page, "Change …").click()
    dialog = page.get_by_role("dialog")
    field(dialog, "New value").fill("1")
    expect(dialog.get_by_text("2 values are lowered by 100 times")).to_be_visible()
    expect(button(dialog, "Apply")).to_be_disabled()
    field(dialog, "New value").fill("1 MiB")
    expect(dialog.get_by_text("1 would change; 1 would not")).to_be_visible()
    field(dialog, "New value").fill("5 MiB")
    field(dialog, "Reason").fill("INC-5")
    button(dialog, "Check").click()
    expect(row(page, "Results", "several-3")).to_contain_text("3 MiB/s → 5 MiB/s × 1.67")
    button(dialog, "Apply").click()
    expect(dialog).to_have_count(0)
    expect(row(page, "Quotas", "several-3")).to_contain_text("5 MiB/s")
    users = [f"several-{number}" for number in (1, 2, 3)]
    assert [values_of(site, user)["producer_byte_rate"] // MIB for user in users] == [5, 2, 5]
    toast(page, "Changed 2 entities.")
    button(page, "Undo").click()
    toast(page, "the values from before are back")
    assert [values_of(site, user)["producer_byte_rate"] // MIB for user in users] == [1, 2, 3]


def test_a_heading_sorts_all_rows_by_their_values(visitors: Visitors, site: RunningService):
    sizes = {"a": 10, "b": 9, "c": 100}
    for name, size in sizes.items():
        set_quota(site, {"user": f"sorted-{name}"}, producer_byte_rate=size * MIB)
    set_quota(site, {"user": "sorted-d"}, request_percentage=1)
    page = visitors.visit("/ui/quotas?search=sorted-")
    rows = page.get_by_role("table", name="Quotas", exact=True).locator("tbody > tr")
    expect(rows).to_have_count(4)
    heading = page.get_by_role("columnheader", name=re.compile("Produce rate"))
    for order, names in (("ascending", "bacd"), ("descending", "cabd")):
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", order)
        expect(rows).to_contain_text([f"sorted-{name}" for name in names])
    rows.first.get_by_text("100 MiB/s").click()
    expect(page.get_by_role("heading", name="user sorted-c")).to_be_visible()


def test_five_hundred_users_of_a_spreadsheet_are_pasted_checked_and_applied(
    visitors: Visitors, site: RunningService
):
    rows = [f"sheet-{number}\t{number + 1} MiB\t80%" for number in range(USERS)]
    heading = "user\tproducer_byte_rate\trequest_percentage"
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill("\n".join([heading, *rows, "broken\t4MX\t80%"]))
    button(page, "Plan").click()
    expect(page.get_by_role("alert")).to_contain_text(f"Line {USERS + 2}: {{user=broken}}")
    expect(page.locator(".numbers .bad")).to_have_text(str(USERS + 2))
    field(page, "Document").fill("\n".join([heading, *rows]))
    button(page, "Plan").click()
    expect(page.get_by_role("heading", name="500 changes")).to_be_visible()
    expect(page.get_by_text("1,000 set.")).to_be_visible()
    button(page, "Apply").click()
    toast(page, "Changed 500 entities.")
    found = site.api("bob").get("/quotas", params={"filter": "user^=sheet-", "page_size": 1})
    assert found.json()["total"] == USERS
    assert values_of(site, "sheet-499") == {
        "producer_byte_rate": 500 * MIB,
        "request_percentage": 80,
    }
    page.goto(f"{site.url}/ui/audit?entity=user%5E%3Dsheet-")
    button(page, "500 entities").click()
    expect(row(page, "Entities", "sheet-499")).to_contain_text("500 MiB/s")


def test_who_owns_a_value_and_that_it_was_changed_since_stands_beside_it(
    visitors: Visitors, site: RunningService
):
    body = {"document": "user,producer_byte_rate\nowned,2MiB\n", "format": "csv"}
    plan = site.api().post("/quotas/plans", json={**body, "owner": "team-a"}).json()
    applied = site.api().post(f"/quotas/plans/{plan['plan_id']}/apply", json={})
    applied.raise_for_status()
    set_quota(site, {"user": "owned"}, producer_byte_rate=3 * MIB)
    page = visitors.visit("/ui/quotas?search=owned")
    expect(row(page, "Quotas", "owned")).to_contain_text("team-a")
    page.get_by_role("link", name="owned", exact=True).click()
    held = row(page, "Values", "producer_byte_rate")
    expect(held).to_contain_text("team-a")
    page.get_by_role("link", name="Plan", exact=True).click()
    field(page, "Document").fill(body["document"])
    field(page, "Owner").fill("team-b")
    button(page, "Plan").click()
    change = row(page, "Changes", "owned")
    expect(change).to_contain_text("was changed outside since team-a applied 2 MiB/s")
    expect(change).to_contain_text("Conflict: team-a owns producer_byte_rate.")
    expect(button(page, "Apply")).to_be_disabled()
    field(page, "Take over what others own (recorded)").check()
    button(page, "Apply").click()
    toast(page, "Changed user owned.")
    assert values_of(site, "owned") == {"producer_byte_rate": 2 * MIB}


def test_an_auditor_sees_what_was_changed_outside_since(
    visitors: Visitors, site: RunningService, broker: LocalKafka
):
    set_quota(site, {"user": "outside"}, producer_byte_rate=2 * MIB, request_percentage=30)
    page = visitors.visit(link({"user": "outside"}), "root")
    expect(row(page, "History", "User:alice")).to_be_visible()
    expect(page.get_by_text("changed outside")).to_have_count(0)
    with RawQuotas(broker.bootstrap_servers) as raw:
        raw.store({"user": "outside"}, {"producer_byte_rate": 3.0 * MIB})
    page.reload()
    changed = row(page, "Values", "producer_byte_rate")
    expect(changed).to_contain_text("3 MiB/s")
    expect(changed).to_contain_text("changed outside")
    expect(page.get_by_text("changed outside")).to_have_count(1)


def test_a_key_that_is_not_set_says_what_it_inherits(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "heir"}, producer_byte_rate=6 * MIB)
    set_quota(site, {"user": "heir", "client-id": "etl"}, request_percentage=40)
    entity: dict[str, str | None] = {"user": "heir", "client-id": "etl"}
    page = visitors.visit(link(entity))
    expect(row(page, "Values", "producer_byte_rate")).to_contain_text("inherits 6 MiB/s from")
    button(page, "Edit").click()
    rate = field(page, "producer_byte_rate")
    expect(rate).to_have_attribute("placeholder", "inherits 6 MiB/s from user heir")
    page.goto(f"{site.url}/ui/new")
    field(page, "User").fill("heir")
    expect(page.get_by_text("user heir already has quotas.")).to_be_visible()


def test_what_is_lowered_to_next_to_nothing_has_to_be_meant(
    visitors: Visitors, site: RunningService
):
    set_quota(site, {"user": "drastic"}, producer_byte_rate=8 * MIB)
    page = visitors.visit(link({"user": "drastic"}, "edit"))
    field(page, "producer_byte_rate").fill("1")
    sentence = "producer_byte_rate is lowered from 8 MiB/s to 1 B/s, ÷ 8,388,608."
    expect(page.get_by_text(sentence)).to_be_visible()
    expect(button(page, "Apply")).to_be_disabled()
    field(page, "That is meant").check()
    button(page, "Apply").click()
    expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
    assert values_of(site, "drastic") == {"producer_byte_rate": 1}


def test_on_a_phone_the_screens_are_behind_a_menu(visitors: Visitors):
    page = visitors.visit("/ui/quotas")
    page.set_viewport_size({"width": 390, "height": 844})
    bar = page.get_by_role("banner")
    height = bar.evaluate("header => header.getBoundingClientRect().height")
    assert height <= 60
    audit = page.get_by_role("link", name="Audit", exact=True)
    expect(audit).to_be_hidden()
    button(page, "Menu").click()
    audit.click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    expect(audit).to_be_hidden()


def test_an_empty_screen_says_where_to_begin(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "first", "client-id": "one"}, producer_byte_rate=1 * MIB)
    page = visitors.visit("/ui/resolve")
    page.get_by_role("link", name=re.compile("client-id")).first.click()
    winner = page.locator("tr[aria-current=true]").first
    expect(winner).to_be_visible()
    ladder = page.get_by_role("table", name="controller_mutation_rate", exact=True)
    expect(ladder.get_by_role("row")).to_have_count(2)
    section = page.locator("section").filter(has=ladder)
    button(section, "8 levels are not set").click()
    expect(ladder.get_by_role("row")).to_have_count(9)
