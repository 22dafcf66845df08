"""Without a broker or Postgres every answer says so soon; with it again, all goes on.

Without Postgres nothing is altered and everything is read.

How long a service waits is its setting: a patient one outlasts what another one gives up.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import (
    ALTERATIONS,
    ANYWHERE,
    alter,
    ask,
    change,
    outage,
    slow_intents,
    until_done,
)
from tests.testkit.patience import PROMPT, wait_until
from tests.testkit.raw_quotas import RawQuotas, RequestLog
from tests.testkit.service import RunningService, running_service

NO_ALTERATION = "01920000-0000-7000-8000-000000000000"
NO_LOG = {"audit-log-unavailable"}
NO_CLUSTER = {"cluster-unreachable", "acl-source-unreachable"}
"""The latter where the ACLs were never read, or are too old to decide by."""

Promise = int | set[str] | None
"""A status; or 503 with one of these codes, nothing sent, safe to repeat; null: no promise."""


class Route(NamedTuple):
    """Who asks for what, and the answers to that in an outage."""

    principal: str
    method: str
    path: str
    body: Any
    without_broker: Promise
    without_postgres: Promise


def routes(name: str) -> list[Route]:
    """Return every route; the name is of a user who is altered in vain."""
    fresh, record = "/quotas/resolve?user=alice&max_age_ms=0", f"{ALTERATIONS}/{NO_ALTERATION}"
    alice, what_if = {"identities": [{"user": "alice"}]}, change("alice")
    check = change("checked", validate_only=True)  # brokers may see it: it changes nothing
    return [
        Route("bob", "GET", "/quotas", None, NO_CLUSTER, 200),
        Route("bob", "GET", "/quotas/capabilities", None, None, 200),
        Route("bob", "GET", fresh, None, NO_CLUSTER, 200),
        Route("bob", "POST", "/quotas/resolve", alice, None, 200),
        Route("bob", "POST", "/quotas/resolve", {**alice, **what_if}, None, 200),
        Route("auditor", "GET", "/audit", None, 200, NO_LOG),
        Route("bob", "GET", "/audit", None, None, NO_LOG),
        Route("alice", "GET", record, None, None, NO_LOG),
        Route("alice", "POST", ALTERATIONS, change(name), NO_CLUSTER, NO_LOG),
        Route("alice", "POST", ALTERATIONS, check, NO_CLUSTER, NO_LOG),
        Route("mallory", "POST", ALTERATIONS, change(name), None, 403),
        Route("bob", "POST", ALTERATIONS, change(name), None, 403),
        Route("stranger", "POST", ALTERATIONS, change(name), None, 401),
        Route("alice", "POST", ALTERATIONS, change(name, value=0), None, 422),
        Route("alice", "POST", ALTERATIONS, {"alteration": []}, None, 400),
        Route("alice", "GET", "/livez", None, 200, 200),
    ]


def assert_promised(
    service: RunningService, name: str, without: str, subtests: pytest.Subtests
) -> None:
    """Ask for everything at once, and compare each answer with its promise."""
    promised = [(each, getattr(each, f"without_{without}")) for each in routes(name)]
    promised = [(each, promise) for each, promise in promised if promise is not None]
    for each, _ in promised:
        service.api(each.principal)  # threads that make a client each lose all but one
    with ThreadPoolExecutor(len(promised)) as pool:
        answers = [
            pool.submit(ask, service, each.method, each.path, each.body, each.principal)
            for each, _ in promised
        ]
    for (each, promise), answer in zip(promised, answers, strict=True):
        with subtests.test(route=each):
            if promise == httpx.codes.OK:
                assert answer.result().status_code == promise, answer.result().text
            elif isinstance(promise, int):
                problem_of(answer.result(), promise)
            else:
                assert_unsent(answer.result(), promise)


def assert_unsent(answer: httpx.Response, codes: set[str]) -> None:
    problem = problem_of(answer, 503)
    assert problem["code"] in codes
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")


def problems_of(service: RunningService, path: str) -> dict[str, str]:
    """Return what readiness lacks."""
    answer = ask(service, "GET", path)
    found: dict[str, str] = answer.json()["problems"] if answer.status_code == 503 else {}
    return found


@pytest.mark.parametrize("kind", ["paused", "killed"])
def test_without_a_broker_nothing_is_sent_and_with_it_again_all_goes_on(
    service: RunningService, kafka: LocalKafka, kind: str, subtests: pytest.Subtests
) -> None:
    until_done(lambda: altered(service), "no change before the outage")
    with outage(kafka, kind), ThreadPoolExecutor(1) as pool:
        probing = pool.submit(assert_not_ready, service)
        assert_promised(service, unique("unsent"), "broker", subtests)
        probing.result()
    assert_goes_on(service)


FEW = ("killed", "paused")
"""A refused connection and one without answers; every other outage takes the same paths."""

KINDS = [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.long) for kind in ANYWHERE]


@pytest.mark.parametrize("kind", KINDS)
def test_without_postgres_nothing_is_altered_and_everything_read(
    service: RunningService,
    kafka: LocalKafka,
    database: LocalPostgres,
    kind: str,
    subtests: pytest.Subtests,
) -> None:
    name = unique("refused")
    until_done(lambda: altered(service), "no change before the outage")
    with ANYWHERE[kind](database), RawQuotas(kafka.bootstrap_servers) as raw:
        with RequestLog(kafka.request_log_path, raw).nothing_arrives(name):
            assert_promised(service, name, "postgres", subtests)
        assert raw.stored({"user": name}) == {}
        lacks = partial(problems_of, service, "/readyz?for=write")
        wait_until(lambda: "audit_log" in lacks(), "still ready to write")
        assert "kafka" not in lacks()
        assert ask(service, "GET", "/readyz").status_code == 200
    assert_log_goes_on(service, name)


def test_the_service_starts_before_what_it_needs(
    service: RunningService, kafka: LocalKafka, database: LocalPostgres, tmp_path: Path
) -> None:
    url = service.environ["QUOTAS_DATABASE_URL"]
    with (
        outage(kafka, "paused"),
        outage(database, "stopped"),
        running_service(tmp_path, kafka.bootstrap_servers, url, patience=PROMPT) as early,
    ):
        assert_not_ready(early)
        assert ask(early, "GET", "/livez").status_code == 200
        kafka.resume()
        database.start()
        assert_goes_on(early)


def assert_goes_on(service: RunningService) -> None:
    until_done(lambda: altered(service), "no change after the outage")
    until_done(lambda: ask(service, "GET", "/readyz?for=write"), "not ready again")
    assert ask(service, "GET", "/quotas", principal="bob").status_code == 200


def altered(service: RunningService) -> httpx.Response:
    return alter(service, unique("works"), wait="none")


def assert_not_ready(service: RunningService) -> None:
    for path in ("/readyz", "/readyz?for=write"):
        lacks = partial(problems_of, service, path)
        wait_until(lambda lacks=lacks: "kafka" in lacks(), "still ready")
        assert "127.0.0.1" not in f"{lacks()}"


def read(service: RunningService) -> httpx.Response:
    return ask(service, "GET", f"/quotas?filter=user={unique()}&strict=true", principal="bob")


@pytest.mark.parametrize(
    ("server", "request_once", "code"),
    [("database", altered, NO_LOG), ("kafka", read, {"cluster-unreachable"})],
)
def test_who_waits_longer_is_answered_when_it_is_back(
    service: RunningService,
    patient_service: RunningService,
    request: pytest.FixtureRequest,
    *,
    server: str,
    request_once: Callable[[RunningService], httpx.Response],
    code: set[str],
) -> None:
    for each in (service, patient_service):
        until_done(lambda each=each: request_once(each), "no answer before the outage")
    with ThreadPoolExecutor(1) as pool:
        with outage(request.getfixturevalue(server), "paused"):
            waiting = pool.submit(request_once, patient_service)
            assert_unsent(request_once(service), code)
            assert not waiting.done()
        assert waiting.result().status_code == 200
    until_done(lambda: request_once(service), "requests are still refused")


BOUNDED = {
    "hangs": partial(outage, kind="paused"),
    "refuses": partial(outage, kind="killed"),
    "is slow": partial(slow_intents, "real"),
}


@pytest.mark.parametrize("trouble", BOUNDED)
def test_alterations_that_wait_for_postgres_hold_up_no_read(
    service: RunningService, kafka: LocalKafka, database: LocalPostgres, trouble: str
) -> None:
    name = unique("bounded")
    until_done(lambda: alter(service, name), "no change before the outage")
    with (
        BOUNDED[trouble](database),
        RawQuotas(kafka.bootstrap_servers) as raw,
        RequestLog(kafka.request_log_path, raw).nothing_arrives(name),
        ThreadPoolExecutor(24) as pool,
    ):
        waiting = [pool.submit(alter, service, f"{name}-{number}") for number in range(72)]
        for path in ("/quotas", "/quotas?max_age_ms=60000", "/quotas/resolve?user=alice") * 8:
            assert ask(service, "GET", path, principal="bob").status_code == 200
        assert ask(service, "GET", "/readyz").status_code == 200
        for answer in waiting:
            assert_unsent(answer.result(), NO_LOG)
    assert_log_goes_on(service, name)


def assert_log_goes_on(service: RunningService, name: str) -> None:
    until_done(lambda: alter(service, name), "alterations are still refused")
    path = "/readyz?for=write"
    until_done(lambda: ask(service, "GET", path), "not ready to write again")

    def outcomes() -> list[str]:
        path = f"/audit?entity=user={name}"
        rows = ask(service, "GET", path, principal="auditor").json()["rows"]
        return [row["outcome"] for row in rows]

    wait_until(lambda: set(outcomes()) <= {"applied", "not_sent"}, "an intent has no conclusion")
    assert outcomes()[0] == "applied"
