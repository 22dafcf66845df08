"""Names as long and as strange as they may be: on no screen do they push anything away."""

from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HOSTILE, Visitors
from tests.browser.page_calls import link, row
from tests.testkit.service import RunningService

LONG = HOSTILE["long"]
ENTITIES = [
    *({"user": name, "client-id": LONG} for name in HOSTILE.values()),
    *({"client-id": name} for name in HOSTILE.values()),
]
REASON = "W" * 1_000
SIZES = ({"width": 1280, "height": 900}, {"width": 390, "height": 900})

TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('.table')]
    .filter((it) => it.scrollWidth > it.clientWidth)
    .map((it) => `${it.tagName} ${it.querySelector('table')?.ariaLabel} ${it.scrollWidth}`)"""


@pytest.fixture(scope="module", autouse=True)
def alteration(site: RunningService) -> str:
    """Change each twice, and return the id of the last alteration."""
    answer = None
    for value in (2**52 + 1, 2**52 + 3):
        ops = [{"key": "producer_byte_rate", "value": value}]
        changes = [{"entity": entity, "ops": ops} for entity in ENTITIES]
        answer = site.alter(*changes, reason=REASON).raise_for_status()
    assert answer is not None
    return str(answer.json()["alteration_id"])


def screens(alteration: str) -> dict[str, str]:
    pair = quote(LONG)
    return {
        "quotas": "/ui/quotas",
        "audit": "/ui/audit",
        "an alteration": f"/ui/alteration/{alteration}",
        "near a limit": "/ui/usage",
        "health": "/ui/health",
        "new": f"/ui/new?user={pair}",
        **{
            f"who gets what, {each}": f"/ui/resolve?user={quote(name)}&client-id={pair}"
            for each, name in HOSTILE.items()
        },
        **{
            f"entity, {each}": link({"user": name, "client-id": LONG})
            for each, name in HOSTILE.items()
        },
        **{f"edit, {each}": link({"client-id": name}, "edit") for each, name in HOSTILE.items()},
    }


def test_no_name_makes_a_screen_or_a_table_wider_than_its_window(
    visitors: Visitors, alteration: str
):
    page, found = visitors.visit("/ui/quotas"), {}
    for name, path in screens(alteration).items():
        page.goto(visitors.site.url + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        for size in SIZES:
            page.set_viewport_size(size)
            found[name, size["width"]] = page.evaluate(TOO_WIDE)
    assert {each: wide for each, wide in found.items() if wide} == {}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size["width"])
def test_every_column_beside_the_longest_name_stays_in_view(
    visitors: Visitors, size: dict[str, int]
):
    page = visitors.visit("/ui/quotas?search=WWW")
    page.set_viewport_size(size)
    cells = row(page, "Quotas", LONG).get_by_role("cell").filter(has_text="4 PiB/s")
    box = cells.first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= size["width"]


def test_a_name_that_is_cut_has_the_whole_of_it_as_its_title(visitors: Visitors):
    page = visitors.visit("/ui/quotas?search=WWW")
    assert page.get_by_text(LONG, exact=True).first.get_attribute("title") == LONG
    page.goto(visitors.site.url + link({"client-id": LONG}))
    assert LONG in page.get_by_role("heading", level=1).inner_text()


def test_what_cannot_be_seen_in_a_name_is_an_escape_in_its_table(visitors: Visitors):
    page = visitors.visit("/ui/quotas?search=%1b")
    expect(page.get_by_text(r"\x01\x1b[31m").first).to_be_visible()


def test_a_name_from_right_to_left_turns_nothing_around_it(visitors: Visitors):
    name = HOSTILE["right to left"]
    page = visitors.visit(link({"user": name, "client-id": LONG}))
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text(f"user \u2068{name}\u2069, client-id {LONG}")


def test_a_plan_of_the_longest_names_fits_too(visitors: Visitors):
    page = visitors.visit("/ui/plan")
    planned(page)
    for size in SIZES:
        page.set_viewport_size(size)
        assert page.evaluate(TOO_WIDE) == []


def planned(page: Page) -> None:
    document = (
        "apiVersion: quotas/v1\nquotas:\n"
        f"  - entity: {{user: {LONG}, client-id: {LONG}}}\n    values: {{consumer_byte_rate: 1}}\n"
        f"  - entity: {{client-id: {LONG}}}\n    values: {{producer_byte_rate: 1}}\n"
    )
    page.get_by_label("Document", exact=True).fill(document)
    page.get_by_label("Owner", exact=True).fill("W" * 128)
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("table", name="Changes", exact=True)).to_be_visible()
