"""``GET /audit/stream`` over HTTP: what comes, to whom, from where on, and how it ends."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import P, audit, change
from tests.testkit.event_streams import listening
from tests.testkit.kafka import unique
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service


def altered(service: RunningService, user: str, principal: str = "alice") -> str:
    """Alter the user's quota; return the alteration's id."""
    body = {"alterations": [change({"user": user}, {P: 1024})]}
    answer = service.api(principal).post("/quotas/alterations", json=body)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: str = answer.json()["alteration_id"]
    return found


def test_an_alteration_comes_when_it_is_recorded_and_when_it_has_an_outcome(
    service: RunningService,
):
    user = unique("user")
    with listening(service, entity=f"user={user}") as listener:
        alteration_id = altered(service, user)
        intent, outcome = listener.until(alteration_id, "applied")
    assert listener.answer.headers["content-type"].startswith("text/event-stream")
    assert listener.answer.headers["cache-control"] == "no-store"
    assert listener.answer.headers["x-accel-buffering"] == "no"
    assert [intent.id, outcome.id] == [f"{alteration_id}/{number}/0" for number in (0, 1)]
    assert (intent.row["outcome"], intent.row["after"]) == ("unknown", None)
    (row,) = audit(service, entity=f"user={user}").json()["rows"]
    assert outcome.row == row


def test_a_listener_goes_on_behind_what_it_had_and_misses_nothing(service: RunningService):
    users = [unique("user") for _ in range(5)]
    with listening(service, actor="User:alice") as listener:
        first = listener.until(altered(service, users[0]), "applied")[-1]
    later = [altered(service, user) for user in users[1:]]
    with listening(service, last_event_id=first.id, actor="User:alice") as listener:
        events = listener.until(later[-1], "applied")
    assert [(event.row["alteration_id"], event.row["outcome"]) for event in events] == [
        (alteration_id, outcome) for alteration_id in later for outcome in ("unknown", "applied")
    ]


def test_a_time_is_where_a_listener_may_begin(service: RunningService):
    user = unique("user")
    alteration_id = altered(service, user)
    (row,) = audit(service, entity=f"user={user}").json()["rows"]
    with listening(service, since=row["at"], entity=f"user={user}") as listener:
        assert len(listener.until(alteration_id, "applied")) == 2


@pytest.mark.parametrize(
    "last_event_id",
    ["1", "-", "a/b/c", "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f/0/0", "%00", "9" * 99],
)
def test_a_position_that_is_none_is_400(service: RunningService, last_event_id: str):
    with listening(service, last_event_id=last_event_id) as listener:
        assert listener.answer.status_code == httpx.codes.BAD_REQUEST
    (violation,) = listener.answer.json()["errors"]
    assert (violation["pointer"], violation["code"]) == ("last-event-id", "bad-last-event-id")


def test_callers_see_in_the_stream_what_they_see_in_the_log(service: RunningService):
    with listening(service, "root", actor="User:alice") as denied:
        assert denied.answer.json()["code"] == "audit-permission-needed"
    with listening(service, "mallory") as denied:
        assert denied.answer.json()["code"] == "cluster-authorization-failed"
    with listening(service, page_size="1") as refused:
        assert refused.answer.json()["errors"][0]["code"] == "unknown-parameter"
    with listening(service, "root") as listener:
        altered(service, unique("user"), "alice")
        own = altered(service, unique("user"), "root")
        events = listener.until(own, "applied")
    assert {event.row["principal"] for event in events} == {"User:root"}


def test_head_has_the_headers_and_ends(service: RunningService):
    answer = service.api("auditor").head("/audit/stream")
    assert answer.status_code == httpx.codes.OK
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.fixture
def own_service(broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path) -> Any:
    """A service that serves three streams, two of one principal."""
    _, url = migrated_database(postgres, unique("streams").replace("-", "_"))
    limits = {"streams_at_once": "2", "max_streams": "3"}
    with running_service(tmp_path, broker.bootstrap_servers, url, **limits) as running:
        yield running


def test_streams_are_counted_and_end_with_the_service(own_service: RunningService):
    with (
        listening(own_service) as first,
        listening(own_service) as second,
        listening(own_service, "bob") as of_bob,
    ):
        with listening(own_service) as third:
            assert third.answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            assert third.answer.json()["code"] == "rate-limited"
        with listening(own_service, "alice") as of_alice:
            assert of_alice.answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert of_alice.answer.json()["code"] == "too-many-streams"
            assert of_alice.answer.headers["retry-after"] == "1"
        assert (
            'quota_event_listeners{cluster="default"} 3.0' in own_service.api().get("/metrics").text
        )
        assert own_service.stop() == 0
        for listener in (first, second, of_bob):
            assert list(listener.events) == []
