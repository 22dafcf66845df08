from typing import Any

import psycopg

from tests.integration.http.analytics.conftest import Published
from tests.testkit.http import problem_of

OPTIONS = {"input": ["metrics", "more"], "quotas": "q", "as-of": "history", "gap": 2}


def queue(published: Published, job: str = "run", **options: Any) -> dict[str, Any]:
    answer = published.service.api().post("/analytics/runs", json={"job": job, "options": options})
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/analytics/runs/{document['run_id']}"
    return document


def test_a_run_is_queued_and_can_be_watched(published: Published):
    queued = queue(published, **OPTIONS)
    assert (queued["state"], queued["job"], queued["options"]) == ("queued", "run", OPTIONS)
    assert (queued["requested_by"], queued["started_at"]) == ("User:alice", None)
    bob = published.service.api("bob")
    assert bob.get(f"/analytics/runs/{queued['run_id']}").json() == queued
    assert bob.get("/analytics/runs").json()["rows"][0] == queued


def test_options_may_be_left_out(published: Published):
    answer = published.service.api().post("/analytics/runs", json={"job": "utilization"})
    assert (answer.status_code, answer.json()["options"]) == (202, {})


def test_each_request_is_a_run_of_its_own(published: Published):
    assert queue(published)["run_id"] != queue(published)["run_id"]


def test_a_run_that_waits_is_cancelled_at_once(published: Published):
    run_id = queue(published)["run_id"]
    path = f"/analytics/runs/{run_id}/cancel"
    assert problem_of(published.service.api("bob").post(path), 403)
    first, again = (published.service.api().post(path).json() for _ in range(2))
    assert (first["state"], first["cancel_requested"]) == ("cancelled", True)
    assert first["ended_at"] is not None
    assert again == first


def test_only_who_queued_a_run_and_super_users_cancel_it(published: Published):
    alice, root = published.service.api(), published.service.api("root")
    path = f"/analytics/runs/{queue(published)['run_id']}/cancel"
    assert root.post(path).json()["state"] == "cancelled"
    queued = root.post("/analytics/runs", json={"job": "run"}).json()
    path = f"/analytics/runs/{queued['run_id']}/cancel"
    assert problem_of(alice.post(path), 403)["code"] == "run-of-another-caller"
    assert root.get(f"/analytics/runs/{queued['run_id']}").json() == queued


def test_the_queue_is_bounded_for_each_principal_and_in_all(published: Published):
    def execute(statement: str, *values: object) -> None:
        with psycopg.connect(published.url, autocommit=True) as connection:
            connection.execute(statement, values)

    def refused(principal: str) -> bool:
        answer = published.service.api(principal).post("/analytics/runs", json={"job": "run"})
        if answer.status_code == 202:
            assert answer.json()["state"] == "queued"
            return False
        problem = problem_of(answer, 429)
        assert (problem["code"], problem["retry"]) == ("too-many-runs", "safe")
        assert answer.headers["Retry-After"] == "60"
        return True

    end_all = "update pipeline_run set state = 'cancelled', ended_at = now()"
    execute(end_all)
    assert [refused("alice") for _ in range(11)] == [False] * 10 + [True]
    assert not refused("root")
    execute(
        "insert into pipeline_run (run_id, job, options, cluster_id, state, requested_by) "
        "select 'other' || n, 'run', '{}', %s, 'queued', 'User:' || n "
        "from generate_series(1, 89) n",
        published.cluster_id,
    )
    assert refused("root")
    execute(end_all)
    assert not refused("root")


def test_a_run_that_is_none_is_not_found(published: Published):
    alice = published.service.api()
    assert problem_of(alice.get("/analytics/runs/x"), 404)["code"] == "not-found"
    assert problem_of(alice.get("/analytics/runs/%00"), 404)["code"] == "not-found"
    assert problem_of(alice.post("/analytics/runs/x/cancel"), 404)["code"] == "not-found"


def test_queueing_needs_the_alter_permission(published: Published):
    answer = published.service.api("bob").post("/analytics/runs", json={"job": "run"})
    assert problem_of(answer, 403)["code"] == "cluster-authorization-failed"
