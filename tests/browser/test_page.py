"""What people do on the page, in a real browser: by its accessible names alone.

At the end what else only a browser shows: the recipes of docs/portals.md, and /docs tried out.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from app.domain.entities import ClientQuotaEntity
from scripts.npm_packages import axe
from tests.browser.conftest import MIB, EmptyPage, Visitors
from tests.browser.page_calls import button, field, link, row, set_quota, values_of
from tests.integration.http.service_calls import C, P, change
from tests.testkit.event_loops import served
from tests.testkit.fake_kafka.server import ALTER
from tests.testkit.proxy import TO_CLIENT, KafkaProxy
from tests.testkit.service import RunningService

SCREENS = {
    "Quotas": "/ui/quotas",
    "Why this limit?": "/ui/resolve?user=seen&client-id=etl",
    "Plan": "/ui/plan",
    "Audit": "/ui/audit",
    "Near a limit": "/ui/usage",
    "Advice": "/ui/advice",
    "Health": "/ui/health",
    "New quota": "/ui/new",
    "user seen": f"/ui/entity/{ClientQuotaEntity.of({'user': 'seen'}).key}",
    "Edit user seen": f"/ui/edit/{ClientQuotaEntity.of({'user': 'seen'}).key}",
}
"""By the heading that each has."""


@pytest.fixture(scope="module", autouse=True)
def seen(site: RunningService) -> None:
    """A user with quotas at two levels, below rules of the default user."""
    set_quota(site, {"user": "seen"}, producer_byte_rate=8 * MIB, request_percentage=150)
    set_quota(site, {"user": "seen", "client-id": "etl"}, producer_byte_rate=4 * MIB)


def test_signing_in_takes_a_valid_token_and_signing_out_forgets_it(visitors: Visitors):
    page = visitors.visit("/", who=None)
    field(page, "Token").fill("wrong")
    button(page, "Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    field(page, "Token").fill("alice")
    button(page, "Sign in").click()
    expect(page.get_by_text("User:alice")).to_be_visible()
    expect(page.get_by_role("table", name="Quotas", exact=True)).to_be_visible()
    assert "alice" not in page.url
    assert page.evaluate("[sessionStorage.token, localStorage.length]") == ["alice", 0]
    button(page, "Sign out").click()
    expect(button(page, "Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_search_is_a_deep_link_and_finds_text_inside_any_name(visitors: Visitors):
    page = visitors.visit("/ui/quotas")
    field(page, "Search").fill("SEE")
    table = page.get_by_role("table", name="Quotas", exact=True)
    expect(table.get_by_role("row")).to_have_count(3)
    expect(row(page, "Quotas", "150 %")).to_contain_text("8 MiB/s")
    page.wait_for_url("**/ui/quotas?search=SEE")
    table.get_by_role("link", name="seen").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.go_back()
    expect(field(page, "Search")).to_have_value("SEE")
    page.go_forward()
    expect(page.get_by_role("heading", name="user seen")).to_be_visible()


def test_a_new_quota_is_checked_and_then_applied_with_its_reason(
    visitors: Visitors, site: RunningService
):
    page = visitors.visit("/ui/quotas")
    button(page, "New quota").click()
    field(page, "User").fill("made")
    field(page, "default client ID").check()
    field(page, "producer_byte_rate").fill("1.5 MiB/s")
    field(page, "Reason").fill("INC-1")
    button(page, "Check").click()
    expect(row(page, "After", "producer_byte_rate")).to_contain_text("1.5 MiB/s")
    assert site.api("bob").get("/quotas", params={"filter": "user=made"}).json()["quotas"] == []
    button(page, "Apply").click()
    expect(page.get_by_role("status").filter(has_text="applied")).to_be_visible()
    entity = {"user": "made", "client-id": None}
    rows = site.api("alice").get("/audit", params={"entity": "user=made"}).json()["rows"]
    assert [(each["action"], each["entity"], each["reason"]) for each in rows] == [
        ("alter", entity, "INC-1"),
        ("validate", entity, "INC-1"),
    ]


def test_each_violation_stands_beside_its_field(visitors: Visitors):
    page = visitors.visit("/ui/new")
    field(page, "IP address").fill("no address")
    field(page, "connection_creation_rate").fill("0.5")
    button(page, "Check").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was sent")
    rate = field(page, "connection_creation_rate")
    expect(rate).to_have_attribute("aria-invalid", "true")
    expect(rate).to_have_accessible_description(re.compile("at least 1"))
    expect(field(page, "IP address")).to_have_attribute("aria-invalid", "true")


def test_a_conflict_shows_the_present_values_and_what_was_typed_stays(
    visitors: Visitors, site: RunningService
):
    set_quota(site, {"user": "raced"}, producer_byte_rate=1 * MIB)
    page = visitors.visit(link({"user": "raced"}, "edit"))
    field(page, "producer_byte_rate").fill("2 MiB")
    set_quota(site, {"user": "raced"}, producer_byte_rate=5 * MIB)
    button(page, "Apply").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("nothing was applied")
    expect(row(page, "Present values", "producer_byte_rate")).to_contain_text("5 MiB/s")
    assert values_of(site, "raced") == {"producer_byte_rate": 5 * MIB}
    button(page, "Load again").click()
    expect(field(page, "producer_byte_rate")).to_have_value("2 MiB")
    button(page, "Apply").click()
    expect(row(page, "Before", "producer_byte_rate")).to_contain_text("5 MiB/s")
    assert values_of(site, "raced") == {"producer_byte_rate": 2 * MIB}


def test_a_lost_answer_is_followed_until_its_outcome_is_found(
    visitors: Visitors, site: RunningService, proxy: KafkaProxy
):
    page = visitors.visit(link({"user": "lost"}, "edit"))
    field(page, "consumer_byte_rate").fill("3 MiB")
    proxy.hold(TO_CLIENT, ALTER)
    try:
        button(page, "Apply").click()
        expect(page.get_by_role("alert")).to_contain_text("Asking the service what became of it")
    finally:
        proxy.pass_all()
    expect(page.get_by_text("the outcome was found out afterwards")).to_be_visible()
    expect(row(page, "After", "consumer_byte_rate")).to_contain_text("3 MiB/s")
    assert values_of(site, "lost") == {"consumer_byte_rate": 3 * MIB}


def test_deleting_an_entity_removes_all_of_its_values(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "gone"}, producer_byte_rate=1 * MIB, request_percentage=20)
    page = visitors.visit(link({"user": "gone"}))
    expect(row(page, "Values", "request_percentage")).to_contain_text("20 %")
    button(page, "Delete").click()
    dialog = page.get_by_role("dialog")
    field(dialog, "Reason").fill("left the company")
    button(dialog, "Delete").click()
    expect(page.get_by_text("This entity has no values")).to_be_visible()
    assert values_of(site, "gone") == {}


def test_who_gets_what_marks_the_rule_that_wins_and_tries_another(visitors: Visitors):
    page = visitors.visit("/ui/resolve")
    field(page, "User").fill("seen")
    field(page, "Client ID").fill("etl")
    button(page, "Resolve").click()
    ladder = page.get_by_role("table", name="producer_byte_rate", exact=True)
    winner = ladder.locator("tr[aria-current=true]")
    expect(winner).to_have_count(1)
    expect(winner).to_contain_text("4 MiB/s")
    page.wait_for_url("**/ui/resolve?user=seen&client-id=etl")
    page.get_by_text("What if?").click()
    field(page, "New value").fill("")
    button(page, "Try").click()
    expect(ladder).to_contain_text("then 8 MiB/s")


def test_a_document_is_planned_and_then_applied(visitors: Visitors, site: RunningService):
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill(
        "apiVersion: quotas/v1\n"
        "quotas:\n"
        "  - entity: {user: planned}\n"
        "    values: {producer_byte_rate: 1048576}\n"
    )
    field(page, "Owner").fill("team-page")
    button(page, "Plan").click()
    expect(row(page, "Changes", "planned")).to_contain_text("1 MiB/s")
    page.wait_for_url("**/ui/plan?id=*")
    button(page, "Apply").click()
    expect(page.get_by_role("status").filter(has_text="applied")).to_be_visible()
    assert values_of(site, "planned") == {"producer_byte_rate": MIB}
    button(page, "Plan").click()
    expect(page.get_by_role("heading", name="No changes")).to_be_visible()


def test_a_document_that_cannot_be_read_says_where(visitors: Visitors):
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill("quotas: [\n")
    button(page, "Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 2: this is not YAML or JSON")
    field(page, "Document").fill("user,producer_byte_rate\nalice,4MiB\nbob,4MX\n")
    button(page, "Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 3: {user=bob} producer_byte_rate=4MX")


def test_rows_of_a_spreadsheet_are_a_document(visitors: Visitors):
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill("user;client-id;producer_byte_rate\nsheet;;4MiB\n")
    button(page, "Plan").click()
    expect(row(page, "Changes", "sheet")).to_contain_text("4 MiB/s")
    field(page, "Document").fill("sep=;\nuser;producer_byte_rate\nexcel;8MiB\n")
    button(page, "Plan").click()
    expect(row(page, "Changes", "excel")).to_contain_text("8 MiB/s")


def test_json_with_commas_in_a_name_is_no_spreadsheet(visitors: Visitors):
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill(
        '{"quotas": [{"entity": {"user": "odd,user,b"}, "values": {"producer_byte_rate": 1024}}]}'
    )
    button(page, "Plan").click()
    expect(row(page, "Changes", "odd,user,b")).to_contain_text("1 KiB/s")


def test_a_plan_warns_of_a_name_that_is_no_pattern(visitors: Visitors):
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill("user,producer_byte_rate\ntenant-*,4MiB\n")
    button(page, "Plan").click()
    expect(row(page, "Changes", "tenant-*")).to_be_visible()
    expect(page.get_by_text("Kafka matches names literally")).to_be_visible()


def test_what_lowers_a_limit_to_next_to_nothing_is_red(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "lowered"}, producer_byte_rate=8 * MIB)
    page = visitors.visit("/ui/plan")
    field(page, "Document").fill("user,producer_byte_rate\nlowered,1\n")
    button(page, "Plan").click()
    sentence = "producer_byte_rate is lowered from 8 MiB/s to 1 B/s, ÷ 8,388,608."
    expect(page.get_by_text(sentence)).to_have_class(re.compile("danger"))


def test_a_change_is_reverted_after_a_reason(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "back"}, producer_byte_rate=1 * MIB)
    set_quota(site, {"user": "back"}, producer_byte_rate=9 * MIB)
    page = visitors.visit("/ui/audit")
    button(row(page, "Audit", "back"), "Revert").click()
    dialog = page.get_by_role("dialog")
    field(dialog, "Reason").fill("too much")
    button(dialog, "Revert").click()
    expect(row(page, "Audit", "too much")).to_contain_text("revert")
    assert values_of(site, "back") == {"producer_byte_rate": MIB}


def test_the_longest_changes_hide_no_button(visitors: Visitors, site: RunningService):
    ops = [{"key": "connection_creation_rate", "value": 100_000}]
    for _ in range(2):
        long = {"entity": {"ip": "2001:db8:1234:5678:9abc:def0:1234:5678"}, "ops": ops}
        site.alter(long, reason="examples of the first start").raise_for_status()
    page = visitors.visit("/ui/audit")
    expect(row(page, "Audit", "100,000 connections/s → 100,000")).to_be_visible()
    hidden = "table => table.scrollWidth - table.clientWidth"
    assert page.locator(".table").evaluate(hidden) == 0


def test_near_a_limit_shows_buckets_and_use_by_hour_and_leads_to_raising(visitors: Visitors):
    page = visitors.visit("/ui/usage")
    first = row(page, "Near a limit", "alice")
    expect(first).to_contain_text("94 %")
    expect(first).to_contain_text("8 MiB/s")
    chart = page.get_by_role("img", name="Use by hour", exact=True)
    expect(chart.locator("rect.bad").first).to_be_attached()
    hours = page.get_by_role("img", name="Use by day and hour").locator("rect")
    expect(hours).to_have_count(14 * 24)
    expect(hours.and_(page.locator(".bad")).first).to_be_attached()
    expect(row(page, "Incidents", "alice")).to_contain_text("90 MiB")
    first.get_by_role("link", name="Raise").click()
    expect(page.get_by_role("heading", name="Edit user alice")).to_be_visible()


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [("16 MiB", "over in 0 % of minutes; peak 8.5 MiB/s"), ("8000 KiB", "over in 25 % of minutes")],
)
def test_a_check_compares_the_new_limit_with_the_use_that_was_seen(
    visitors: Visitors, limit: str, sentence: str
):
    page = visitors.visit("/ui/usage")
    row(page, "Near a limit", "alice").get_by_role("link", name="Raise").click()
    page.get_by_label("producer_byte_rate", exact=True).fill(limit)
    button(page, "Check").click()
    expect(page.get_by_text(f"last day: would have been {sentence}")).to_be_visible()


def test_who_has_no_rights_reads_why(visitors: Visitors):
    page = visitors.visit("/ui/quotas", "mallory")
    expect(page.get_by_role("alert")).to_contain_text("User:mallory")
    expect(page.get_by_role("alert")).to_contain_text("DESCRIBE_CONFIGS")
    expect(button(page, "New quota")).to_have_count(0)
    reader = visitors.visit("/ui/quotas", "bob")
    expect(row(reader, "Quotas", "seen")).to_be_visible()
    expect(button(reader, "New quota")).to_have_count(0)


def test_everything_can_be_done_with_the_keyboard_alone(visitors: Visitors):
    page = visitors.visit("/", who=None)
    expect(field(page, "Token")).to_be_focused()
    page.keyboard.type("alice")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Quotas", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    expect(button(page, "New quota")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="New quota")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("typed")
    for _ in range(6):
        page.keyboard.press("Tab")
    expect(field(page, "producer_byte_rate")).to_be_focused()
    page.keyboard.type("1 MiB")
    page.keyboard.press("Enter")
    expect(row(page, "After", "producer_byte_rate")).to_contain_text("1 MiB/s")


def test_a_refused_token_leads_back_to_signing_in(visitors: Visitors):
    page = visitors.visit("/ui/quotas")
    expect(row(page, "Quotas", "seen")).to_be_visible()
    page.evaluate("sessionStorage.setItem('token', 'expired')")
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("sign in again")
    expect(button(page, "Sign in")).to_be_visible()


def faults(page: Page, rules: list[str] | None = None) -> list[tuple[object, ...]]:
    """Return what keeps somebody out of what the page shows now, or is wider than it.

    Args:
        page: Where to look.
        rules: Those of axe that count; default: all.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    run = "(only) => axe.run({ resultTypes: ['violations'], ...(only && { runOnly: only }) })"
    report = page.evaluate(run, rules)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [
        *(
            (each["id"], node["target"], node["failureSummary"])
            for each in report["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ),
        *([("too wide", wide)] if wide > 0 else []),
    ]


AXE = axe()
COLOURS = ["color-contrast"]
"""What a scheme changes."""

LOOKS = (
    (1280, "light", None),
    (1280, "dark", COLOURS),
    (390, "dark", None),
    (390, "light", COLOURS),
)


def looked_at(page: Page, name: str) -> dict[tuple[str, str], list[tuple[object, ...]]]:
    """Look at the page in each width and scheme."""
    found = {}
    for width, scheme, rules in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(18, 21, 23)") == (scheme == "dark")
        found[name, f"{scheme}, {width}"] = faults(page, rules)
    return {look: each for look, each in found.items() if each}


def test_every_screen_fits_its_width_and_keeps_nobody_out(visitors: Visitors):
    page, found = visitors.visit("/ui/quotas"), {}
    for heading, path in SCREENS.items():
        page.goto(visitors.site.url + path)
        expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        found |= looked_at(page, heading)
    assert found == {}


def test_what_opens_over_a_screen_keeps_nobody_out_either(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "opened"}, producer_byte_rate=8 * MIB)
    page = visitors.visit("/ui/quotas?search=opened")
    expect(row(page, "Quotas", "opened")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("opened")
    expect(page.get_by_role("option", name="user opened quota")).to_be_visible()
    found = looked_at(page, "palette")
    page.keyboard.press("Escape")
    page.get_by_label("Select user opened", exact=True).check()
    button(page, "Change …").click()
    dialog = page.get_by_role("dialog")
    field(dialog, "New value").fill("1")
    button(dialog, "Check").click()
    expect(row(page, "After", "producer_byte_rate")).to_be_visible()
    found |= looked_at(page, "dialog")
    field(dialog, "That is meant").check()
    button(dialog, "Apply").click()
    expect(page.get_by_role("log", name="Messages")).to_contain_text("Changed user opened.")
    found |= looked_at(page, "message")
    button(page, "Menu").click()
    found |= looked_at(page, "menu")
    signed_out = visitors.visit("/", who=None)
    expect(field(signed_out, "Token")).to_be_visible()
    found |= looked_at(signed_out, "signing in")
    assert found == {}


ROOT = Path(__file__).resolve().parents[2]
RECIPES = (ROOT / "docs" / "portals.md").read_text(encoding="utf-8")


def recipe(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL)
    return str(block)


@pytest.fixture
def _carol(site: RunningService) -> None:
    answer = site.alter(change({"user": "team-carol"}, {P: 1048576, C: 9223372036854775807}))
    assert answer.status_code == 200, answer.text


def run_recipe(page: Page, site: RunningService) -> dict[str, object]:
    code = recipe("js").replace("http://localhost:8080", site.url)
    page.evaluate("sessionStorage.setItem('token', 'alice')")
    script = f"async () => {{ {code}\nreturn changed.document; }}"
    return dict(page.evaluate(script))


@pytest.mark.usefixtures("_carol")
def test_a_page_of_the_portal_changes_a_quota(chrome: Browser, site: RunningService, portal: str):
    page = chrome.new_page()
    page.goto(portal)
    changed = run_recipe(page, site)
    page.close()
    assert changed["outcome"] == "applied"
    (quota,) = site.api().get("/quotas", params={"filter": "user=team-carol"}).json()["quotas"]
    assert quota["values"] == {P: 2097152, C: 9223372036854775807}


@pytest.mark.usefixtures("_carol")
def test_a_page_of_another_origin_cannot_even_ask(chrome: Browser, site: RunningService):
    with served(EmptyPage) as other:
        page = chrome.new_page()
        page.goto(other)
        with pytest.raises(Error, match="Failed to fetch"):
            run_recipe(page, site)
        page.close()


def test_the_documentation_alters_with_its_first_example_and_stores_no_token(
    chrome: Browser, site: RunningService
):
    page = chrome.new_page()
    page.goto(f"{site.url}/docs")
    page.evaluate("localStorage.setItem('authorized', 'of an earlier version')")
    page.reload()
    page.locator("button.authorize").first.click()
    page.get_by_label("auth-bearer-value").fill("alice")
    page.get_by_label("Apply credentials").first.click()
    page.get_by_role("button", name="Close").first.click()
    page.locator("#operations-alterations-alterQuotas .opblock-summary-control").click()
    operation = page.locator("#operations-alterations-alterQuotas")
    with page.expect_response("**/quotas/alterations") as answered:
        operation.locator("button.execute").click()
    answer = answered.value
    assert (answer.status, answer.json()["outcome"]) == (200, "applied"), answer.text()
    stored = page.evaluate("[localStorage, sessionStorage].map((each) => JSON.stringify(each))")
    assert "authorized" not in stored[0]
    assert "alice" not in str(stored)
    page.close()


@pytest.mark.usefixtures("_carol")
def test_a_backend_changes_a_quota(site: RunningService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORTAL_TOKEN", "alice")
    names: dict[str, object] = {}
    code = recipe("python").replace("http://localhost:8080", site.url)
    exec(f"{code}\nquotas.close()", names)  # noqa: S102 - it is ours
    assert names["after"] == {P: 1048576, C: 4194304}
