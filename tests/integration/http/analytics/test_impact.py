"""What a change would have meant, from histograms that a run of the pipeline published."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.pipeline.tables import DIM_BUCKET, UTILIZATION_DAILY, UTILIZATION_HIST
from tests.integration.http.analytics.conftest import Published
from tests.pipeline.publish.results import BUCKET, KEY, bucket, day, minutes
from tests.testkit.http import assert_refused

BOB = 2
ALICE = {"entity": {"user": "alice"}}
LIMIT = 1_000_000
"""What alice has: see the fixture ``published``."""

PEAK = 800_000.0
ROWS = {
    DIM_BUCKET: [bucket(), bucket(level=6), bucket(bucket_id=BOB, bucket_user="bob")],
    UTILIZATION_DAILY: [
        day(peak=PEAK, throttled_minutes=0, minutes_over_100=0),
        day(broker_id=1, peak=9e9),
        day(bucket_id=BOB, peak=5.0),
    ],
    # Bins of 500,000 and of 800,000 bytes/s.
    UTILIZATION_HIST: [minutes(60, -(2**31)), minutes(37, 1318), minutes(3, 1366)],
}


def ops(value: int | None) -> list[dict[str, Any]]:
    return [{"key": KEY, "remove": True} if value is None else {"key": KEY, "value": value}]


def alteration(value: int | None) -> dict[str, Any]:
    return {**ALICE, "ops": ops(value)}


def check(api: httpx.Client, value: int | None) -> Any:
    body = {"validate_only": True, "impact": True, "alterations": [alteration(value)]}
    return api.post("/quotas/alterations", json=body)


def plan(api: httpx.Client, value: int | None) -> Any:
    quotas = [{**ALICE, "values": {} if value is None else {KEY: value}}]
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


@pytest.fixture(scope="module")
def api(published: Published) -> Iterator[httpx.Client]:
    """A client of alice; histograms are there."""
    published.publish("histograms", ROWS)
    return published.service.api("alice")


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_a_touched_bucket_is_reported_with_its_past_minutes(api: httpx.Client, ask: Any):
    assert impact(ask(api, 700_000)) == [
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


def test_the_share_is_that_of_the_minutes_above_the_new_limit(
    api: httpx.Client, subtests: pytest.Subtests
):
    for value, share in [(1, 0.4), (750_000, 0.03), (800_000, 0), (None, 0)]:
        with subtests.test(value=value, share=share):
            (found,) = impact(check(api, value))
            assert (found["limit_new"], found["share_of_minutes_over"]) == (value, share)


def test_what_changes_no_limit_has_no_impact(api: httpx.Client):
    for ask in ASKING.values():
        assert impact(ask(api, LIMIT)) == []


def test_a_throttled_bucket_is_censored(published: Published, api: httpx.Client):
    days = [day(peak=PEAK, throttled_minutes=1, minutes_over_100=0)]
    published.publish("throttled", {**ROWS, UTILIZATION_DAILY: days})
    (found,) = impact(check(api, 2 * LIMIT))
    assert found["censored"] is True


def test_results_of_another_cluster_count_for_nothing(published: Published, api: httpx.Client):
    before = impact(check(api, 700_000))
    more = {**ROWS, UTILIZATION_HIST: [minutes(1_000, 1366)]}
    published.publish("of another cluster", more, "another")
    assert impact(check(api, 700_000)) == before


def test_an_impact_of_nothing_proposed_is_refused(api: httpx.Client):
    body = {"impact": True, "alterations": [alteration(700_000)]}
    refused = {("/impact", "impact-of-nothing")}
    assert_refused(api.post("/quotas/alterations", json=body), 422, refused)
    body = {"impact": True, "identities": [{"user": "alice"}]}
    assert_refused(api.post("/quotas/resolve", json=body), 422, refused)
    assert "impact" not in api.post("/quotas/resolve", json={"identities": []}).json()
