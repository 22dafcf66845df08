"""Problem documents, checked as a whole wherever one is answered."""

from typing import Any, Final

import httpx

MEMBERS: Final = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "request_id",
    "kafka_error",
    "sent_to_cluster",
    "retry",
    "errors",
}

Places = set[tuple[str, str]]
"""Pointer (or parameter) and code of each violation."""


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Return the problem document of an answer that has this status.

    Raises:
        AssertionError: It is not such an answer, or the document lacks something.
    """
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem.keys() >= MEMBERS
    assert problem["type"] == f"/problems/{problem['code']}"
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in answer.text
    return problem


def places_of(problem: dict[str, Any]) -> Places:
    """Return where the violations are; each says something."""
    assert all(one["detail"] for one in problem["errors"])
    return {(one["pointer"], one["code"]) for one in problem["errors"]}


def assert_refused(answer: httpx.Response, status: int, places: Places) -> dict[str, Any]:
    """Check that these and no other violations are told and that nothing was sent."""
    problem = problem_of(answer, status)
    assert places_of(problem) == places
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
    return problem
