"""Reads of everything, by a caller who may only describe, stand in nobody's way."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.service.runtime.clock import USUAL
from tests.integration.http.service_calls import P, change
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RawQuotas, entity_of, setting
from tests.testkit.service import RunningService, running_service
from tests.testkit.sizes import size

ENTITIES, ALTERATIONS = size((5_000, 3), (20_000, 8))
AT_ONCE = 10_000
READERS = 16


@pytest.fixture(scope="module")
def crowded(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service with the product's own time-outs, on a cluster of many entities."""
    folder, prefix = tmp_path_factory.mktemp("large-reads"), unique("crowd")
    _, service_url = migrated_database(postgres, "large_reads")
    names = [f"{prefix}-{number}" for number in range(ENTITIES)]
    with RawQuotas(broker.bootstrap_servers) as raw:

        def set_all(value: float | None) -> None:
            for begin in range(0, ENTITIES, AT_ONCE):
                chunk = names[begin : begin + AT_ONCE]
                raw.alter(*(setting({"user": name}, {P: value}) for name in chunk))

        set_all(1024.0)
        wait_until(lambda: entity_of({"user": names[-1]}) in raw.everything())
        try:
            with running_service(
                folder, broker.bootstrap_servers, service_url, patience=USUAL
            ) as running:
                yield running
        finally:
            set_all(None)


QUERIES = ("filter=user^=zz", "filter=user", "has_key=none")


@pytest.mark.parametrize("queries", size([QUERIES], [(query,) for query in QUERIES]))
def test_sixteen_filtered_reads_hold_up_no_alteration(
    crowded: RunningService, queries: Sequence[str]
) -> None:
    """All queries beside each other; a long run has sixteen of each by itself."""
    bob, alice = crowded.api("bob"), crowded.api("alice")
    assert bob.get("/quotas?page_size=1").json()["total"] >= ENTITIES
    done = Event()

    def read_on(query: str) -> int:
        number = 0
        while not done.is_set():
            answer = bob.get(f"/quotas?page_size=10&{query}")
            assert answer.status_code == 200, answer.text
            number += 1
        return number

    with ThreadPoolExecutor(READERS) as pool:
        readers: list[Future[int]] = [
            pool.submit(read_on, queries[number % len(queries)]) for number in range(READERS)
        ]
        answers: list[httpx.Response] = []
        try:
            for number in range(ALTERATIONS):
                answers += [
                    crowded.alter(change({"user": unique("beside")}, {P: 1000 + number})),
                    alice.get("/quotas/resolve?user=alice"),
                    alice.get("/readyz"),
                ]
        finally:
            done.set()
        assert all(reader.result() > 0 for reader in readers)
    assert {answer.status_code for answer in answers} == {200}, [
        answer.text for answer in answers if answer.status_code != 200
    ]
