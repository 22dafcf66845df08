"""``GET /audit``: what becomes a row, and what stands in it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.integration.http.service_calls import C, P, R, applied, change, post, rows
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService

FIELDS = [
    "cluster_id", "alteration_id", "at", "principal", "authentication", "client_address", "action",
    "entity", "ops", "before", "after", "outcome", "reason", "request_id", "error",
]  # fmt: skip


def test_an_alteration_is_a_row_with_every_field(service: RunningService) -> None:
    names = {"user": unique(), "client-id": None}
    applied(service, names, {P: 5})
    body = {"alterations": [change(names, {P: 6.0, C: None, R: 0.5})], "reason": "INC-2"}
    answer = post(service, "alice", body, **{"X-Request-Id": "audit-1"})
    row = rows(service, entity=f"user={names['user']}")[0]
    assert list(row) == FIELDS
    for name in ("cluster_id", "alteration_id"):
        assert row[name] == answer.json()[name]
    assert (row["principal"], row["client_address"]) == ("User:alice", "127.0.0.1")
    assert (row["action"], row["outcome"], row["error"]) == ("alter", "applied", None)
    assert row["entity"] == names
    assert row["ops"] == [
        {"key": P, "value": 6},
        {"key": C, "remove": True},
        {"key": R, "value": 0.5},
    ]
    assert (row["before"], row["after"]) == ({P: 5}, {P: 6, R: 0.5})
    assert (row["reason"], row["request_id"]) == ("INC-2", "audit-1")
    assert "alice" not in row["authentication"]
    at = datetime.fromisoformat(row["at"])
    assert timedelta(0) <= datetime.now(UTC) - at < timedelta(minutes=1)


def test_a_failed_expectation_is_a_row_for_each_entity(service: RunningService) -> None:
    team = unique()
    service.alter(
        {**change({"user": f"{team}-1"}, {P: 5}), "expected": {P: 4}},
        change({"user": f"{team}-2"}, {P: 5}),
    )
    listed = rows(service, entity=f"user^={team}")
    assert [(row["action"], row["outcome"]) for row in listed] == [
        ("alter", "refused"),
        ("alter", "not_applied"),
    ]
    assert [row["before"] == row["after"] == {} for row in listed] == [True, True]
    assert P in listed[0]["error"]["message"]
    assert listed[0]["error"]["kafka_error"] is None


def test_a_denied_alteration_is_a_row_with_what_was_asked_for(service: RunningService) -> None:
    entities = [{"user": unique()} for _ in range(30)]
    body = {"alterations": [change(each, {P: 5}) for each in entities], "reason": "let me in"}
    answer = service.api_from_new_address("mallory").post("/quotas/alterations", json=body)
    assert answer.status_code == 403
    (row,) = denied_rows(service, answer)
    assert (row["principal"], row["outcome"]) == ("User:mallory", "refused")
    assert (row["entity"], row["ops"], row["reason"]) == (None, None, "let me in")
    assert row["denied"] == {"entities": 30, "first": entities[:20], "attempts": 1}
    assert row["error"]["kafka_error"] == "CLUSTER_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("path", ["/quotas", "/quotas/resolve?user=a", "/quotas/capabilities"])
def test_a_denied_read_is_a_row_without_an_entity(service: RunningService, path: str) -> None:
    answer = service.api_from_new_address("mallory").get(path)
    assert answer.status_code == 403
    (row,) = denied_rows(service, answer)
    assert (row["entity"], row["ops"]) == (None, None)
    assert row["denied"] == {"entities": None, "first": None, "attempts": 1}
    assert row["error"] == {
        "kafka_error": "CLUSTER_AUTHORIZATION_FAILED",
        "message": answer.json()["detail"],
    }


def test_a_denied_alteration_over_16_kib_is_answered_before_it_is_read(
    service: RunningService,
) -> None:
    body = {"alterations": [change({"user": unique()}, {P: 5})], "reason": "x" * 20_000}
    answer = service.api_from_new_address("mallory").post("/quotas/alterations", json=body)
    assert answer.status_code == 403
    (row,) = denied_rows(service, answer)
    assert row["denied"] == {"entities": None, "first": None, "attempts": 1}


def denied_rows(service: RunningService, answer: httpx.Response) -> list[dict[str, Any]]:
    listed = rows(service, actor="User:mallory", action="denied", page_size=100)
    return [row for row in listed if row["request_id"] == answer.headers["X-Request-Id"]]


def test_a_denied_body_that_cannot_be_read_is_a_row_all_the_same(service: RunningService) -> None:
    answer = service.api_from_new_address("mallory").post(
        "/quotas/alterations", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 403
    (row,) = denied_rows(service, answer)
    assert row["denied"] == {"entities": None, "first": None, "attempts": 1}
