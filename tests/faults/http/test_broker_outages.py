"""Without a broker every answer says so at once or soon; with it again, all goes on.

How long a service waits is its setting: a patient one outlasts what another one gives up.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ask, change, outage, until_done
from tests.testkit.patience import PROMPT, wait_until
from tests.testkit.service import RunningService, running_service

ALTERATIONS = "/quotas/alterations"
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
    return ask(service, "POST", ALTERATIONS, change(unique("works"), wait="none"))


def is_ready(service: RunningService, path: str) -> bool:
    return ask(service, "GET", path).status_code == 200


def assert_nothing_is_sent(service: RunningService) -> None:
    reader, writer = service.api("bob"), service.api("alice")

    def read(path: str) -> httpx.Response:
        return reader.get(path)

    def alter(options: dict[str, bool]) -> httpx.Response:
        body = change(unique("unsent"), **options)
        return writer.post(ALTERATIONS, json=body)

    with ThreadPoolExecutor(8) as pool:
        paths = ("/quotas", "/quotas/resolve?user=alice&max_age_ms=0")
        reads = [pool.submit(read, path) for path in paths]
        alterations = [pool.submit(alter, options) for options in ({}, {"validate_only": True})]
        answers = [future.result() for future in reads + alterations]
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
