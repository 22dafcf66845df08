"""Whom the service lets pass, over HTTP, is whom the broker lets pass under the same name."""

import time

import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.accounts import take_back
from tests.testkit.acl_cases import BOTH, CASES, ELSEWHERE, NEITHER
from tests.testkit.authorization import (
    DEADLINE_S,
    Verdict,
    broker_verdict,
    service_verdict,
)
from tests.testkit.service import RunningService, acl


@pytest.mark.parametrize("user", CASES)
def test_a_principal_may_what_the_broker_lets_it(
    kafka: LocalKafka, service: RunningService, user: str
) -> None:
    expected = CASES[user][1]
    assert broker_verdict(kafka, user) == expected
    assert service_verdict(service, user) == expected


@pytest.mark.parametrize(
    ("user", "verdict"),
    {
        "from-here": NEITHER,
        "from-elsewhere": BOTH,
        "not-from-here": BOTH,
        "not-from-elsewhere": NEITHER,
        "range-of-addresses": NEITHER,
    }.items(),
)
def test_the_address_that_counts_is_the_callers(
    kafka: LocalKafka, service: RunningService, user: str, verdict: Verdict
) -> None:
    assert broker_verdict(kafka, user, ELSEWHERE) == verdict
    assert service_verdict(service, user, ELSEWHERE) == verdict


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_header_does_not_change_the_callers_address(service: RunningService, header: str) -> None:
    value = f"for={ELSEWHERE}" if header == "Forwarded" else ELSEWHERE
    answer = service.api("from-elsewhere").get("/quotas", headers={header: value})
    assert answer.status_code == 403
    assert service.api("from-here").get("/quotas", headers={header: value}).status_code == 200


READS = [
    ("GET", "/quotas"),
    ("GET", "/quotas/capabilities"),
    ("GET", "/quotas/resolve?user=x"),
    ("POST", "/quotas/resolve"),
    ("GET", "/audit"),
]


@pytest.mark.parametrize(("method", "path"), READS)
@pytest.mark.parametrize("user", ["describe-configs", "alter-configs", "all-but-describe"])
def test_every_read_asks_for_the_same_right(
    service: RunningService, method: str, path: str, user: str
) -> None:
    body = {"identities": [{"user": "x"}]} if method == "POST" else None
    answer = service.api(user).request(method, path, json=body)
    assert answer.status_code == (200 if CASES[user][1].describe else 403), answer.text


def test_a_right_that_is_taken_away_ends_without_a_restart(
    kafka: LocalKafka, service: RunningService
) -> None:
    assert service_verdict(service, "revoked") == BOTH
    take_back(kafka, acl("revoked", "ALTER_CONFIGS"))
    deadline = time.monotonic() + DEADLINE_S
    while service_verdict(service, "revoked") != NEITHER:
        assert time.monotonic() < deadline, "the right outlived its ACL"
    assert service_verdict(service, "alter-configs") == BOTH
