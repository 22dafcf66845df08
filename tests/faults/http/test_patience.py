"""How long a service waits is its setting: a patient one outlasts what another one gives up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.kafka import unique
from tests.testkit.outages import ask, change, outage, until_done
from tests.testkit.service import RunningService, running_service


@pytest.fixture(scope="module")
def patient(
    service: RunningService, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A second service on the broker and the database of the first, which gives up soon."""
    folder, url = tmp_path_factory.mktemp("patient"), service.environ["QUOTAS_DATABASE_URL"]
    with running_service(folder, kafka.bootstrap_servers, url) as running:
        yield running


def alter(service: RunningService) -> httpx.Response:
    body = change(unique("patience"), wait="none")
    return ask(service, "POST", "/quotas/alterations", body)


def read(service: RunningService) -> httpx.Response:
    return ask(service, "GET", f"/quotas?filter=user={unique()}&strict=true", principal="bob")


def test_who_waits_longer_for_postgres_alters_when_it_is_back(
    service: RunningService, patient: RunningService, database: LocalPostgres
) -> None:
    for one in (service, patient):
        until_done(lambda one=one: alter(one), "no change before the outage")
    with ThreadPoolExecutor(1) as pool:
        with outage(database, "paused"):
            waiting = pool.submit(alter, patient)
            assert alter(service).json()["code"] == "audit-log-unavailable"
            assert not waiting.done()
        assert waiting.result().status_code == 200
    until_done(lambda: alter(service), "alterations are still refused")


def test_who_waits_longer_for_a_broker_reads_when_it_is_back(
    service: RunningService, patient: RunningService, kafka: LocalKafka
) -> None:
    for one in (service, patient):
        until_done(lambda one=one: read(one), "nothing is read before the outage")
    with ThreadPoolExecutor(1) as pool:
        with outage(kafka, "paused"):
            waiting = pool.submit(read, patient)
            assert read(service).json()["code"] == "cluster-unreachable"
            assert not waiting.done()
        assert waiting.result().status_code == 200
    until_done(lambda: read(service), "reads are still refused")
