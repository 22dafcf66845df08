"""Who may not change anything is offered nothing in vain, and nothing that is typed is lost."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Dialog, Page, expect

from app.domain.entities import ClientQuotaEntity
from tests.browser.conftest import MIB, Visitors
from tests.browser.page_calls import button, field, link, row, set_quota, values_of
from tests.testkit.service import RunningService

ALTERING = ("New quota", "Edit", "Delete", "Check", "Apply", "Revert", "Raise", "Change …", "Keep")
DOCUMENT = "apiVersion: quotas/v1\nquotas:\n  - entity: {user: read}\n    values: {}\n"


@pytest.fixture(scope="module", autouse=True)
def stored(site: RunningService) -> str:
    """Change a user's quota, and return the id of the alteration."""
    set_quota(site, {"user": "read"}, producer_byte_rate=1 * MIB)
    answer = site.alter(
        {"entity": {"user": "read"}, "ops": [{"key": "request_percentage", "value": 10}]}
    )
    return str(answer.raise_for_status().json()["alteration_id"])


def read_only_screens() -> Iterator[tuple[str, str]]:
    for name in ("quotas", "resolve?user=read", "plan", "audit", "usage", "health", "temporary"):
        yield name, f"/ui/{name}"
    for name in ("entity", "edit"):
        yield name, link({"user": "read"}, name)
    yield "new", "/ui/new"


@pytest.mark.parametrize(("name", "path"), [*read_only_screens()])
def test_who_may_only_describe_sees_nothing_to_press_in_vain(
    visitors: Visitors, name: str, path: str
):
    page = visitors.visit(path, "bob")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Loading …")).to_have_count(0)
    for altering in ALTERING:
        expect(button(page, altering)).to_have_count(0)
        expect(page.get_by_role("link", name=altering)).to_have_count(0)
    expect(page.get_by_label("Select", exact=False)).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option", name="Health screen")).to_be_visible()
    expect(page.get_by_role("option", name="action")).to_have_count(0)
    page.keyboard.press("Escape")
    if name in ("entity", "edit", "new"):
        notice = page.get_by_text("Read only").locator("..").filter(has_text="User:bob")
        expect(notice).to_contain_text("ALTER_CONFIGS on the Cluster")


def test_who_may_only_describe_reads_the_values_in_fields_that_take_nothing(visitors: Visitors):
    page = visitors.visit(link({"user": "read"}, "edit"), "bob")
    expect(field(page, "producer_byte_rate")).to_have_value("1048576")
    for each in page.get_by_role("textbox").all():
        expect(each).not_to_be_editable()


def test_who_may_only_describe_plans_and_reads_who_may_apply(visitors: Visitors):
    page = visitors.visit("/ui/plan", "bob")
    field(page, "Document").fill(
        DOCUMENT.replace("{}", "{producer_byte_rate: 5}").replace("read", "planned-only")
    )
    button(page, "Plan").click()
    expect(row(page, "Changes", "planned-only")).to_be_visible()
    expect(page.get_by_text("Read only")).to_contain_text("ALTER_CONFIGS")
    expect(button(page, "Apply")).to_have_count(0)
    expect(page.get_by_text("curl, to apply")).to_have_count(0)


@pytest.mark.parametrize(
    "path", ["/ui/quotas", "/ui/resolve", "/ui/plan", "/ui/usage", "/ui/audit"]
)
def test_who_may_nothing_reads_which_right_is_missing(visitors: Visitors, path: str):
    page = visitors.visit(path, "mallory")
    expect(page.get_by_role("alert")).to_contain_text("User:mallory")
    expect(page.get_by_role("alert")).to_contain_text("DESCRIBE_CONFIGS")
    audit = page.get_by_role("alert").get_by_text("or the audit permission")
    expect(audit).to_have_count(1 if path == "/ui/audit" else 0)
    expect(page.get_by_role("main").get_by_role("button")).to_have_text(["Look again"])


def test_a_change_that_changed_nothing_offers_no_revert(visitors: Visitors, site: RunningService):
    op = {"key": "producer_byte_rate", "value": 7}
    made = [site.alter({"entity": {"user": "twice"}, "ops": [op]}).json() for _ in range(2)]
    page = visitors.visit("/ui/audit?entity=user%3Dtwice")
    rows = page.get_by_role("table", name="Audit", exact=True).get_by_role("row")
    expect(rows).to_have_count(3)
    expect(button(rows.nth(1), "Revert")).to_have_count(0)
    expect(button(rows.nth(2), "Revert")).to_have_count(1)
    for answer, count in zip(made, (1, 0), strict=True):
        page.goto(f"{site.url}/ui/alteration/{answer['alteration_id']}")
        expect(page.get_by_role("heading", name="History")).to_be_visible()
        expect(button(page, "Revert")).to_have_count(count)


def test_a_change_of_which_some_was_applied_can_be_reverted(
    visitors: Visitors, site: RunningService
):
    changes = [
        {"entity": {"ip": "no address"}, "ops": [{"key": "connection_creation_rate", "value": 5}]},
        {"entity": {"user": "some"}, "ops": [{"key": "producer_byte_rate", "value": 5}]},
    ]
    answer = site.alter(*changes, all_or_nothing=False)
    assert answer.status_code == 207
    page = visitors.visit(f"/ui/alteration/{answer.json()['alteration_id']}")
    button(page, "Revert").click()
    button(page.get_by_role("dialog"), "Revert").click()
    expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
    assert values_of(site, "some") == {}


def asked(page: Page, *, leave: bool) -> list[str]:
    """Answer every question of leaving; return what was asked, which grows."""
    questions: list[str] = []

    def answer(dialog: Dialog) -> None:
        questions.append(dialog.message or dialog.type)
        dialog.accept() if leave else dialog.dismiss()

    page.on("dialog", answer)
    return questions


def typed(visitors: Visitors, user: str = "read") -> Page:
    page = visitors.visit(f"/ui/quotas?search={user}")
    page.get_by_role("link", name=f"Edit user {user}", exact=True).click()
    field(page, "producer_byte_rate").fill("2 MiB")
    return page


def test_what_is_typed_stays_for_who_does_not_want_to_leave(visitors: Visitors):
    page = typed(visitors)
    questions = asked(page, leave=False)
    path = link({"user": "read"}, "edit")
    page.get_by_role("link", name="Audit", exact=True).click()
    button(page, "Back").click()
    button(page, "Sign out").click()
    with page.expect_event("dialog"):
        page.evaluate("history.back()")
    page.wait_for_url(f"**{path}")
    expect(field(page, "producer_byte_rate")).to_have_value("2 MiB")
    assert questions == ["What you typed is not applied. Leave without it?"] * 4
    with page.expect_event("dialog"):
        page.evaluate("setTimeout(() => location.assign('/docs'))")
    assert questions[4:] == ["beforeunload"]
    expect(field(page, "producer_byte_rate")).to_have_value("2 MiB")


def test_who_wants_to_leave_leaves(visitors: Visitors):
    page = typed(visitors)
    questions = asked(page, leave=True)
    page.go_back()
    expect(page.get_by_role("heading", name="Quotas", exact=True)).to_be_visible()
    expect(field(page, "Search")).to_have_value("read")
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    assert len(questions) == 1


def test_nobody_is_asked_where_nothing_would_be_lost(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "applied"}, producer_byte_rate=1 * MIB)
    page = typed(visitors, "applied")
    questions = asked(page, leave=False)
    button(page, "Apply").click()
    expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
    assert values_of(site, "applied") == {"producer_byte_rate": 2 * MIB}
    field(page, "producer_byte_rate").fill("3 MiB")
    field(page, "producer_byte_rate").fill("2097152")
    page.get_by_role("link", name="Plan", exact=True).click()
    expect(page.get_by_role("heading", name="Plan", exact=True)).to_be_visible()
    assert questions == []
    field(page, "Document").fill(DOCUMENT)
    page.get_by_role("link", name="Audit", exact=True).click()
    assert len(questions) == 1
    expect(field(page, "Document")).to_have_value(DOCUMENT)


def test_a_reason_stays_for_who_does_not_want_to_leave(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "reasons"}, producer_byte_rate=1 * MIB)
    page = visitors.visit("/ui/quotas?search=reasons")
    questions = asked(page, leave=False)
    page.get_by_role("link", name="reasons", exact=True).click()
    for opens in ("Delete", "Revert"):
        button(page, opens).click()
        dialog = page.get_by_role("dialog")
        field(dialog, "Reason").fill("INC-7")
        with page.expect_event("dialog"):
            page.evaluate("history.back()")
        page.wait_for_url(f"**{link({'user': 'reasons'})}")
        expect(field(dialog, "Reason")).to_have_value("INC-7")
        button(dialog, "Cancel").click()
    assert questions == ["What you typed is not applied. Leave without it?"] * 2
    page.evaluate("history.back()")
    expect(page.get_by_role("heading", name="Quotas", exact=True)).to_be_visible()
    assert len(questions) == 2


def test_the_reason_of_a_plan_that_was_opened_stays_too(visitors: Visitors, site: RunningService):
    document = DOCUMENT.replace("values: {}", "values: {request_percentage: 11%}")
    body = {"document": document, "format": "yaml"}
    plan = site.api().post("/quotas/plans", json=body).raise_for_status().json()
    page = visitors.visit(f"/ui/plan?id={plan['plan_id']}")
    questions = asked(page, leave=False)
    field(page, "Reason").fill("INC-8")
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(field(page, "Reason")).to_have_value("INC-8")
    assert len(questions) == 1
    button(page, "Apply").click()
    expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    assert len(questions) == 1


def test_a_token_that_ends_leaves_a_dialog_as_it_is(visitors: Visitors, site: RunningService):
    set_quota(site, {"user": "dialog"}, producer_byte_rate=1 * MIB)
    page = visitors.visit(link({"user": "dialog"}))
    button(page, "Delete").click()
    field(page.get_by_role("dialog"), "Reason").fill("INC-9")
    page.evaluate("sessionStorage.setItem('token', 'expired')")
    button(page.get_by_role("dialog"), "Delete").click()
    field(page, "Token").fill("alice")
    button(page, "Sign in").click()
    expect(field(page.get_by_role("dialog"), "Reason")).to_have_value("INC-9")
    button(page.get_by_role("dialog"), "Delete").click()
    expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
    assert values_of(site, "dialog") == {}


def test_a_token_that_ends_loses_nothing_that_was_typed(visitors: Visitors):
    page = typed(visitors)
    page.evaluate("sessionStorage.setItem('token', 'expired')")
    button(page, "Check").click()
    expect(page.get_by_role("alert")).to_contain_text("sign in again")
    field(page, "Token").fill("alice")
    button(page, "Sign in").click()
    expect(field(page, "producer_byte_rate")).to_have_value("2 MiB")
    assert ClientQuotaEntity.of({"user": "read"}).key in page.url
