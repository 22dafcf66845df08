"""How long a service waits is its setting: a patient one outlasts what another one gives up."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.kafka import unique
from tests.testkit.outages import ask, change, outage, until_done
from tests.testkit.service import RunningService


def alter(service: RunningService) -> httpx.Response:
    body = change(unique("patience"), wait="none")
    return ask(service, "POST", "/quotas/alterations", body)


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
    outlasts(database, alter, (service, patient_service), "audit-log-unavailable")


def test_who_waits_longer_for_a_broker_reads_when_it_is_back(
    service: RunningService, patient_service: RunningService, kafka: LocalKafka
) -> None:
    outlasts(kafka, read, (service, patient_service), "cluster-unreachable")
