"""What the pipeline published, usage and impact beside limits, and runs."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest

from app.http.query_params import page_token, query_fingerprint
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.pipeline.publishing import TWIN_COLUMNS
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
)
from tests.integration.http.service_calls import C, P, change, pages
from tests.pipeline.publish.results import (
    BUCKET,
    DAY,
    KEY,
    Rows,
    bucket,
    day,
    hour,
    incident,
    job_of,
    minutes,
    publish_rows,
)
from tests.testkit.http import problem_of
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

LIMIT = 1_000_000
"""What alice has, so that every user has a bucket of his own: where no rule names a user, all spend
from the same one."""

CLEAR = """
truncate dim_bucket, utilization_daily, utilization_hist, bucket_hour, throttle_incident,
  pipeline_run
"""


@dataclass
class Published:
    """The service, and what publishes for it: alice may alter, bob describe."""

    service: RunningService
    url: str
    owner_url: str
    cluster_id: str

    def publish(self, name: str, rows: Rows, cluster_id: str | None = None) -> str:
        """Publish rows under a name, of the service's cluster or another; return the run's id."""
        of = {"cluster_id": cluster_id or self.cluster_id}
        own = {table: [{**row, **of} for row in each] for table, each in rows.items()}
        job = job_of("run", input=[name])
        job.run_id = hashlib.sha256(name.encode()).hexdigest()[:16]
        days = {row["dt"] for each in own.values() for row in each if "dt" in row}
        return publish_rows(self.url, own, job, sorted(days)).run_id

    def execute(self, statement: str, *values: object) -> None:
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute(statement, values)


@pytest.fixture(scope="module")
def served(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    """A service of these tests' own."""
    folder = tmp_path_factory.mktemp("analytics")
    owner_url, service_url = migrated_database(postgres, folder.name)
    with running_service(folder, broker.bootstrap_servers, service_url) as service:
        service.alter(change({"user": "alice"}, {P: LIMIT})).raise_for_status()
        cluster_id = service.api("bob").get("/quotas").json()["cluster_id"]
        yield Published(service, service_url, owner_url, cluster_id)
        service.alter(change({"user": "alice"}, {P: None})).raise_for_status()


@pytest.fixture
def published(served: Published) -> Published:
    """Nothing is published yet."""
    served.execute(CLEAR)
    return served


DEFAULT_USER = {"quota_user": "", "quota_user_default": True}
BY_CLIENT_ID = {"quota_user": "", "quota_client_id": "etl"}
NO_QUOTA = {"quota_user": "", "level": 0}

ALICE, BOB, ETL, FREE = BUCKET, 2, 3, 4
"""alice has a quota of her own, bob that of the default user, etl one by its client-id; the last
has none."""

RESULTS = {
    DIM_BUCKET: [
        bucket(),
        bucket(bucket_id=BOB, bucket_user="bob", level=6, **DEFAULT_USER),
        bucket(bucket_id=ETL, key=C, bucket_user="", bucket_client="etl", level=7, **BY_CLIENT_ID),
        bucket(bucket_id=FREE, bucket_user="", bucket_client="free", **NO_QUOTA),
    ],
    UTILIZATION_DAILY: [
        day(),
        day(broker_id=1, util_p99=0.5),
        day(bucket_id=BOB, level=6, util_p99=0.7),
        day(bucket_id=ETL, level=7, key=C, util_p99=0.2),
        day(bucket_id=FREE, level=0, limit=None, util_p99=None, headroom=None),
        day(dt=DAY - timedelta(days=1), util_p99=0.1),
    ],
    THROTTLE_INCIDENT: [
        incident("one", 10),
        incident("two", 60, bucket_id=BOB, level=6, **DEFAULT_USER),
        incident("three", 1435),
    ],
    BUCKET_HOUR: [
        *(hour(number, broker_id=broker) for number in range(5) for broker in (1, 2)),
        hour(-24),
        hour(0, bucket_id=BOB),
    ],
}


@pytest.fixture
def api(published: Published) -> httpx.Client:
    """A client of bob, who may describe; results are there."""
    published.publish("results", RESULTS)
    return published.service.api("bob")


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def test_before_the_first_run_there_is_nothing(published: Published, subtests: pytest.Subtests):
    for path in ["utilization", "incidents", "buckets/1", "runs"]:
        with subtests.test(path=path):
            problem = problem_of(published.service.api("bob").get(f"/analytics/{path}"), 404)
            assert problem["code"] == "no-run"
            assert "quota-pipeline run --pg" in problem["detail"]


def test_an_answer_names_its_run_and_the_columns_of_the_table(
    published: Published, api: httpx.Client
):
    run_id = published.publish("results", RESULTS)
    document = api.get("/analytics/utilization").json()
    assert (document["run_id"], document["next_page_token"]) == (run_id, None)
    assert document["data_through"] == "2026-11-20T00:05:00.000Z"
    assert document["coverage"] == 0.75
    first = document["rows"][0]
    assert list(first) == list(TWIN_COLUMNS[UTILIZATION_DAILY])
    assert (first["bucket_id"], first["dt"]) == (str(BUCKET), "2026-11-20")
    assert (first["limit"], first["p99"], first["broker_id"]) == (100, 95, None)
    (alice,) = [item for item in document["buckets"] if item["bucket_id"] == str(BUCKET)]
    assert (alice["bucket_user"], alice["quota_user"]) == ("alice", "alice")


def test_the_fullest_bucket_of_the_newest_day_comes_first(api: httpx.Client):
    found = rows(api.get("/analytics/utilization"))
    assert [row["util_p99"] for row in found] == [0.95, 0.7, 0.5, 0.2, None, 0.1]


def test_utilization_is_found_by_its_conditions(api: httpx.Client, subtests: pytest.Subtests):
    for query, buckets in [
        ("key=consumer_byte_rate", [ETL]),
        ("key=a%00b", []),
        ("min_util_p99=0.7", [ALICE, BOB]),
        ("min_util_p99=7e-1", [ALICE, BOB]),
        ("since=2026-11-20T00:00:00Z&min_util_p99=0.1", [ALICE, BOB, ALICE, ETL]),
        ("until=2026-11-20T00:00:00Z", [ALICE]),
        ("since=2026-11-21T00:00:00Z", []),
        ("entity=user=alice&since=2026-11-20T00:00:00Z", [ALICE, ALICE]),
        ("entity=user=bob", [BOB]),
        ("entity=user:default", [BOB]),
        ("entity=user^=bo", [BOB]),
        ("entity=user^=%25", []),
        ("entity=user~=OB", [BOB]),
        ("entity=user~=%25", []),
        ("entity=any~=B", [BOB]),
        ("entity=any~=%25", []),
        ("entity=client-id", [ETL, FREE]),
        ("entity=user:absent&entity=client-id=etl", [ETL]),
        ("entity=ip=10.0.0.1", []),
        ("entity=user=", []),
        ("entity=user=a%00b", []),
        ("entity=ip:absent&min_util_p99=0.95", [ALICE]),
    ]:
        with subtests.test(query=query):
            found = rows(api.get(f"/analytics/utilization?{query}"))
            assert [int(row["bucket_id"]) for row in found] == buckets


def test_incidents_are_found_by_their_conditions(api: httpx.Client, subtests: pytest.Subtests):
    for query, names in [
        ("", ["three", "two", "one"]),
        ("entity=user=alice", ["three", "one"]),
        ("since=2026-11-20T01:05:00Z", ["three"]),
        ("until=2026-11-20T00:11:00Z", ["one"]),
        ("since=2026-11-20T00:14:00Z&until=2026-11-20T00:15:00Z", ["one"]),
    ]:
        with subtests.test(query=query):
            answer = api.get(f"/analytics/incidents?{query}")
            assert [row["incident_id"] for row in rows(answer)] == names


def test_what_was_published_of_another_cluster_changes_no_answer(
    published: Published, api: httpx.Client, subtests: pytest.Subtests
):
    for path in ["utilization", "incidents", f"buckets/{BUCKET}", "runs"]:
        with subtests.test(path=path):
            before = api.get(f"/analytics/{path}").json()
            other = published.publish(f"of another cluster, {path[:7]}", RESULTS, "another")
            assert api.get(f"/analytics/{path}").json() == before
            assert problem_of(api.get(f"/analytics/runs/{other}"), 404)["code"] == "not-found"


@pytest.mark.parametrize("path", ["utilization", "incidents", f"buckets/{BUCKET}", "runs"])
def test_pages_hold_every_row_once(published: Published, api: httpx.Client, path: str):
    for number in range(3):
        published.publish(f"run {number}", RESULTS)
    whole = rows(api.get(f"/analytics/{path}"))
    assert len(whole) > 2
    for size in (1, 2, 4):
        found = [page["rows"] for page in pages(api, f"/analytics/{path}", page_size=size)]
        assert max(map(len, found)) <= size
        assert [row for page in found for row in page] == whole


def test_the_hours_of_a_bucket_come_in_order(api: httpx.Client):
    found = rows(api.get(f"/analytics/buckets/{BUCKET}?since=2026-11-20T01:00:00Z"))
    assert [(row["hour"][11:16], row["broker_id"]) for row in found] == [
        (f"0{number}:00", broker) for number in range(1, 5) for broker in (1, 2)
    ]
    document = api.get(f"/analytics/buckets/{BUCKET}?until=2026-11-19T00:00:00Z").json()
    assert document["rows"] == []
    assert [item["bucket_user"] for item in document["buckets"]] == ["alice"]


def test_a_bucket_that_is_none_is_not_found(api: httpx.Client, subtests: pytest.Subtests):
    for bucket_id in ["17", "x", "1.0", "9223372036854775808", "%00", "\u0669"]:
        with subtests.test(bucket_id=bucket_id):
            answer = api.get(f"/analytics/buckets/{bucket_id}")
            assert problem_of(answer, 404)["code"] == "not-found"


def test_a_token_belongs_to_its_query(api: httpx.Client):
    token = api.get("/analytics/utilization?page_size=1").json()["next_page_token"]
    for path in ("incidents?", f"utilization?key={quote(KEY)}&", f"buckets/{BUCKET}?"):
        answer = api.get(f"/analytics/{path}page_size=1&page_token={token}")
        assert problem_of(answer, 400)["code"] == "bad-page-token"


def test_a_token_with_a_forged_position_is_refused(api: httpx.Client, subtests: pytest.Subtests):
    names = ("key", "entity", "min_util_p99", "since", "until")
    conditions = dict.fromkeys(names) | {"entity": (), "bucket_id": None}
    fingerprint = query_fingerprint("utilization_daily", conditions)
    for position in [
        *([], {}, 1, "2026-01-01", ["2026-01-01", "1", "1"], ["today", "1", "1", "1"]),
        *(["2026-01-01", "1", str(2**63), "1"], ["2026-01-01", "1", "1", str(2**31)]),
        ["2026-01-01", "1", "9" * 5000, "1"],
    ]:
        with subtests.test(position=position):
            token = page_token(position, fingerprint)
            answer = api.get(f"/analytics/utilization?page_token={token}")
            assert problem_of(answer, 400)["code"] == "bad-page-token"
    valid = page_token(["2026-01-01", "1.5", "-1", "1"], fingerprint)
    assert api.get(f"/analytics/utilization?page_token={valid}").status_code == 200


def test_usage_is_listed_beside_each_limit_and_is_that_of_the_last_day(published: Published):
    bob = published.service.api("bob")
    plain = bob.get("/quotas/resolve?user=alice").json()["quotas"]
    assert not any("usage" in quota for quota in plain.values())
    shared = plain[P]["shared_by"]
    names = {"bucket_user": shared["user"], "bucket_client": shared["client-id"]}
    published.publish(
        "usage",
        {DIM_BUCKET: [bucket(**names)], UTILIZATION_DAILY: [day(), day(broker_id=1, p99=1.0)]},
    )

    def usage(key: str) -> Any:
        answer = bob.get("/quotas/resolve?user=alice&usage=true")
        return answer.json()["quotas"][key]["usage"]

    found = {
        "p95": 90,
        "p99": 95,
        "max": 96,
        "throttled_minutes": 2,
        "data_through": "2026-11-20T00:05:00.000Z",
        "coverage": 0.75,
    }
    assert (usage(P), usage(C)) == (found, None)
    earlier = day(dt=DAY - timedelta(days=5), p99=1.0)
    published.publish("earlier days", {DIM_BUCKET: [bucket(**names)], UTILIZATION_DAILY: [earlier]})
    assert usage(P) == found


def test_an_address_and_names_that_no_database_keeps_have_no_usage(api: httpx.Client):
    for identity in ("ip=10.0.0.1", "user=a%00b", "user=nobody&client-id=none"):
        answer = api.get(f"/quotas/resolve?{identity}&usage=true")
        assert answer.status_code == 200
        assert {quota["usage"] for quota in answer.json()["quotas"].values()} == {None}


def test_a_run_that_is_none_is_not_found(published: Published):
    alice = published.service.api()
    assert problem_of(alice.get("/analytics/runs/x"), 404)["code"] == "not-found"
    assert problem_of(alice.get("/analytics/runs/%00"), 404)["code"] == "not-found"


def test_runs_are_listed_and_none_can_be_asked_for(published: Published):
    run_id = published.publish("results", RESULTS)
    alice = published.service.api()
    (listed,) = alice.get("/analytics/runs").json()["rows"]
    assert (listed["run_id"], listed["state"], listed["error"]) == (run_id, "succeeded", None)
    assert alice.get(f"/analytics/runs/{run_id}").json() == listed
    assert problem_of(alice.post("/analytics/runs", json={"job": "run"}), 405)
    assert problem_of(alice.post(f"/analytics/runs/{run_id}/cancel"), 404)


PEAK = 800_000.0
HISTOGRAMS = {
    DIM_BUCKET: [bucket(), bucket(level=6), bucket(bucket_id=BOB, bucket_user="bob")],
    UTILIZATION_DAILY: [
        day(peak=PEAK, throttled_minutes=0, minutes_over_100=0),
        day(broker_id=1, peak=9e9),
        day(bucket_id=BOB, peak=5.0),
    ],
    # Bins of 500,000 and of 800,000 bytes/s.
    UTILIZATION_HIST: [minutes(60, -(2**31)), minutes(37, 1318), minutes(3, 1366)],
}


def alteration(value: int | None) -> dict[str, Any]:
    return change({"user": "alice"}, {KEY: value})


def check(api: httpx.Client, value: int | None) -> Any:
    body = {"validate_only": True, "impact": True, "alterations": [alteration(value)]}
    return api.post("/quotas/alterations", json=body)


def plan(api: httpx.Client, value: int | None) -> Any:
    quotas = [{"entity": {"user": "alice"}, "values": {} if value is None else {KEY: value}}]
    document = {"apiVersion": "quotas/v1", "quotas": quotas}
    return api.post("/quotas/plans", json={"document": document, "impact": True})


def what_if(api: httpx.Client, value: int | None) -> Any:
    body = {"identities": [], "impact": True, "alterations": [alteration(value)]}
    return api.post("/quotas/resolve", json=body)


ASKING = {"check": check, "plan": plan, "what-if": what_if}


def impact(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["impact"]


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_before_the_first_run_there_is_no_impact(published: Published, ask: Any):
    assert impact(ask(published.service.api("alice"), 700_000)) == {"reason": "no-run"}


@pytest.fixture
def alice(published: Published) -> httpx.Client:
    """A client of alice; histograms are there."""
    published.publish("histograms", HISTOGRAMS)
    return published.service.api("alice")


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_a_touched_bucket_is_reported_with_its_past_minutes(alice: httpx.Client, ask: Any):
    assert impact(ask(alice, 700_000)) == [
        {
            "bucket_id": str(BUCKET),
            "key": KEY,
            "shared_by": {"user": "alice", "client-id": ""},
            "limit_now": LIMIT,
            "limit_new": 700_000,
            "share_of_minutes_over": 0.03,
            "peak": PEAK,
            "days": 1,
            "data_through": "2026-11-20T00:05:00.000Z",
            "censored": False,
        }
    ]


def test_each_entity_has_the_impact_of_its_own_change(alice: httpx.Client):
    others = change({"client-id": "unseen"}, {KEY: 5})
    body = {"validate_only": True, "impact": True, "alterations": [alteration(700_000), others]}
    answer = alice.post("/quotas/alterations", json=body).json()
    assert [result["impact"] for result in answer["results"]] == [answer["impact"], []]
    planned = plan(alice, 700_000).json()
    (changed,) = planned["changes"]
    assert changed["impact"]["buckets"] == planned["impact"] == answer["impact"]
    assert "buckets" not in alice.get(f"/quotas/plans/{planned['plan_id']}").text


def test_the_share_is_that_of_the_minutes_above_the_new_limit(
    alice: httpx.Client, subtests: pytest.Subtests
):
    for value, share in [(1, 0.4), (750_000, 0.03), (800_000, 0), (None, 0)]:
        with subtests.test(value=value, share=share):
            (found,) = impact(check(alice, value))
            assert (found["limit_new"], found["share_of_minutes_over"]) == (value, share)


def test_what_changes_no_limit_has_no_impact(alice: httpx.Client):
    for ask in ASKING.values():
        assert impact(ask(alice, LIMIT)) == []


def test_a_throttled_bucket_is_censored(published: Published, alice: httpx.Client):
    days = [day(peak=PEAK, throttled_minutes=1, minutes_over_100=0)]
    published.publish("throttled", {**HISTOGRAMS, UTILIZATION_DAILY: days})
    (found,) = impact(check(alice, 2 * LIMIT))
    assert found["censored"] is True


def test_results_of_another_cluster_count_for_nothing(published: Published, alice: httpx.Client):
    before = impact(check(alice, 700_000))
    more = {**HISTOGRAMS, UTILIZATION_HIST: [minutes(1_000, 1366)]}
    published.publish("of another cluster", more, "another")
    assert impact(check(alice, 700_000)) == before


def test_an_impact_of_nothing_proposed_is_refused(alice: httpx.Client):
    for path, members in {
        "/quotas/alterations": {"alterations": [alteration(700_000)]},
        "/quotas/resolve": {"identities": [{"user": "alice"}]},
    }.items():
        problem = problem_of(alice.post(path, json={"impact": True, **members}), 422)
        (error,) = problem["errors"]
        assert (error["pointer"], error["code"]) == ("/impact", "impact-of-nothing")
        assert error["detail"]
        assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
    assert "impact" not in alice.post("/quotas/resolve", json={"identities": []}).json()
