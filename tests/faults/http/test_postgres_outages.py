"""Without Postgres nothing is altered and everything is read; with it again, all goes on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ANYWHERE, ask, change, until_done
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, RequestLog
from tests.testkit.service import RunningService

ALTERATIONS = "/quotas/alterations"


def altered(service: RunningService, name: str) -> httpx.Response:
    return ask(service, "POST", ALTERATIONS, change(name))


FEW = ("killed", "paused")
"""A refused connection and one without answers; every other outage takes the same paths."""

KINDS = [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.long) for kind in ANYWHERE]


@pytest.fixture(scope="module", params=KINDS)
def refused(
    request: pytest.FixtureRequest, service: RunningService, database: LocalPostgres
) -> Iterator[str]:
    """Take Postgres away; a user's name to alter in vain, which works once Postgres is back."""
    name = unique("refused")
    until_done(lambda: altered(service, unique("warm")), "no change before the outage")
    with ANYWHERE[request.param](database):
        yield name
    assert_goes_on(service, name)


def assert_goes_on(service: RunningService, name: str) -> None:
    until_done(lambda: altered(service, name), "alterations are still refused")
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
        with RequestLog(kafka.request_log_path, raw).nothing_arrives():
            problem = problem_of(ask(service, "POST", ALTERATIONS, change(refused)), 503)
        assert raw.stored({"user": refused}) == {}
    assert problem["code"] == "audit-log-unavailable"
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")


@pytest.mark.usefixtures("refused")
def test_many_alterations_at_once_are_all_refused(
    service: RunningService, kafka: LocalKafka
) -> None:
    def alter(number: int) -> str:
        answer = ask(service, "POST", ALTERATIONS, change(f"unsent-{number}"))
        return str(problem_of(answer, 503)["code"])

    with (
        RawQuotas(kafka.bootstrap_servers) as raw,
        RequestLog(kafka.request_log_path, raw).nothing_arrives(),
        ThreadPoolExecutor(20) as pool,
    ):
        codes = list(pool.map(alter, range(20)))
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
    answer = ask(service, "POST", ALTERATIONS, change("unsent", validate_only=True))
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
