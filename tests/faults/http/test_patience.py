"""How long a service waits is its setting: a patient one outlasts what another one gives up."""

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


def test_who_waits_longer_for_postgres_alters_when_it_is_back(
    service: RunningService, patient_service: RunningService, database: LocalPostgres
) -> None:
    for one in (service, patient_service):
        until_done(lambda one=one: alter(one), "no change before the outage")
    with ThreadPoolExecutor(1) as pool:
        with outage(database, "paused"):
            waiting = pool.submit(alter, patient_service)
            assert alter(service).json()["code"] == "audit-log-unavailable"
            assert not waiting.done()
        assert waiting.result().status_code == 200
    until_done(lambda: alter(service), "alterations are still refused")


def test_who_waits_longer_for_a_broker_reads_when_it_is_back(
    service: RunningService, patient_service: RunningService, kafka: LocalKafka
) -> None:
    for one in (service, patient_service):
        until_done(lambda one=one: read(one), "nothing is read before the outage")
    with ThreadPoolExecutor(1) as pool:
        with outage(kafka, "paused"):
            waiting = pool.submit(read, patient_service)
            assert read(service).json()["code"] == "cluster-unreachable"
            assert not waiting.done()
        assert waiting.result().status_code == 200
    until_done(lambda: read(service), "reads are still refused")
