from datetime import timedelta

from app.pipeline.tables import DIM_BUCKET, UTILIZATION_DAILY
from tests.integration.http.analytics.conftest import Published
from tests.pipeline.publish.results import DAY, bucket, day
from tests.testkit.http import assert_refused

KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def test_usage_is_listed_beside_each_limit(published: Published):
    bob = published.service.api("bob")
    shared = bob.get("/quotas/resolve?user=alice").json()["quotas"][KEYS[0]]["shared_by"]
    names = {"bucket_user": shared["user"], "bucket_client": shared["client-id"]}
    published.publish(
        "usage",
        {DIM_BUCKET: [bucket(**names)], UTILIZATION_DAILY: [day(), day(broker_id=1, p99=1.0)]},
    )
    quotas = bob.get("/quotas/resolve?user=alice&usage=true").json()["quotas"]
    assert quotas[KEYS[0]]["usage"] == {
        "p95": 90,
        "p99": 95,
        "max": 96,
        "throttled_minutes": 2,
        "data_through": "2026-11-20T00:05:00.000Z",
        "coverage": 0.75,
    }
    assert quotas[KEYS[1]]["usage"] is None


def test_a_later_run_about_earlier_days_takes_nothing_from_the_last_day(published: Published):
    bob = published.service.api("bob")
    resolve = "/quotas/resolve?user=alice&usage=true"
    before = bob.get(resolve).json()["quotas"][KEYS[0]]["usage"]
    names = {"bucket_user": "alice", "bucket_client": ""}
    published.publish(
        "earlier days",
        {
            DIM_BUCKET: [bucket(**names)],
            UTILIZATION_DAILY: [day(dt=DAY - timedelta(days=5), p99=1.0)],
        },
    )
    assert bob.get(resolve).json()["quotas"][KEYS[0]]["usage"] == before


def test_usage_is_left_out_unless_it_is_asked_for(published: Published):
    bob = published.service.api("bob")
    plain = bob.get("/quotas/resolve?user=alice").json()
    assert KEYS[0] in plain["quotas"]
    assert all("usage" not in quota for quota in plain["quotas"].values())
    assert_refused(bob.get("/quotas/resolve?user=alice&usage=yes"), 400, {("usage", "wrong-type")})


def test_an_address_and_names_that_no_database_keeps_have_no_usage(published: Published):
    bob = published.service.api("bob")
    for identity in ("ip=10.0.0.1", "user=a%00b", "user=nobody&client-id=none"):
        answer = bob.get(f"/quotas/resolve?{identity}&usage=true")
        assert answer.status_code == 200
        assert {quota["usage"] for quota in answer.json()["quotas"].values()} == {None}
