"""Without a broker or Postgres every answer says so soon; with it again, all goes on.

Without Postgres nothing is altered and everything is read.

How long a service waits is its setting: a patient one outlasts what another one gives up.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

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

CODES = {"cluster-unreachable", "acl-source-unreachable"}
"""The latter where the ACLs were never read, or are too old to decide by."""


@pytest.mark.parametrize("kind", ["paused", "killed"])
def test_without_a_broker_nothing_is_sent_and_with_it_again_all_goes_on(
    service: RunningService, kafka: LocalKafka, kind: str
) -> None:
    until_done(lambda: altered(service), "no change before the outage")
    with outage(kafka, kind), ThreadPoolExecutor(1) as pool:
        probing = pool.submit(assert_alive_and_not_ready, service)
        assert_nothing_is_sent(service)
        probing.result()
        assert ask(service, "GET", "/audit", principal="auditor").status_code == 200
    assert_goes_on(service)


def test_the_service_starts_before_what_it_needs(
    service: RunningService, kafka: LocalKafka, database: LocalPostgres, tmp_path: Path
) -> None:
    url = service.environ["QUOTAS_DATABASE_URL"]
    with (
        outage(kafka, "paused"),
        outage(database, "stopped"),
        running_service(tmp_path, kafka.bootstrap_servers, url, patience=PROMPT) as early,
    ):
        assert_alive_and_not_ready(early)
        kafka.resume()
        database.start()
        assert_goes_on(early)


def assert_goes_on(service: RunningService) -> None:
    until_done(lambda: altered(service), "no change after the outage")
    until_done(lambda: ask(service, "GET", "/readyz?for=write"), "not ready again")
    assert ask(service, "GET", "/quotas", principal="bob").status_code == 200


def altered(service: RunningService) -> httpx.Response:
    return alter(service, unique("works"), wait="none")


def is_ready(service: RunningService, path: str) -> bool:
    return ask(service, "GET", path).status_code == 200


def assert_nothing_is_sent(service: RunningService) -> None:
    for principal in ("alice", "bob"):
        service.api(principal)  # threads that make a client each lose all but one
    with ThreadPoolExecutor(8) as pool:
        paths = ("/quotas", "/quotas/resolve?user=alice&max_age_ms=0")
        asked = [pool.submit(ask, service, "GET", path, None, "bob") for path in paths]
        asked += [
            pool.submit(alter, service, unique("unsent"), **options)
            for options in ({}, {"validate_only": True})
        ]
        answers = [future.result() for future in asked]
    for answer in answers:
        problem = problem_of(answer, 503)
        assert problem["code"] in CODES
        assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")


def assert_alive_and_not_ready(service: RunningService) -> None:
    for path in ("/readyz", "/readyz?for=write"):
        wait_until(lambda path=path: not is_ready(service, path), "still ready")
        problems = ask(service, "GET", path).json()["problems"]
        assert "kafka" in problems
        assert "127.0.0.1" not in f"{problems}"
    assert is_ready(service, "/livez")


def read(service: RunningService) -> httpx.Response:
    return ask(service, "GET", f"/quotas?filter=user={unique()}&strict=true", principal="bob")


def outlasts(
    server: LocalKafka | LocalPostgres,
    request: Callable[[RunningService], httpx.Response],
    services: tuple[RunningService, RunningService],
    code: str,
) -> None:
    """Assert that in an outage the first service answers with the code; the second one waits."""
    service, patient_service = services
    for each in services:
        until_done(lambda each=each: request(each), "no answer before the outage")
    with ThreadPoolExecutor(1) as pool:
        with outage(server, "paused"):
            waiting = pool.submit(request, patient_service)
            assert request(service).json()["code"] == code
            assert not waiting.done()
        assert waiting.result().status_code == 200
    until_done(lambda: request(service), "requests are still refused")


def test_who_waits_longer_for_postgres_alters_when_it_is_back(
    service: RunningService, patient_service: RunningService, database: LocalPostgres
) -> None:
    outlasts(database, altered, (service, patient_service), "audit-log-unavailable")


def test_who_waits_longer_for_a_broker_reads_when_it_is_back(
    service: RunningService, patient_service: RunningService, kafka: LocalKafka
) -> None:
    outlasts(kafka, read, (service, patient_service), "cluster-unreachable")


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
            problem = problem_of(answer.result(), 503)
            assert problem["code"] == "audit-log-unavailable"
            assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")
    assert_log_goes_on(service, name)


FEW = ("killed", "paused")
"""A refused connection and one without answers; every other outage takes the same paths."""

KINDS = [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.long) for kind in ANYWHERE]


@pytest.fixture(scope="module", params=KINDS)
def refused(
    request: pytest.FixtureRequest, service: RunningService, database: LocalPostgres
) -> Iterator[str]:
    """Take Postgres away; a user's name to alter in vain, which works once Postgres is back."""
    name = unique("refused")
    until_done(lambda: alter(service, unique("warm")), "no change before the outage")
    with ANYWHERE[request.param](database):
        yield name
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


def test_an_alteration_is_refused_and_nothing_of_it_is_sent(
    service: RunningService, kafka: LocalKafka, refused: str
) -> None:
    with RawQuotas(kafka.bootstrap_servers) as raw:
        with RequestLog(kafka.request_log_path, raw).nothing_arrives(refused):
            problem = problem_of(alter(service, refused), 503)
        assert raw.stored({"user": refused}) == {}
    assert problem["code"] == "audit-log-unavailable"
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")


@pytest.mark.usefixtures("refused")
def test_many_alterations_at_once_are_all_refused(
    service: RunningService, kafka: LocalKafka
) -> None:
    def code_of(number: int) -> str:
        answer = alter(service, f"unsent-{number}")
        return str(problem_of(answer, 503)["code"])

    with (
        RawQuotas(kafka.bootstrap_servers) as raw,
        RequestLog(kafka.request_log_path, raw).nothing_arrives("unsent-"),
        ThreadPoolExecutor(20) as pool,
    ):
        codes = list(pool.map(code_of, range(20)))
    assert set(codes) == {"audit-log-unavailable"}


@pytest.mark.usefixtures("refused")
def test_quotas_are_read_as_ever(service: RunningService) -> None:
    identities = {"identities": [{"user": "alice"}]}
    what_if = {**identities, **change("alice")}
    for answer in (
        ask(service, "GET", "/quotas", principal="bob"),
        ask(service, "GET", "/quotas/capabilities", principal="bob"),
        ask(service, "GET", "/quotas/resolve?user=alice&max_age_ms=0", principal="bob"),
        ask(service, "POST", "/quotas/resolve", identities, principal="bob"),
        ask(service, "POST", "/quotas/resolve", what_if, principal="bob"),
    ):
        assert answer.status_code == 200, answer.text


@pytest.mark.usefixtures("refused")
def test_the_log_cannot_be_read_and_says_so(service: RunningService) -> None:
    record = f"{ALTERATIONS}/01920000-0000-7000-8000-000000000000"
    asks = ("/audit", "auditor"), ("/audit", "bob"), (record, "alice")
    with ThreadPoolExecutor(len(asks)) as pool:
        answers = [pool.submit(ask, service, "GET", path, None, name) for path, name in asks]
    for answer in answers:
        problem = problem_of(answer.result(), 503)
        assert (problem["code"], problem["retry"]) == ("audit-log-unavailable", "safe")


@pytest.mark.usefixtures("refused")
def test_a_check_that_could_not_be_recorded_is_no_success(service: RunningService) -> None:
    answer = alter(service, "unsent", validate_only=True)
    assert problem_of(answer, 503)["code"] == "audit-log-unavailable"


@pytest.mark.usefixtures("refused")
def test_judgements_stand_that_need_no_log(service: RunningService) -> None:
    for body, principal, status in (
        (change("unsent"), "mallory", 403),
        (change("unsent"), "bob", 403),
        (change("unsent"), "stranger", 401),
        (change("unsent", value=0), "alice", 422),
        ({"alteration": []}, "alice", 400),
    ):
        problem_of(ask(service, "POST", ALTERATIONS, body, principal), status)


@pytest.mark.usefixtures("refused")
def test_the_service_is_ready_to_read_and_not_to_write(service: RunningService) -> None:
    def problems() -> dict[str, str]:
        answer = ask(service, "GET", "/readyz?for=write")
        found: dict[str, str] = answer.json()["problems"] if answer.status_code == 503 else {}
        return found

    wait_until(lambda: "audit_log" in problems(), "still ready to write")
    assert "kafka" not in problems()
    assert ask(service, "GET", "/readyz").status_code == 200
    assert ask(service, "GET", "/livez").status_code == 200
