"""Rights that are taken away while replicas are asked, and how old the ACLs are that they go by."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from app.localdev.kafka import LocalKafka
from tests.testkit.acl_changes import allow, take_back
from tests.testkit.authorization import DecisionOf, validate_over_http
from tests.testkit.service import RunningService, acl, running_service

OLDEST_ACLS_S: Final = 10.0
"""What an alteration may rest on, in seconds."""

DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1
_ROUNDING_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Attempt:
    """An alteration that was asked for after the broker had shown the change."""

    begun_at: float
    answer: httpx.Response


@contextmanager
def replicas(service: RunningService, folder: Path) -> Iterator[tuple[RunningService, ...]]:
    """Run a second process on the broker and the database of the first."""
    environ = service.environ
    with running_service(
        folder,
        environ["QUOTAS_KAFKA_BOOTSTRAP_SERVERS"],
        environ["QUOTAS_DATABASE_URL"],
        tokens_file=environ["QUOTAS_TOKENS_FILE"],
    ) as second:
        yield service, second


def revoke(
    kafka: LocalKafka,
    services: Sequence[RunningService],
    user: str,
    decision_of: DecisionOf,
) -> int:
    """Let the user alter, take that away, ask every replica until it refuses; judge what passed.

    Whatever passed afterwards rested on ACLs that were read before, at most 10 s ago: so nothing
    passes later than 10 s after the change, however slow this machine is.

    Returns:
        How many alterations passed after the broker had shown the change.
    """
    right = acl(user, "ALTER_CONFIGS")
    allow(kafka, right)
    for service in services:
        _until(service, user, 200)
    take_back(kafka, right)
    seen_at = time.monotonic()
    passed = [one for service in services for one in _until(service, user, 403)]
    for one in passed:
        age_s = decision_of(one.answer)["acl_age_s"]
        assert age_s <= OLDEST_ACLS_S
        assert one.begun_at - age_s <= seen_at + _ROUNDING_S, "it rested on ACLs without the right"
    return len(passed)


def _until(service: RunningService, user: str, status: int) -> list[Attempt]:
    """Ask until that is the answer; return what was answered before."""
    deadline = time.monotonic() + DEADLINE_S
    others: list[Attempt] = []
    while True:
        begun_at = time.monotonic()
        answer = validate_over_http(service, user)
        if answer.status_code == status:
            return others
        assert answer.status_code in {200, 403}, answer.text
        assert begun_at < deadline, "the change is not followed"
        others.append(Attempt(begun_at, answer))
        time.sleep(_POLL_S)
