"""``GET /audit``: what becomes a row, and what stands in it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.integration.http.service_calls import C, P, R, applied, change, post, rows
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

FIELDS = [
    "cluster_id", "alteration_id", "at", "principal", "authentication", "client_address", "action",
    "entity", "ops", "before", "after", "outcome", "reason", "request_id", "error",
]  # fmt: skip


def rejected(service: RunningService) -> float:
    lines = httpx.get(f"{service.url}/metrics", timeout=30).text.splitlines()
    name = 'request_rejected_total{reason="invalid-request"} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


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


def test_each_entity_of_a_request_is_a_row_in_request_order(service: RunningService) -> None:
    team = unique()
    names = [{"user": f"{team}-{number}"} for number in (3, 1, 2)]
    service.alter(*(change(name, {P: 5}) for name in names))
    listed = rows(service, entity=f"user^={team}")
    assert [row["entity"] for row in listed] == names
    assert len({(row["alteration_id"], row["at"]) for row in listed}) == 1


def test_rows_are_newest_first_and_those_of_one_entity_follow_each_other(
    service: RunningService,
) -> None:
    names = {"user": unique()}
    for value in (5, 6, 7):
        applied(service, names, {P: value})
    listed = rows(service, entity=f"user={names['user']}")
    assert [row["after"] for row in listed] == [{P: 7}, {P: 6}, {P: 5}]
    assert [row["before"] for row in listed] == [{P: 6}, {P: 5}, {}]
    assert [row["at"] for row in listed] == sorted((row["at"] for row in listed), reverse=True)


def test_a_validation_is_a_row(service: RunningService) -> None:
    names = {"user": unique()}
    service.alter(change(names, {P: 5}), validate_only=True)
    (row,) = rows(service, entity=f"user={names['user']}")
    assert (row["action"], row["outcome"]) == ("validate", "validated")
    assert (row["before"], row["after"]) == ({}, {P: 5})


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


def test_what_our_own_rules_refuse_is_counted_and_is_no_row(service: RunningService) -> None:
    names = {"user": unique()}
    before = rejected(service)
    service.alter(change(names, {P: 0}))
    service.alter(change(names, {P: 0}), validate_only=True)
    assert rejected(service) == before + 2
    good = {"user": unique()}
    service.alter(change(names, {P: 0}), change(good, {P: 5}), all_or_nothing=False)
    assert rows(service, entity=f"user={names['user']}") == []
    assert len(rows(service, entity=f"user={good['user']}")) == 1


def test_odd_names_are_stored_and_found(service: RunningService, raw: RawQuotas) -> None:
    odd = f"{unique()}\0\n'; drop table audit_event; -- \N{GRINNING FACE}%_"
    raw.store({"user": odd}, {P: float("nan")})
    applied(service, {"user": odd}, {P: None})
    for filter_text in (f"user={odd}", f"user^={odd[:20]}"):
        (row,) = rows(service, entity=filter_text)
        assert (row["entity"], row["before"]) == ({"user": odd}, {P: "NaN"})
