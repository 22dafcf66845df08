"""More than a page of everything that the pipeline publishes, and figures that nobody knows."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.pipeline.tables import DIM_BUCKET, THROTTLE_INCIDENT, UTILIZATION_DAILY
from tests.browser.conftest import LIMITED, Visitors, visitors_of
from tests.browser.page_calls import button, row
from tests.pipeline.publish.results import Rows, bucket, day, incident, job_of, publish_rows
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

BUCKETS, INCIDENTS, RUNS = 501, 51, 11
UNKNOWN = dict.fromkeys(("p99", "peak", "throttled_minutes", "util_p99", "limit"))


def world(cluster_id: str) -> Rows:
    """Return a page of each and one more; nothing is known of the last bucket but that it is."""
    numbers = range(1, BUCKETS + 1)
    days = [day(**LIMITED, bucket_id=number, util_p99=1 - number / 1000) for number in numbers]
    days[-1] |= UNKNOWN
    unknown = {"peak_ratio": None, "est_deferred_bytes": None, "status": None}
    rows: Rows = {
        DIM_BUCKET: [
            bucket(bucket_id=number, bucket_user=f"u{number}", quota_user=f"u{number}")
            for number in numbers
        ],
        UTILIZATION_DAILY: days,
        THROTTLE_INCIDENT: [
            incident(f"i-{number}", number, bucket_id=number, **unknown)
            for number in range(1, INCIDENTS + 1)
        ],
    }
    return {
        table: [{**each, "cluster_id": cluster_id} for each in found]
        for table, found in rows.items()
    }


@pytest.fixture(scope="module")
def busy(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service for which more was published than fits a page of any list."""
    folder = tmp_path_factory.mktemp("busy")
    _, url = migrated_database(postgres, folder.name)
    with running_service(folder, broker.bootstrap_servers, url) as service:
        rows = world(service.api("bob").get("/quotas").json()["cluster_id"])
        for number in range(RUNS):
            job = job_of("run")
            job.run_id = f"run-{number}"
            publish_rows(url, rows, job)
        yield service


@pytest.fixture
def operators(chrome: Browser, busy: RunningService) -> Iterator[Visitors]:
    """Tabs on that service."""
    with visitors_of(chrome, busy) as visitors:
        yield visitors


def count(page: Page, table: str, rows: int) -> None:
    """Expect so many rows below the heading, without those that are open under another."""
    body = page.get_by_role("table", name=table, exact=True).locator("tbody > tr:not(.below)")
    expect(body).to_have_count(rows)


def test_every_bucket_and_every_incident_can_be_listed(operators: Visitors):
    page = operators.visit("/ui/usage?all=1")
    count(page, "Near a limit", 500)
    count(page, "Incidents", 50)
    button(page, "Show more").last.click()
    count(page, "Incidents", INCIDENTS)
    button(page, "Show more").click()
    count(page, "Near a limit", BUCKETS)
    expect(button(page, "Show more")).to_have_count(0)


def test_every_run_can_be_listed(operators: Visitors):
    page = operators.visit("/ui/health")
    count(page, "Runs", 10)
    button(page, "Show more").click()
    count(page, "Runs", RUNS)
    expect(button(page, "Show more")).to_have_count(0)


def test_a_figure_that_nobody_reported_is_no_zero(operators: Visitors):
    page = operators.visit("/ui/usage?all=1")
    count(page, "Near a limit", 500)
    count(page, "Incidents", 50)
    expect(row(page, "Incidents", "u51").get_by_text("not known")).to_have_count(3)
    button(page, "Show more").first.click()
    last = row(page, "Near a limit", "u501")
    expect(last.get_by_text("not known")).to_have_count(3)
    expect(last.get_by_text("unlimited")).to_be_visible()


def test_incidents_are_one_step_from_the_top(operators: Visitors):
    page = operators.visit("/ui/usage?all=1")
    count(page, "Near a limit", 500)
    page.get_by_role("link", name="Incidents below", exact=True).click()
    expect(page.get_by_role("heading", name="Incidents", exact=True)).to_be_in_viewport()
