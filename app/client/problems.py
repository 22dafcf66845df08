"""What the service refuses, in words: its detail, every violation and where it is, what to do."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.client.entities import show_value
from app.client.errors import NOT_AUTHORIZED, REFUSED, UNKNOWN_OUTCOME, UNREACHABLE, ClientError
from app.domain.entities import visible

Locate = Callable[[str], str | None]
"""From a JSON pointer of the request to what the user wrote, or null."""

_UNAUTHORIZED: Final = (401, 403)
_SERVER_ERROR: Final = 500

_NO_OUTCOME_YET: Final = ("outcome-not-recorded", "idempotency-key-running")

_LISTED: Final = ("invalid-request", "unreadable-request")
"""Of these the detail says only that the violations are listed."""

_MAX_VIOLATIONS: Final = 20

_NEXT: Final[Mapping[str, str]] = {
    "unauthenticated": "Give a credential: --token-file, --user or --cert, or a profile.",
    "invalid-token": "Check --token-file: the token is unknown here, or has expired.",
    "cluster-authorization-failed": (
        "Ask who runs the cluster for an ACL on the cluster: DescribeConfigs to describe, resolve "
        "and plan, AlterConfigs to alter and apply."
    ),
    "invalid-request": "Nothing was changed: correct what is listed.",
    "nothing-to-revert": "Nothing has to be done.",
    "no-alterations": "Say what to change with --add or --delete.",
    "expectation-failed": "Look at the present values, and decide again.",
    "plan-outdated": "The cluster has moved. Run `plan` again, look at it, and apply that one.",
    "plan-expired": "Run `plan` again, look at it, and apply that one.",
    "owner-conflict": "Leave those keys out of the file, or take them over with --force.",
    "entity-busy": "Another alteration of the same entity is in progress: try again.",
    "idempotency-key-reused": "The key stands for another alteration: leave it out, or choose one.",
    "no-such-cluster": "Take one of those that `clusters` lists.",
    "not-found": "Check the id. Only its principal and auditors see an alteration.",
    "rate-limited": "Try again later, and put several entities into one file for `apply`.",
    "throttled-by-broker": "Try again later.",
    "cluster-unreachable": "Nothing was changed: try again later.",
    "audit-log-unavailable": "Nothing was changed: try again later. Reading goes on.",
    "not-sent": "Nothing was changed: try again later.",
    "outcome-not-recorded": (
        "The cluster has answered; the audit record is still being written: ask Location for it."
    ),
    "outcome-superseded": "Look at the present values, and decide again, with another key.",
    "outcome-unknown": "Ask Location what became of it; do not repeat it with another key.",
}

_BY_RETRY: Final[Mapping[str, str]] = {
    "safe": "Nothing was changed: it is safe to try again.",
    "same-key-only": "Repeat it with the same --idempotency-key only.",
}


class ServiceError(ClientError):
    """The service answered with a problem document, or with an error that is none.

    ``location`` says where the truth about an alteration will be, ``locate`` what the user wrote
    for a pointer; both may be null.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], location: str | None) -> None:
        self.status = status
        self.problem = problem
        self.location = location
        self.locate: Locate | None = None
        super().__init__(str(problem.get("detail") or problem.get("title") or f"status {status}"))

    @property
    def code(self) -> str:  # type: ignore[override]
        """The problem's code; empty where there is none."""
        return str(self.problem.get("code") or "")

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """3 not authorized, 4 unknown outcome, 5 the service cannot, 1 refused."""
        if self.status in _UNAUTHORIZED:
            return NOT_AUTHORIZED
        if self.problem.get("sent_to_cluster") == "maybe" or self.code in _NO_OUTCOME_YET:
            return UNKNOWN_OUTCOME
        if self.status == 501:
            return REFUSED
        return UNREACHABLE if self.status >= _SERVER_ERROR else REFUSED


def explain(error: ServiceError) -> list[str]:
    """Return the lines that tell a person what is wrong and what to do."""
    problem = error.problem
    name = f", {error.code}" if error.code else ""
    lines = [
        f"{problem.get('title') or 'The service answers with an error'} ({error.status}{name})"
    ]
    violations = _violations(problem, error.locate)
    is_listed = violations and error.code in _LISTED
    if problem.get("detail") not in (None, "", problem.get("title")) and not is_listed:
        lines.append(f"  {problem['detail']}")
    lines += violations
    kafka_error = problem.get("kafka_error")
    if kafka_error:
        lines.append(f"  Kafka calls it {kafka_error}.")
    advice = _NEXT.get(error.code) or _BY_RETRY.get(str(problem.get("retry")))
    if advice:
        lines.append(f"  {advice}")
    if error.location:
        lines.append(f"  Location: {error.location}")
    if problem.get("request_id"):
        lines.append(f"  Request id: {problem['request_id']}")
    return [visible(line) for line in lines]


def _violations(problem: Mapping[str, Any], locate: Locate | None) -> list[str]:
    listed = problem.get("errors")
    errors = (
        [error for error in listed if isinstance(error, dict)] if isinstance(listed, list) else []
    )
    # What is wrong with the whole request is its detail already.
    errors = [error for error in errors if error.get("detail") != problem.get("detail")]
    lines = [_violation(violation, locate) for violation in errors[:_MAX_VIOLATIONS]]
    left = len(errors) - _MAX_VIOLATIONS
    if left <= 0:
        return lines
    at_least = "at least " if errors[-1].get("code") == "more" else ""
    return [*lines, f"  and {at_least}{left} more"]


def _violation(violation: Mapping[str, Any], locate: Locate | None) -> str:
    pointer = str(violation.get("pointer") or "")
    written = locate(pointer) if locate is not None else None
    where = f"{written} ({pointer})" if written else pointer
    detail = violation.get("detail") or violation.get("code")
    return f"  {where}: {detail}{_current(violation.get('values'))}"


def _current(values: Any) -> str:
    current = values.get("current") if isinstance(values, Mapping) else None
    if not isinstance(current, Mapping):
        return ""
    values_text = ", ".join(f"{key}={show_value(value)}" for key, value in sorted(current.items()))
    return f" Now: {values_text or 'no value'}."
