"""``GET /quotas/alterations/{alteration_id}``: what is kept of an alteration, and for whom."""

import json
from datetime import datetime

import pytest

from tests.integration.http.changes import C, P, applied, change
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService


def test_the_record_is_the_answer_and_the_way_there(service: RunningService) -> None:
    names = {"user": unique(), "client-id": unique()}
    applied(service, names, {P: 5})
    answer = service.api().post(
        "/quotas/alterations",
        json={"alterations": [change(names, {P: 6, C: 7})], "reason": "INC-1"},
        headers={"X-Request-Id": "record-1"},
    )
    document = answer.json()
    assert answer.headers["X-Request-Id"] == "record-1"
    assert answer.headers["Location"] == f"/quotas/alterations/{document['alteration_id']}"
    record = service.api().get(answer.headers["Location"]).json()
    same = document.keys() - {"readable"}
    assert {name: record[name] for name in same} == {name: document[name] for name in same}
    assert record["principal"] == "User:alice"
    assert record["client_address"] == "127.0.0.1"
    assert (record["reason"], record["request_id"]) == ("INC-1", "record-1")
    assert [item["event"] for item in record["history"]] == ["intent", "sent", "outcome"]
    times = [datetime.fromisoformat(item["at"]) for item in record["history"]]
    assert times == sorted(times)
    assert all(item["at"].endswith("Z") and len(item["at"]) == 24 for item in record["history"])


def test_a_validation_has_a_record_in_which_nothing_was_sent(service: RunningService) -> None:
    answer = service.alter(change({"user": unique()}, {P: 5}), validate_only=True)
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["validate_only"], record["outcome"]) == (True, "validated")
    assert record["results"] == answer.json()["results"]
    assert "sent" not in [item["event"] for item in record["history"]]


def test_a_record_is_for_its_principal_and_for_auditors(service: RunningService) -> None:
    answer = service.alter(change({"user": unique()}, {P: 5}))
    location = answer.headers["Location"]
    for principal in ("alice", "auditor"):
        assert service.api(principal).get(location).status_code == 200
    for principal in ("bob", "mallory", "root"):
        refused = service.api(principal).get(location)
        assert (refused.status_code, refused.json()["code"]) == (404, "not-found")
    unknown = service.api("bob").get(f"/quotas/alterations/{json.loads(answer.text)['cluster_id']}")
    assert unknown.json()["detail"] == refused.json()["detail"]


@pytest.mark.parametrize(
    "alteration_id",
    [
        "0",
        "nonsense",
        "00000000-0000-0000-0000-000000000000",
        "01a1fd86-e424-79d5-8988-95fc8beb4b91",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "%00",
        "a%0Ab",
        "%F0%9F%98%80",
        "x" * 2000,
    ],
)
def test_an_alteration_that_there_is_not_is_404(
    service: RunningService, alteration_id: str
) -> None:
    for principal in ("alice", "auditor"):
        answer = service.api(principal).get(f"/quotas/alterations/{alteration_id}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
