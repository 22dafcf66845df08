"""``GET /audit``: what becomes a row, how rows are found again, and who sees which."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from app.http.query_params import page_token, query_fingerprint
from tests.integration.http.service_calls import C, P, R, applied, audit, change, pages, post, rows
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService, new_address

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
    answer = service.api("mallory", new_address()).post("/quotas/alterations", json=body)
    assert answer.status_code == 403
    (row,) = denied_rows(service, answer)
    assert (row["principal"], row["outcome"]) == ("User:mallory", "refused")
    assert (row["entity"], row["ops"], row["reason"]) == (None, None, "let me in")
    assert row["denied"] == {"entities": 30, "first": entities[:20], "attempts": 1}
    assert row["error"]["kafka_error"] == "CLUSTER_AUTHORIZATION_FAILED"


def denied_rows(service: RunningService, answer: httpx.Response) -> list[dict[str, Any]]:
    listed = rows(service, actor="User:mallory", action="denied", page_size=100)
    return [row for row in listed if row["request_id"] == answer.headers["X-Request-Id"]]


LARGE = json.dumps({"alterations": [change({"user": "a"}, {P: 5})], "reason": "x" * 20_000})
NOTHING_READ: dict[str, tuple[str, str, str | None]] = {
    "quotas": ("GET", "/quotas", None),
    "resolve": ("GET", "/quotas/resolve?user=a", None),
    "capabilities": ("GET", "/quotas/capabilities", None),
    "no JSON": ("POST", "/quotas/alterations", "{"),
    "over 16 KiB": ("POST", "/quotas/alterations", LARGE),
}


@pytest.mark.parametrize(("method", "path", "body"), NOTHING_READ.values(), ids=NOTHING_READ)
def test_a_denied_request_of_which_nothing_is_read_is_a_row_without_an_entity(
    service: RunningService, method: str, path: str, body: str | None
) -> None:
    headers = {"Content-Type": "application/json"}
    api = service.api("mallory", new_address())
    answer = api.request(method, path, content=body, headers=headers)
    assert answer.status_code == 403
    (row,) = denied_rows(service, answer)
    assert (row["entity"], row["ops"]) == (None, None)
    assert row["denied"] == {"entities": None, "first": None, "attempts": 1}
    assert row["error"] == {
        "kafka_error": "CLUSTER_AUTHORIZATION_FAILED",
        "message": answer.json()["detail"],
    }


def test_rows_are_found_by_each_condition(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    names = {"user": unique(), "client-id": None}
    user = f"user={names['user']}"
    applied(service, names, {P: 5})
    post(service, "root", {"alterations": [change(names, {P: 6})], "validate_only": True})
    service.alter({**change(names, {P: 8}), "expected": {P: 9}})
    refused, validated, first = rows(service, entity=user)
    later = (datetime.fromisoformat(first["at"]) + timedelta(hours=2)).replace(tzinfo=None)
    whole_time = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59.999999999Z"}
    for conditions, found in [
        ({"actor": "User:alice"}, [refused, first]),
        ({"actor": "User:Alice"}, []),
        ({"action": "validate"}, [validated]),
        ({"action": "denied"}, []),
        ({"outcome": "refused"}, [refused]),
        ({"actor": "User:alice", "action": "alter", "outcome": "applied"}, [first]),
        ({"entity": [user, "client-id:default"]}, [refused, validated, first]),
        ({"entity": [user, "client-id:absent"]}, []),
        ({"until": first["at"]}, []),
        ({"since": f"{later.isoformat()}+02:00"}, [refused, validated, first]),
        (whole_time, [refused, validated, first]),
        ({"since": "2h"}, [refused, validated, first]),
        ({"since": "999999999d", "until": "0s"}, [refused, validated, first]),
        ({"until": "1h"}, []),
    ]:
        with subtests.test(conditions=conditions):
            assert rows(service, **{"entity": user, **conditions}) == found
    alice, ago = service.api("auditor"), {"entity": user, "since": "1d", "page_size": "1"}
    assert [page["rows"] for page in pages(alice, "/audit", **ago)] == [
        [refused],
        [validated],
        [first],
    ]


def test_a_token_of_another_query_or_another_caller_is_refused(service: RunningService) -> None:
    names = {"user": unique()}
    for value in (5, 6):
        applied(service, names, {P: value})
    query: dict[str, Any] = {"entity": f"user={names['user']}", "page_size": 1}
    token = audit(service, **query).json()["next_page_token"]
    assert audit(service, **query, page_token=token).status_code == 200
    assert audit(service, **{**query, "page_size": 2}, page_token=token).status_code == 200
    others: list[tuple[str, dict[str, Any]]] = [
        ("auditor", {**query, "entity": "user=other"}),
        ("auditor", {**query, "outcome": "applied"}),
        ("auditor", {**query, "since": "2026-01-01T00:00:00Z"}),
        ("alice", query),
    ]
    for principal, other in others:
        answer = audit(service, principal, **other, page_token=token)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-page-token")


def test_a_token_with_a_forged_position_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    names = ("entity", "actor", "since", "until", "outcome", "action")
    conditions = dict.fromkeys(names) | {"entity": (), "as": "User:auditor"}
    fingerprint = query_fingerprint("audit", conditions)
    at, alteration_id = "2026-01-01T00:00:00+00:00", "0192d1f3-0000-7000-8000-000000000000"
    for position in [
        {"at": 1},
        [at, "no id", 0],
        ["0001-01-01T00:00:00+23:00", alteration_id, 0],
        [at, alteration_id, 2**31],
        [at, alteration_id, True],
        [at, 1, 0],
    ]:
        with subtests.test(position=position):
            answer = audit(service, page_token=page_token(position, fingerprint))
            assert (answer.status_code, answer.json()["code"]) == (400, "bad-page-token")
    valid = page_token([at, alteration_id, 0], fingerprint)
    assert audit(service, page_token=valid).status_code == 200


def test_the_default_page_has_a_hundred_rows(service: RunningService) -> None:
    team = unique()
    service.alter(*(change({"user": f"{team}-{number}"}, {P: 5}) for number in range(101)))
    found = pages(service.api("auditor"), "/audit", entity=f"user^={team}")
    assert [len(page["rows"]) for page in found] == [100, 1]


def test_one_sees_ones_own_rows_and_an_auditor_all(service: RunningService) -> None:
    names = {"user": unique()}
    entity = f"user={names['user']}"
    applied(service, names, {P: 5})
    post(service, "root", {"alterations": [change(names, {P: 6})]})
    seen = {
        principal: [row["principal"] for row in rows(service, principal, entity=entity)]
        for principal in ("alice", "root", "bob", "auditor")
    }
    assert seen == {
        "alice": ["User:alice"],
        "root": ["User:root"],
        "bob": [],
        "auditor": ["User:root", "User:alice"],
    }
    assert len(rows(service, "alice", entity=entity, actor="User:alice")) == 1


def test_another_actor_needs_the_audit_permission(service: RunningService) -> None:
    for principal in ("alice", "bob", "root"):
        answer = audit(service, principal, actor="User:mallory")
        assert (answer.status_code, answer.json()["code"]) == (403, "audit-permission-needed")


def test_without_describe_permission_nothing_is_seen(service: RunningService) -> None:
    assert audit(service, "mallory").status_code == 403
    assert audit(service, "mallory", actor="User:mallory").status_code == 403
    assert service.api("auditor").get("/quotas").status_code == 403


def test_a_row_reads_as_json_whatever_number_was_sent(service: RunningService) -> None:
    names = {"user": unique()}
    applied(service, names, {P: 2**63, R: 0.1, C: 2**53})
    answer = audit(service, entity=f"user={names['user']}")
    row = json.loads(answer.text, parse_constant=pytest.fail)["rows"][0]
    assert row["after"] == {P: 9223372036854775807, R: 0.1, C: 2**53}
    assert [op["value"] for op in row["ops"]] == [9223372036854775807, 0.1, 2**53]


def test_what_cannot_be_there_is_not_found_and_is_no_fault(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    long = "x" * 30_000
    for path in (
        *(f"/quotas?filter={text}" for text in ("user=%00", "user=", f"user={long}", "user^=%00")),
        *("/quotas?has_key=%00", "/quotas?has_key="),
        *("/audit?entity=user=%00", f"/audit?entity=user={long}"),
        *(f"/audit?actor={text}" for text in ("%00", "User:%00", "", "%F0%9F%98%80")),
        *("/audit?until=0001-01-01T00:00:00Z", "/audit?since=9999-12-31T23:59:59.999Z"),
    ):
        with subtests.test(path=path[:40]):
            answer = service.api("auditor" if "audit" in path else "bob").get(path)
            assert answer.status_code == 200, answer.text
            assert answer.json().get("rows", answer.json().get("quotas")) == []
