"""Callers who log in at the broker with a password of their own, over TLS and SCRAM."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka, LocalTls
from app.localdev.postgres import LocalPostgres
from tests.testkit.accounts import allow, set_scram_users, take_back
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import (
    DEADLINE_S,
    PLAIN_HTTP,
    RunningService,
    acl,
    new_address,
    running_service,
    transport_from,
)

CANARY = "canary-pässword:with,=odd characters"
BOTH, READER, WRITER, NEITHER = (200, 200), (200, 403), (403, 200), (403, 403)

CASES: dict[str, tuple[Sequence[tuple[str, ...]], tuple[int, int]]] = {
    "alterer": ([("ALTER_CONFIGS",)], BOTH),
    "alterer, who may ask": ([("ALTER_CONFIGS",), ("DESCRIBE",)], BOTH),
    "reader": ([("DESCRIBE_CONFIGS",)], READER),
    "reader, who may ask": ([("DESCRIBE_CONFIGS",), ("DESCRIBE",)], READER),
    "everything": ([("ALL",)], BOTH),
    "writer": ([("ALTER_CONFIGS",), ("DESCRIBE_CONFIGS", "DENY")], WRITER),
    "writer, who may ask": ([("ALL",), ("DESCRIBE_CONFIGS", "DENY")], WRITER),
    "nobody": ([], NEITHER),
    "nobody, who may ask": ([("DESCRIBE",)], NEITHER),
    "somewhere else": ([("ALL", "ALLOW", "127.0.0.6")], NEITHER),
    'odd "name" of \\ 1=2': ([("ALL",)], BOTH),
    "CN=a,OU=b": ([("DESCRIBE_CONFIGS",)], READER),
}
"""By user: operation, permission and host of each ACL, and the statuses of a read and a change.

Names are ASCII: a broker takes no others by SCRAM. Source: ``ScramMessages`` of release 4.3.
"""

GUESSED = unique("guessed")


@pytest.fixture(scope="module")
def kafka(broker: LocalKafka, service: RunningService) -> LocalKafka:
    """The broker of the run, with users of these tests; the other service has set its ACLs."""
    assert service.url
    set_scram_users(broker.bootstrap_servers, dict.fromkeys([*CASES, GUESSED], CANARY))
    allow(broker, *(acl(user, *rights) for user, (acls, _) in CASES.items() for rights in acls))
    return broker


@pytest.fixture(scope="module")
def basic(
    kafka: LocalKafka,
    tls: LocalTls,
    postgres: LocalPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    """A service that takes passwords, and tokens as well."""
    _, service_url = migrated_database(postgres, "basic")
    with running_service(
        tmp_path_factory.mktemp("basic"),
        kafka.bootstrap_servers,
        service_url,
        basic_sasl_mechanism="SCRAM-SHA-512",
        basic_bootstrap_servers=kafka.address("SASL_SSL"),
        kafka_ssl_ca_file=str(tls.truststore_file),
    ) as running:
        yield running


def call(
    service: RunningService, user: str, method: str, path: str, password: str = CANARY, **more: Any
) -> httpx.Response:
    credentials = (user.encode(), password.encode())
    url = f"{service.url}{path}"
    more = {"timeout": DEADLINE_S, "verify": PLAIN_HTTP, **more}
    return httpx.request(method, url, auth=credentials, **more)


def change(user: str | None = None, *, validate_only: bool = False) -> dict[str, Any]:
    op = {"key": "producer_byte_rate", "value": 1024}
    alteration = {"entity": {"user": user or unique("basic")}, "ops": [op]}
    return {"validate_only": validate_only, "alterations": [alteration]}


def alter(service: RunningService, user: str, body: dict[str, Any] | None = None) -> httpx.Response:
    return call(service, user, "POST", "/quotas/alterations", json=body or change())


def test_a_caller_may_what_the_broker_lets_him(
    basic: RunningService, subtests: pytest.Subtests
) -> None:
    for user, (_, wanted) in CASES.items():
        with subtests.test(user=user):
            read = call(basic, user, "GET", "/quotas")
            resolved = call(basic, user, "GET", "/quotas/resolve?user=x&max_age_ms=0")
            assert (read.status_code, alter(basic, user).status_code) == wanted
            assert resolved.status_code == wanted[0]
            validated = alter(basic, user, change(validate_only=True))
            assert validated.status_code == wanted[1], validated.text


def test_every_request_of_an_alteration_reaches_the_broker_as_the_caller(
    kafka: LocalKafka, basic: RunningService
) -> None:
    entity = unique("as-the-caller")
    assert alter(basic, "alterer", change(entity)).status_code == 200
    read = call(basic, "alterer", "GET", f"/quotas?filter=user={entity}")
    assert read.json()["quotas"][0]["entity"] == {"user": entity}

    def principals() -> set[tuple[str, str]]:
        lines = [line for line in kafka.request_log_path.read_text().splitlines() if entity in line]
        records = [json.loads(line.partition(":")[2]) for line in lines]
        return {
            (record["requestHeader"]["requestApiKeyName"], record["principal"])
            for record in records
            if not record["isForwarded"]
        }

    apis = ("ALTER_CLIENT_QUOTAS", "DESCRIBE_CLIENT_QUOTAS")
    wait_until(lambda: {api for api, _ in principals()} == set(apis))
    assert principals() == {(api, "User:alterer") for api in apis}


def test_the_audit_log_names_the_caller_and_who_decided(basic: RunningService) -> None:
    done = alter(basic, "everything")
    with httpx.Client(transport=transport_from(new_address())) as client:
        credentials = (b"reader", CANARY.encode())
        url = f"{basic.url}/quotas/alterations"
        denied = client.post(url, auth=credentials, json=change("x"), timeout=DEADLINE_S)
    rows = call(basic, "everything", "GET", "/audit?action=alter&page_size=1").json()["rows"]
    assert rows[0]["request_id"] == done.headers["X-Request-Id"]
    assert (rows[0]["principal"], rows[0]["authentication"]) == ("User:everything", "basic")
    rows = call(basic, "reader", "GET", "/audit?action=denied").json()["rows"]
    (row,) = [row for row in rows if row["request_id"] == denied.headers["X-Request-Id"]]
    assert row["outcome"] == "refused"
    assert row["denied"] == {"entities": 1, "first": [{"user": "x"}], "attempts": 1}


def test_who_may_not_is_refused_before_the_body_is_read(basic: RunningService) -> None:
    for content in (b"{", b'{"alterations": []}', b" " * 9_000_000):
        headers = {"Content-Type": "application/json"}
        path = "/quotas/alterations"
        answer = call(basic, "nobody", "POST", path, content=content, headers=headers)
        assert problem_of(answer, 403)["code"] == "cluster-authorization-failed"
        answer = call(basic, "nobody", "POST", path, "wrong:", content=content, headers=headers)
        assert answer.status_code in {401, 429}


def test_a_wrong_password_and_an_unknown_user_look_the_same(basic: RunningService) -> None:
    wrong = call(basic, "alterer", "GET", "/quotas", "not it")
    unknown = call(basic, unique("unknown"), "GET", "/quotas")
    problems = [problem_of(answer, 401) for answer in (wrong, unknown)]
    for answer, problem in zip((wrong, unknown), problems, strict=True):
        assert problem["code"] == "login-failed"
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        del problem["request_id"]
    assert problems[0] == problems[1]


def test_passwords_cannot_be_tried_out(basic: RunningService) -> None:
    answers = [call(basic, GUESSED, "GET", "/quotas", f"guess-{number}") for number in range(5)]
    assert [answer.status_code for answer in answers] == [401] * 5
    for password in ("guess-6", CANARY):
        limited = call(basic, GUESSED, "GET", "/quotas", password)
        assert problem_of(limited, 429)["code"] == "rate-limited"
        assert 1 <= int(limited.headers["Retry-After"]) <= 60
    assert call(basic, "alterer", "GET", "/quotas").status_code == 200
    metrics = httpx.get(f"{basic.url}/metrics", timeout=DEADLINE_S).text
    assert 'rate_limited_total{scope="logins"}' in metrics


def test_a_revoked_right_is_refused_at_the_next_request_and_audited(
    kafka: LocalKafka, basic: RunningService
) -> None:
    user = unique("revoked")
    rights = [acl(user, operation) for operation in ("ALTER_CONFIGS", "DESCRIBE_CONFIGS")]
    set_scram_users(kafka.bootstrap_servers, {user: CANARY})
    allow(kafka, *rights)
    wait_until(lambda: call(basic, user, "GET", "/quotas").status_code == 200)
    wait_until(lambda: alter(basic, user).status_code == 200)
    take_back(kafka, *rights)
    refused: list[httpx.Response] = []
    for act in (lambda: alter(basic, user), lambda: call(basic, user, "GET", "/quotas")):
        wait_until(lambda act=act: refused.append(act()) or refused[-1].status_code == 403)
        assert problem_of(refused[-1], 403)["kafka_error"] == "CLUSTER_AUTHORIZATION_FAILED"
        assert problem_of(refused[-1], 403)["code"] == "cluster-authorization-failed"
    rows = basic.api("auditor").get("/audit", params={"actor": f"User:{user}", "action": "denied"})
    ids = [row["request_id"] for row in rows.json()["rows"]]
    denied = [answer for answer in refused if answer.status_code == 403]
    assert sorted(ids) == sorted(answer.headers["X-Request-Id"] for answer in denied)


@pytest.mark.parametrize(
    ("user", "status"), [("reader", 403), ("alterer", 403), ("reader, who may ask", 200)]
)
def test_scram_credentials_need_what_the_broker_asks_for(
    basic: RunningService, user: str, status: int
) -> None:
    assert call(basic, user, "GET", "/users/scram-credentials").status_code == status
