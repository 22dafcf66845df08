"""Paths that lead nowhere."""

import httpx
import pytest

from tests.testkit.http import exchange, head, problem_of
from tests.testkit.service import RunningService

PATHS = [
    "/quota",
    "/quotas/",
    "//quotas",
    "/quotas//alterations",
    "/quotas/../audit",
    "/quotas/%2e%2e/audit",
    "/quotas%252Falterations",
    "/QUOTAS",
    "/quotas;strict=true",
    "/quotas/alterations/",
    "/quotas/nothing",
    "/audit/1",
    "/problems",
    "/ui/nothing.js",
    "/ui/..%2fpages.py",
    "/problems/no-such-problem",
    "/problems/%2e%2e%2fetc%2fpasswd",
    "/docs/../app",
    "/.env",
    "/%00",
    "/%FF",
    "/quotas/%ED%A0%80",
]


def test_a_path_that_leads_nowhere_is_not_found(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for path in PATHS:
        with subtests.test(path=path):
            problem = problem_of(raw_get(service, path), 404)
            assert problem["code"] in {"not-found", "no-such-entity"}
            assert problem["sent_to_cluster"] == "no"


IDS = [
    "x",
    "0",
    "-",
    "%00",
    "%FF",
    "%2e%2e",
    "..%2F..",
    "00000000-0000-0000-0000-000000000000",
    "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
    "01920000-0000-7000-8000-000000000000",
    "ffffffff-ffff-7fff-bfff-ffffffffffff",
    "01920000-0000-7000-8000-00000000000A",
    "{01920000-0000-7000-8000-000000000000}",
    "01920000000070008000000000000000",
    "' or 1=1 --",
    "x" * 10_000,
]


def test_an_alteration_that_never_was_is_not_found(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for alteration_id in IDS:
        with subtests.test(alteration_id=alteration_id):
            path = f"/quotas/alterations/{alteration_id}"
            problem = problem_of(raw_get(service, path), 404)
            assert (problem["code"], problem["sent_to_cluster"]) == ("not-found", "no")


def raw_get(service: RunningService, path: str) -> httpx.Response:
    return exchange(service, head(f"GET {path.replace(' ', '%20')} HTTP/1.1"))
