"""Queries that nothing can be done with."""

import pytest

from tests.testkit.http import assert_refused, problem_of
from tests.testkit.kafka import unique
from tests.testkit.service import RunningService

QUERIES: dict[str, tuple[str, int, str]] = {
    "an unknown parameter": ("/quotas?user=alice", 400, "user unknown-parameter"),
    "another case": ("/quotas?Strict=true", 400, "Strict unknown-parameter"),
    "an underscore for a hyphen": (
        "/quotas/resolve?user=a&client_id=b",
        400,
        "client_id unknown-parameter",
    ),
    "an empty name": ("/quotas?=x", 400, " unknown-parameter"),
    "a parameter of no route": ("/quotas/capabilities?x", 400, "x unknown-parameter"),
    "a flag twice": ("/quotas?strict=true&strict=true", 400, "strict repeated-parameter"),
    "a user twice": ("/quotas/resolve?user=a&user=a", 400, "user repeated-parameter"),
    "a user twice, once escaped": (
        "/quotas/resolve?user=a&%75ser=b",
        400,
        "user repeated-parameter",
    ),
    "a flag that is none": ("/quotas?strict=yes", 400, "strict wrong-type"),
    "a flag in another case": ("/quotas?strict=True", 400, "strict wrong-type"),
    "an empty flag": ("/quotas?strict=", 400, "strict wrong-type"),
    "a flag without a value": ("/quotas?strict", 400, "strict wrong-type"),
    "a number that is none": ("/quotas?page_size=ten", 400, "page_size wrong-type"),
    "a number with a blank": ("/quotas?page_size=+10", 400, "page_size wrong-type"),
    "a fraction": ("/quotas?max_age_ms=1.5", 400, "max_age_ms wrong-type"),
    "digits of another script": ("/quotas?page_size=%D9%A1", 400, "page_size wrong-type"),
    "no entity on a page": ("/quotas?page_size=0", 422, "page_size out-of-range"),
    "a negative page": ("/quotas?page_size=-1", 422, "page_size out-of-range"),
    "a page too large": ("/quotas?page_size=10001", 422, "page_size out-of-range"),
    "a huge page": ("/quotas?page_size=1000000000", 422, "page_size out-of-range"),
    "5,000 digits": (f"/audit?page_size={'9' * 5000}", 422, "page_size out-of-range"),
    "a negative age": ("/quotas/resolve?user=a&max_age_ms=-1", 422, "max_age_ms out-of-range"),
    "half an escape": ("/quotas?filter=user%3", 400, "filter bad-percent-encoding"),
    "no escape": ("/quotas?filter=user=%zz", 400, "filter bad-percent-encoding"),
    "Latin-1": ("/quotas?filter=user=%E9", 400, "filter bad-percent-encoding"),
    "a surrogate": ("/quotas?filter=user=%ED%A0%80", 400, "filter bad-percent-encoding"),
    "NUL in two bytes": ("/quotas?filter=user=%C0%80", 400, "filter bad-percent-encoding"),
    "a bad escape in a name": ("/quotas?%FF=1", 400, "%FF bad-percent-encoding"),
    "an empty filter": ("/quotas?filter=", 400, "filter unreadable-filter"),
    "an unknown word": ("/quotas?filter=user:all", 400, "filter unreadable-filter"),
    "an unknown mark": ("/quotas?filter=user^team", 400, "filter unreadable-filter"),
    "nobody": ("/quotas/resolve", 422, "user identity-without-user"),
    "a client-id alone": ("/quotas/resolve?client-id=b", 422, "user identity-without-user"),
    "an address and a user": (
        "/quotas/resolve?ip=192.0.2.1&user=a",
        422,
        "user invalid-identity-combination",
    ),
    "a host name": ("/quotas/resolve?ip=localhost", 422, "ip not-an-ip-address"),
    "an empty address": ("/quotas/resolve?ip=", 422, "ip not-an-ip-address"),
    "a range": ("/quotas/resolve?ip=10.0.0.0/8", 422, "ip not-an-ip-address"),
    "a date without a time": ("/audit?since=2026-11-21", 400, "since wrong-type"),
    "a day that is none": ("/audit?until=2026-02-30T00:00:00Z", 400, "until wrong-type"),
    "a local time": ("/audit?since=2026-11-21T01:02:03", 400, "since wrong-type"),
    "before the year 1": ("/audit?until=0001-01-01T00:00:00%2B23:59", 400, "until wrong-type"),
    "after the year 9999": ("/audit?since=9999-12-31T23:59:59-23:59", 400, "since wrong-type"),
    "an unknown outcome": ("/audit?outcome=done", 422, "outcome unknown-word"),
    "an unknown action": ("/audit?action=delete", 422, "action unknown-word"),
    "a filter of the log": ("/audit?entity=user:all", 400, "entity unreadable-filter"),
    "an unknown type in the log": ("/audit?entity=group=a", 422, "entity unknown-entity-type"),
    "an unknown readiness": ("/readyz?for=read", 422, "for unknown-word"),
    "everything at once": (
        "/quotas?x=1&strict=2&strict=3&page_size=a&filter=%FF",
        400,
        (
            "x unknown-parameter, strict repeated-parameter, strict wrong-type, "
            "page_size wrong-type, filter bad-percent-encoding"
        ),
    ),
    "a filter and all the rest": (
        "/quotas?filter=user:all&filter=:&strict=2&page_size=0",
        400,
        "filter unreadable-filter, strict wrong-type",
    ),
    "a filter before a rule": (
        "/audit?entity=user:all&page_size=0",
        400,
        "entity unreadable-filter",
    ),
    "every rule": (
        "/quotas?filter=group=a&filter=ip&filter=user&page_size=0",
        422,
        "page_size out-of-range, filter unknown-entity-type, filter invalid-filter-combination",
    ),
}
"""A path, the status, and each violation as its field and its code."""


def test_a_query_that_cannot_be_answered_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for name, (path, status, violations) in QUERIES.items():
        with subtests.test(name=name):
            answer = service.api("auditor" if "audit" in path else "bob").get(path)
            pairs = [violation.rpartition(" ") for violation in violations.split(", ")]
            assert_refused(answer, status, {(field, code) for field, _, code in pairs})


def test_a_page_token_that_nobody_made_is_refused(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for path in ["/quotas", "/audit"]:
        for token in ["", "x", "AAAA", "e30", "e30.e30", "%00", "..", "-1", "0" * 1000]:
            with subtests.test(path=path, token=token):
                problem = problem_of(service.api("bob").get(f"{path}?page_token={token}"), 400)
                assert problem["code"] == "bad-page-token"


def test_a_page_token_that_was_changed_is_refused(service: RunningService) -> None:
    token = two_denied_attempts(service)
    for position in range(0, len(token), 7):
        other = "A" if token[position] != "A" else "B"
        forged = token[:position] + other + token[position + 1 :]
        answer = service.api("bob").get("/audit", params={"page_size": 1, "page_token": forged})
        assert problem_of(answer, 400)["code"] == "bad-page-token"


def test_a_page_token_is_good_for_its_principal_and_query_alone(service: RunningService) -> None:
    token = two_denied_attempts(service)
    page = {"page_size": 1, "page_token": token}
    assert service.api("bob").get("/audit", params=page).status_code == 200
    for other in (
        service.api("alice").get("/audit", params=page),
        service.api("bob").get("/audit", params={**page, "action": "denied"}),
        service.api("bob").get("/quotas", params=page),
    ):
        assert problem_of(other, 400)["code"] == "bad-page-token"


def two_denied_attempts(service: RunningService) -> str:
    """Leave rows of bob's in the log and return the token of his second page."""
    op = {"key": "producer_byte_rate", "value": 1}
    for _ in range(2):
        alterations = [{"entity": {"user": unique("bad")}, "ops": [op]}]
        bob = service.api_from_new_address("bob")
        denied = bob.post("/quotas/alterations", json={"alterations": alterations})
        assert denied.status_code == 403
    answer = service.api("bob").get("/audit", params={"page_size": 1}).json()
    return str(answer["next_page_token"])


NOTHING_FOUND = [
    "/quotas?filter=user=%00",
    "/quotas?filter=user=",
    f"/quotas?filter=user={'x' * 30_000}",
    "/quotas?filter=user^=%00",
    "/quotas?has_key=%00",
    "/quotas?has_key=",
    "/audit?entity=user=%00",
    f"/audit?entity=user={'x' * 30_000}",
    "/audit?actor=%00",
    "/audit?actor=User:%00",
    "/audit?actor=",
    "/audit?actor=%F0%9F%98%80",
    "/audit?until=0001-01-01T00:00:00Z",
    "/audit?since=9999-12-31T23:59:59.999Z",
]


def test_what_cannot_be_there_is_not_found_and_is_no_fault(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for path in NOTHING_FOUND:
        with subtests.test(path=path):
            answer = service.api("auditor" if "audit" in path else "bob").get(path)
            assert answer.status_code == 200, answer.text
            document = answer.json()
            assert document.get("rows", document.get("quotas")) == []
