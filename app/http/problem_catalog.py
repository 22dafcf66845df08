"""Every problem that this service answers: its status here, its words in ``problems.yaml``."""

from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from itertools import chain
from typing import Final, NamedTuple

import yaml


class Words(NamedTuple):
    """What a page says of a problem.

    Attributes:
        title: A short name for it, the same each time.
        cause: What has happened, and what has not.
        action: What the caller does.
        operator: What those do who run the service; empty where it is the caller's to mend.
    """

    title: str
    cause: str
    action: str
    operator: str = ""


class Problem(NamedTuple):
    """The status of a problem's answers, and its page."""

    status: HTTPStatus
    words: Words


_CODES: Final[Mapping[HTTPStatus, tuple[str, ...]]] = {
    HTTPStatus.BAD_REQUEST: (
        "ambiguous-length",
        "bad-idempotency-key",
        "bad-page-token",
        "bad-supersede",
        "incomplete-body",
        "malformed-http",
        "preflight-refused",
        "several-credentials",
        "unencrypted-password",
        "unreadable-request",
        "untrusted-identity-header",
    ),
    HTTPStatus.UNAUTHORIZED: (
        "invalid-certificate",
        "invalid-token",
        "login-failed",
        "unauthenticated",
    ),
    HTTPStatus.FORBIDDEN: (
        "audit-permission-needed",
        "cluster-authorization-failed",
        "no-authorizer",
        "policy-violation",
    ),
    HTTPStatus.NOT_FOUND: ("no-run", "no-such-cluster", "no-such-entity", "not-found"),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method-not-allowed",),
    HTTPStatus.NOT_ACCEPTABLE: ("not-acceptable",),
    HTTPStatus.REQUEST_TIMEOUT: ("request-timeout",),
    HTTPStatus.CONFLICT: (
        "before-unknown",
        "entity-busy",
        "idempotency-key-running",
        "outcome-superseded",
        "owner-conflict",
    ),
    HTTPStatus.GONE: ("plan-expired",),
    HTTPStatus.PRECONDITION_FAILED: ("expectation-failed", "plan-outdated"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("body-too-large",),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ("unsupported-media-type",),
    HTTPStatus.UNPROCESSABLE_ENTITY: (
        "cannot-be-restored",
        "idempotency-key-reused",
        "invalid-request",
        "no-alterations",
        "not-concluded",
        "nothing-to-revert",
        "refused-by-broker",
        "too-large",
        "too-many-changes",
    ),
    HTTPStatus.TOO_MANY_REQUESTS: (
        "rate-limited",
        "throttled-by-broker",
        "too-many-plans",
        "too-many-requests",
    ),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: ("headers-too-large",),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("callback-failed", "internal-error"),
    HTTPStatus.NOT_IMPLEMENTED: ("unsupported-broker-version", "unsupported-transfer-coding"),
    HTTPStatus.BAD_GATEWAY: (
        "broker-answer-too-large",
        "broker-answer-unreadable",
        "broker-error",
        "service-account-not-authorized",
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "acl-source-unreachable",
        "audit-log-unavailable",
        "cluster-unreachable",
        "identity-provider-unavailable",
        "not-sent",
        "outcome-not-recorded",
        "query-too-slow",
        "stopping",
        "too-many-connections",
        "too-many-sessions",
        "too-many-streams",
        "wrong-cluster",
    ),
    HTTPStatus.GATEWAY_TIMEOUT: ("outcome-unknown",),
}


def read_words(text: str | bytes) -> Mapping[str, Mapping[str, Words]]:
    """Read what is said of each problem, by topic and code.

    Raises:
        ValueError: A code without words, or words of no code, or twice; the text names them.
        TypeError: A member too many or too few.
    """
    words = {
        topic: {code: Words(**members) for code, members in problems.items()}
        for topic, problems in yaml.safe_load(text).items()
    }
    worded, codes = Counter(chain(*words.values())), Counter(chain(*_CODES.values()))
    if worded != codes:
        unlike = sorted({*(worded - codes), *(codes - worded)})
        message = f"problems.yaml has not the words of each code once: {', '.join(unlike)}"
        raise ValueError(message)
    return words


WORDS: Final = read_words((files("app.http") / "problems.yaml").read_bytes())
"""By topic and code."""

_STATUS_OF: Final = {code: status for status, codes in _CODES.items() for code in codes}

PROBLEMS: Final[Mapping[str, Problem]] = {
    code: Problem(_STATUS_OF[code], words)
    for problems in WORDS.values()
    for code, words in problems.items()
}
"""By code."""
