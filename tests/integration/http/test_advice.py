"""What the pipeline advises, as it was published: rows, conditions, pages."""

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.pipeline.tables import (
    BROKER_COMMIT,
    DRIFT_FINDING,
    RECOMMENDATION,
    STALE_QUOTA,
    UNCOVERED_CLIENT,
    Table,
)
from tests.integration.http.service_calls import pages
from tests.pipeline.publish.results import (
    ADVICE,
    BUCKET,
    RUN,
    WHATIF,
    Rows,
    job_of,
    publish_rows,
    publish_whatif,
    recommendation,
)
from tests.testkit.http import problem_of
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

ROUTES = {
    "recommendations": RECOMMENDATION,
    "stale": STALE_QUOTA,
    "uncovered": UNCOVERED_CLIENT,
    "overcommit": BROKER_COMMIT,
    "drift": DRIFT_FINDING,
}
CLEAR = """
with a as (delete from recommendation), b as (delete from stale_quota),
  c as (delete from uncovered_client), d as (delete from broker_commit),
  e as (delete from drift_finding), f as (delete from whatif_run),
  g as (delete from whatif_entity), h as (delete from whatif_timeline)
delete from pipeline_run
"""
JOBS = {"recommendations": "rightsize", "uncovered": "stale"}


class Advised:
    """The service, and what publishes for it: bob may describe, mallory may not."""

    def __init__(self, service: RunningService, url: str) -> None:
        self.service = service
        self.bob = service.api("bob")
        self._url = url
        self._cluster_id = self.bob.get("/quotas").json()["cluster_id"]

    def publish(self, rows: Rows, cluster_id: str | None = None) -> None:
        """Publish rows of the service's cluster, or of another."""
        of = {"cluster_id": cluster_id or self._cluster_id}
        own = {table: [{**row, **of} for row in each] for table, each in rows.items()}
        publish_rows(self._url, own, job_of("rightsize"))

    def publish_whatif(self, run_id: str = RUN, cluster_id: str | None = None) -> None:
        """Publish what a run of what-if found."""
        of = {"cluster_id": cluster_id or self._cluster_id}
        own = {table: [{**row, **of} for row in each] for table, each in WHATIF.items()}
        publish_whatif(self._url, own, run_id)

    def clear(self) -> None:
        """Forget all of it."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(CLEAR)


@pytest.fixture(scope="module")
def running(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Advised]:
    folder = tmp_path_factory.mktemp("advice")
    _, url = migrated_database(postgres, folder.name)
    with running_service(folder, broker.bootstrap_servers, url) as service:
        yield Advised(service, url)


@pytest.fixture
def advised(running: Advised) -> Advised:
    """Nothing is published yet."""
    running.clear()
    return running


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


@pytest.mark.parametrize("route", ROUTES)
def test_before_the_first_run_there_is_no_advice(advised: Advised, route: str):
    problem = problem_of(advised.bob.get(f"/analytics/{route}"), 404)
    assert problem["code"] == "no-run"
    assert f"`quota-pipeline {JOBS.get(route, route)} --pg`" in problem["detail"]


@pytest.mark.parametrize("route", ROUTES)
def test_advice_needs_the_permission_to_describe(advised: Advised, route: str):
    advised.publish(ADVICE)
    answer = advised.service.api("mallory").get(f"/analytics/{route}")
    assert problem_of(answer, 403)["code"] == "cluster-authorization-failed"


@pytest.mark.parametrize(("route", "table"), ROUTES.items())
def test_a_row_has_the_columns_of_the_table(advised: Advised, route: str, table: Table):
    advised.publish(ADVICE)
    document = advised.bob.get(f"/analytics/{route}").json()
    assert (document["coverage"], document["next_page_token"]) == (0.75, None)
    assert set(document) == {"run_id", "data_through", "coverage", "rows", "next_page_token"}
    assert len(document["rows"]) == len(ADVICE[table])
    assert {frozenset(row) for row in document["rows"]} == {frozenset(table.columns)}


def test_a_body_is_what_the_service_takes(advised: Advised):
    advised.publish(ADVICE)
    first, *_ = rows(advised.bob.get("/analytics/recommendations?action=raise"))
    assert (first["bucket_id"], first["limit"]) == (str(BUCKET), 100)
    body = {**first["body"], "validate_only": True}
    answer = advised.service.api("alice").post("/quotas/alterations", json=body)
    assert problem_of(answer, 412)["code"] == "expectation-failed"
    for item in body["alterations"]:
        item["expected"] = dict.fromkeys(item["expected"])
    answer = advised.service.api("alice").post("/quotas/alterations", json=body)
    assert answer.json()["outcome"] == "validated"


@pytest.mark.parametrize(
    ("query", "column", "found"),
    [
        # The largest change first, then what is to be left alone.
        ("recommendations", "bucket_user", ["bob", "alice", "carl", ""]),
        ("recommendations?action=raise", "bucket_user", ["alice"]),
        ("recommendations?action=keep", "bucket_user", ["carl"]),
        ("recommendations?key=consumer_byte_rate", "action", ["insufficient"]),
        ("recommendations?entity=user:default", "bucket_user", ["carl"]),
        ("recommendations?entity=user=carl", "action", ["keep"]),
        ("recommendations?entity=user^=a", "action", ["raise", "insufficient"]),
        ("recommendations?entity=ip=10.0.0.1", "action", []),
        ("recommendations?since=2026-11-20T23:59:59Z&action=raise", "action", ["raise"]),
        ("recommendations?since=2026-11-21T00:00:00Z", "action", []),
        ("recommendations?until=2026-11-14T00:00:00Z", "action", []),
        ("stale", "quota_user", ["", "carl", "dora", "erik"]),
        ("stale?kind=idle", "quota_user", ["carl", "dora"]),
        ("stale?entity=user:default", "kind", ["default_unused"]),
        ("stale?entity=user=dora", "kind", ["idle"]),
        ("stale?entity=client-id", "kind", []),
        ("stale?key=consumer_byte_rate", "quota_user", ["carl"]),
        ("uncovered", "bucket_user", ["gina", "hugo", "finn"]),
        ("uncovered?entity=user:default", "bucket_user", ["hugo"]),
        ("uncovered?entity=any~=IN", "bucket_user", ["gina", "finn"]),
        ("overcommit", "direction", ["in", "out", "in"]),
        ("overcommit?direction=in", "broker_id", [1, 2]),
        ("overcommit?broker_id=1", "direction", ["in", "out"]),
        ("drift", "quota_user", ["bob", "carl", "alice"]),
        ("drift?kind=missing", "quota_user", ["bob", "carl"]),
        ("drift?since=2026-11-20T00:30:00Z", "quota_user", ["carl"]),
        ("drift?until=2026-11-20T00:30:00Z", "quota_user", ["bob", "alice"]),
    ],
)
def test_advice_is_found_by_its_conditions(
    advised: Advised, query: str, column: str, found: list[Any]
):
    advised.publish(ADVICE)
    assert [row[column] for row in rows(advised.bob.get(f"/analytics/{query}"))] == found


@pytest.mark.parametrize("route", ROUTES)
def test_pages_hold_every_row_once(advised: Advised, route: str):
    advised.publish(ADVICE)
    whole = rows(advised.bob.get(f"/analytics/{route}"))
    for size in (1, 2):
        found = [page["rows"] for page in pages(advised.bob, f"/analytics/{route}", page_size=size)]
        assert [row for page in found for row in page] == whole


def test_a_run_replaces_the_advice_of_its_cluster_alone(advised: Advised):
    advised.publish(ADVICE)
    advised.publish({RECOMMENDATION: [recommendation("lower", 3.0)]}, "another")
    assert len(rows(advised.bob.get("/analytics/recommendations"))) == 4
    advised.publish({RECOMMENDATION: [recommendation("lower", 3.0)], STALE_QUOTA: []})
    (row,) = rows(advised.bob.get("/analytics/recommendations"))
    assert (row["action"], row["factor"]) == ("lower", 3)
    assert rows(advised.bob.get("/analytics/stale")) == []
    assert len(rows(advised.bob.get("/analytics/drift"))) == 3


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("recommendations?action=remove", 422),
        ("recommendations?kind=idle", 400),
        ("stale?kind=raise", 422),
        ("overcommit?broker_id=one", 400),
        ("overcommit?broker_id=-1", 422),
        ("overcommit?key=producer_byte_rate", 400),
        ("drift?page_token=forged", 400),
    ],
)
def test_a_condition_that_is_none_is_refused(advised: Advised, query: str, status: int):
    problem_of(advised.bob.get(f"/analytics/{query}"), status)


def test_what_if_is_found_by_its_run_and_no_other(advised: Advised):
    path = f"/analytics/whatif/{RUN}"
    for each in (path, f"{path}/timeline"):
        problem = problem_of(advised.bob.get(each), 404)
        assert problem["code"] == "no-run"
        assert "`quota-pipeline whatif --pg`" in problem["detail"]
    advised.publish_whatif()
    advised.publish_whatif("another", "another")
    for other in ("another", "%00", "x"):
        problem = problem_of(advised.bob.get(f"/analytics/whatif/{other}"), 404)
        assert problem["code"] == "not-found"
    document = advised.bob.get(path).json()
    assert (document["run_id"], document["run"]["throttled_new"]) == (RUN, 2)
    assert document["run"]["alterations"][0]["alterations"][0]["entity"] == {"user": "alice"}
    # Throttled longest first; of the last nobody can tell.
    found = [
        (row["bucket_id"], row["broker_id"], row["throttled_s_new"]) for row in document["rows"]
    ]
    assert found == [("1", 2, 5), ("1", 1, 2), ("2", 1, None)]
    assert [row["bucket_user"] for row in rows(advised.bob.get(f"{path}?entity=user=bob"))] == [
        "bob"
    ]
    minutes = rows(advised.bob.get(f"{path}/timeline"))
    assert [(row["broker_id"], row["ts"][14:16]) for row in minutes] == [
        *((1, "00"), (1, "01")),
        *((2, "00"), (2, "01")),
    ]
    for each, whole in ((path, document["rows"]), (f"{path}/timeline", minutes)):
        listed = [page["rows"] for page in pages(advised.bob, each, page_size=1)]
        assert [row for page in listed for row in page] == whole
    assert problem_of(advised.service.api("mallory").get(path), 403)


def test_a_run_of_what_if_replaces_itself_and_no_other(advised: Advised):
    for run_id in ("first", "second", "first"):
        advised.publish_whatif(run_id)
    for run_id in ("first", "second"):
        assert len(rows(advised.bob.get(f"/analytics/whatif/{run_id}"))) == 3
