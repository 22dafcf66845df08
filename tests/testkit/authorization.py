"""Verdicts on principals' rights, from broker and service; sets of ACLs, and revoked rights."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psycopg

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow, take_back
from tests.testkit.class_archive import shared_classes
from tests.testkit.history.events import NO_LINGER
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import EXACT, RawQuotas, setting
from tests.testkit.service import RunningService, acl, running_service, write_tokens

HERE: Final = "127.0.0.1"
NOBODY: Final = "nobody-has-this-name"
ANONYMOUS: Final = "ANONYMOUS"
"""Nobody's name but that of the callers of a listener that asks for none."""

PASSWORD: Final = "secret"
_KAFKA_CODES: Final = {0: True, 31: False, -1: False}
"""-1 is what a caller sees whose authorizer throws."""

_STATUSES: Final = {200: True, 403: False}


DecisionOf = Callable[[httpx.Response], dict[str, Any]]
"""From an answer to the decision that the audit log keeps of its request."""


class Verdict(NamedTuple):
    """What a principal may do."""

    describe: bool
    alter: bool


BOTH, NEITHER = Verdict(True, True), Verdict(False, False)
READER, WRITER = Verdict(True, False), Verdict(False, True)
ELSEWHERE = "127.0.0.6"

Acl = tuple[str, ...]
"""Operation, permission and host, the latter two ALLOW and ``*`` by default."""

CASES: dict[str, tuple[list[Acl], Verdict]] = {
    "nothing": ([], NEITHER),
    "describe-configs": ([("DESCRIBE_CONFIGS",)], READER),
    "alter-configs": ([("ALTER_CONFIGS",)], BOTH),
    "ALTER-CONFIGS": ([], NEITHER),
    "plain-describe": ([("DESCRIBE",)], NEITHER),
    "plain-alter": ([("ALTER",)], NEITHER),
    "cluster-action": ([("CLUSTER_ACTION",)], NEITHER),
    "all": ([("ALL",)], BOTH),
    "all-but-alter": ([("ALL",), ("ALTER_CONFIGS", "DENY")], READER),
    "all-but-describe": ([("ALL",), ("DESCRIBE_CONFIGS", "DENY")], WRITER),
    "alter-not-describe": ([("ALTER_CONFIGS",), ("DESCRIBE_CONFIGS", "DENY")], WRITER),
    "describe-not-alter": ([("DESCRIBE_CONFIGS",), ("ALTER_CONFIGS", "DENY")], READER),
    "all-and-none": ([("ALL",), ("ALL", "DENY")], NEITHER),
    "denied-plain-describe": ([("ALTER_CONFIGS",), ("DESCRIBE", "DENY")], BOTH),
    "from-here": ([("ALTER_CONFIGS", "ALLOW", HERE)], BOTH),
    "from-elsewhere": ([("ALTER_CONFIGS", "ALLOW", ELSEWHERE)], NEITHER),
    "not-from-here": ([("ALL",), ("ALTER_CONFIGS", "DENY", HERE)], READER),
    "not-from-elsewhere": ([("ALL",), ("ALL", "DENY", ELSEWHERE)], BOTH),
    "range-of-addresses": ([("ALL", "ALLOW", "127.0.0.0/8")], NEITHER),
    "super": ([("ALL", "DENY")], BOTH),
    "prefixed": ([], BOTH),
    "prefixed-denial": ([("ALL",)], READER),
}
SUPER_USERS = "User:super;User:*"
JUDGED = (*CASES, "revoked-now", "service-account", "alice", "bob", "ALICE")
"""Who may log in at a broker with ``PASSWORD`` to be judged by it."""

ACLS = [
    *(acl(user, *rule) for user, (acls, _) in CASES.items() for rule in acls),
    acl("prefixed", "ALTER_CONFIGS", prefixed=True),
    acl("prefixed-denial", "ALTER_CONFIGS", "DENY", prefixed=True),
]


@contextmanager
def judging_broker(
    folder: Path, users: Sequence[str], super_users: str = "User:ANONYMOUS", **properties: str
) -> Iterator[LocalKafka]:
    """Run a broker that lets these users in with PLAIN; ``_`` in properties stands for a dot."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    with LocalKafka(
        folder,
        plain_users=dict.fromkeys(users, PASSWORD),
        super_users=super_users,
        extra_properties={**NO_LINGER, **named},
        request_log=True,
        heap="256m",
        java_options=shared_classes(),
    ) as kafka:
        yield kafka


@contextmanager
def service_for(
    kafka: LocalKafka, postgres: LocalPostgres, folder: Path, users: Sequence[str], **settings: str
) -> Iterator[RunningService]:
    """Serve these users on a database of its own, named like the folder."""
    _, service_url = migrated_database(postgres, folder.name)
    tokens = folder / "tokens"
    tokens.mkdir()
    settings = {"tokens_file": str(write_tokens(tokens, tuple(users))), **settings}
    with running_service(folder, kafka.bootstrap_servers, service_url, **settings) as service:
        yield service


def logged_in(kafka: LocalKafka, user: str, host: str = HERE) -> RawQuotas:
    if user == ANONYMOUS:
        return RawQuotas(kafka.bootstrap_servers, host)
    return RawQuotas(kafka.sasl_bootstrap_servers, host, (user, PASSWORD))


def judgement(judge: RawQuotas) -> Verdict:
    described = judge.describe(("user", EXACT, NOBODY))
    change = setting({"user": NOBODY}, {"producer_byte_rate": 1024})
    (altered,) = judge.alter(change, validate_only=True)
    return Verdict(_KAFKA_CODES[described.code], _KAFKA_CODES[altered.code])


def broker_verdict(kafka: LocalKafka, user: str, host: str = HERE) -> Verdict:
    with logged_in(kafka, user, host) as judge:
        return judgement(judge)


def describe_over_http(service: RunningService, user: str, host: str = HERE) -> httpx.Response:
    return service.api(user, host).get("/quotas", params={"filter": f"user={NOBODY}"})


def validate_over_http(service: RunningService, user: str, host: str = HERE) -> httpx.Response:
    """Let an alteration be checked as the user, from a source address."""
    op = {"key": "producer_byte_rate", "value": 1024}
    alteration = {"entity": {"user": NOBODY}, "ops": [op]}
    body = {"validate_only": True, "alterations": [alteration]}
    return service.api(user, host).post("/quotas/alterations", json=body)


def service_verdict(service: RunningService, user: str, host: str = HERE) -> Verdict:
    described = describe_over_http(service, user, host)
    altered = validate_over_http(service, user, host)
    return Verdict(_STATUSES[described.status_code], _STATUSES[altered.status_code])


def decisions_of(service: RunningService, postgres: LocalPostgres) -> DecisionOf:
    """Return what reads the decision on a request from the log, as the database's owner."""
    name = service.environ["QUOTAS_DATABASE_URL"].rpartition("/")[2]
    owner_url, _ = postgres.create_database(name)

    def decision_of(response: httpx.Response) -> dict[str, Any]:
        query = "select payload from audit_event where seq = 0 and position(%s in payload) > 0"
        request_id = response.headers["X-Request-Id"]
        with psycopg.connect(owner_url) as connection:
            rows = connection.execute(query, (f'"{request_id}"'.encode(),)).fetchall()
        assert len(rows) == 1, "one request, one record"
        decision: dict[str, Any] = json.loads(rows[0][0])["decision"]
        return decision

    return decision_of


OLDEST_ACLS_S: Final = 10.0
"""What an alteration may rest on, in seconds."""

REVOKED_WITHIN_S: Final = 60.0
_POLL_S: Final = 0.1
_ROUNDING_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Attempt:
    """An alteration that was requested after the broker had described the change."""

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
    kafka: LocalKafka, services: Sequence[RunningService], user: str, decision_of: DecisionOf
) -> int:
    """Let the user alter, take that away, ask every replica until it refuses; judge what passed.

    Whatever passed afterwards rested on ACLs that were read before, at most 10 s ago: so nothing
    passes later than 10 s after the change, however slow this machine is.

    Returns:
        How many alterations passed after the broker had described the change.
    """
    right = acl(user, "ALTER_CONFIGS")
    allow(kafka, right)
    for service in services:
        _until(service, user, 200)
    take_back(kafka, right)
    seen_at = time.monotonic()
    passed = [item for service in services for item in _until(service, user, 403)]
    for item in passed:
        age_s = decision_of(item.answer)["acl_age_s"]
        assert age_s <= OLDEST_ACLS_S
        assert item.begun_at - age_s <= seen_at + _ROUNDING_S, "it rested on ACLs without the right"
    return len(passed)


def _until(service: RunningService, user: str, status: int) -> list[Attempt]:
    """Ask until that is the answer; return what was answered before."""
    deadline = time.monotonic() + REVOKED_WITHIN_S
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
