"""``GET /audit``: how rows are found again, and who sees which."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.http.pagination import page_token, query_fingerprint
from tests.integration.http.service_calls import C, P, R, applied, audit, change, pages, post, rows
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService


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
    ]:
        with subtests.test(conditions=conditions):
            assert rows(service, **{"entity": user, **conditions}) == found


def test_pages_hold_each_row_once_and_new_rows_do_not_disturb(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for page_size in [1, 2, 4, 9, 10]:
        with subtests.test(page_size=page_size):
            team = unique()
            wanted: list[Any] = []
            for _ in range(3):
                service.alter(*(change({"user": f"{team}-{n}"}, {P: 5}) for n in range(3)))
            wanted = rows(service, entity=f"user^={team}")
            assert len(wanted) == 9
            listed, auditor = [], service.api("auditor")
            for page in pages(auditor, "/audit", entity=f"user^={team}", page_size=page_size):
                assert len(page["rows"]) <= page_size
                listed += page["rows"]
                service.alter(change({"user": f"{team}-more"}, {P: len(listed)}), wait="none")
            assert listed == wanted


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
    for position in [
        {"at": 1},
        ["2026-01-01T00:00:00+00:00", "no id", 0],
        ["0001-01-01T00:00:00+23:00", "0192d1f3-0000-7000-8000-000000000000", 0],
        ["2026-01-01T00:00:00+00:00", "0192d1f3-0000-7000-8000-000000000000", 2**31],
        ["2026-01-01T00:00:00+00:00", "0192d1f3-0000-7000-8000-000000000000", True],
        ["2026-01-01T00:00:00+00:00", 1, 0],
    ]:
        with subtests.test(position=position):
            names = ("entity", "actor", "since", "until", "outcome", "action")
            conditions = dict.fromkeys(names) | {"entity": (), "as": "User:auditor"}
            token = page_token(position, query_fingerprint("audit", conditions))
            answer = audit(service, "auditor", page_token=token)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad-page-token")
            valid = page_token(
                ["2026-01-01T00:00:00+00:00", "0192d1f3-0000-7000-8000-000000000000", 0],
                query_fingerprint("audit", conditions),
            )
            assert audit(service, "auditor", page_token=valid).status_code == 200


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
