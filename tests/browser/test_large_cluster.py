"""30,000 entities on the page: what is sorted is all of them, whatever fits one answer."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.browser.conftest import visitors_of
from tests.browser.page_calls import button, field
from tests.testkit.accounts import allow
from tests.testkit.class_archive import shared_classes
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, acl, running_service

pytestmark = pytest.mark.long  # it needs a broker of its own

PORTION, PORTIONS = 10_000, 3


@pytest.fixture(scope="module")
def large(
    postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """Users with a request time from 1 % on, each a step more than the one before."""
    folder = tmp_path_factory.mktemp("large")
    _, url = migrated_database(postgres, "large-page")
    with LocalKafka(folder / "kafka", java_options=shared_classes()) as broker:
        allow(broker, acl("alice", "ALTER_CONFIGS"))
        with running_service(folder, broker.bootstrap_servers, url) as service:
            for portion in range(PORTIONS):
                numbers = range(portion * PORTION, (portion + 1) * PORTION)
                service.alter(*map(of_user, numbers)).raise_for_status()
            yield service


def of_user(number: int) -> dict[str, object]:
    op = {"key": "request_percentage", "value": number + 1}
    return {"entity": {"user": f"user-{number:05}"}, "ops": [op]}


def first_row(page: Page, text: str) -> None:
    rows = page.get_by_role("table", name="Quotas", exact=True).get_by_role("row")
    expect(rows.nth(1)).to_contain_text(text)


def test_the_largest_of_all_is_first(chrome: Browser, large: RunningService):
    with visitors_of(chrome, large) as visitors:
        page = visitors.visit("/ui/quotas")
        expect(page.get_by_text("200 of 30,000 entities")).to_be_visible()
        heading = button(page, "Request time request_percentage")
        heading.click()
        first_row(page, "user-00000")
        heading.click()
        first_row(page, "user-29999")
        expect(page.get_by_text("200 of 30,000 entities")).to_be_visible()
        button(page, "Show more").click()
        expect(page.get_by_text("400 of 30,000 entities")).to_be_visible()
        field(page, "Search").fill("user-1")
        expect(page.get_by_text("200 of 10,000 entities")).to_be_visible()
        first_row(page, "user-19999")
        expect(button(page, "Export 10,000 as YAML")).to_be_enabled()
