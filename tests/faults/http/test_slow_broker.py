"""A broker that has a tenth of a processor is slow, not gone: nothing is refused for its sake."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.service.runtime.clock import USUAL
from tests.faults.http.trouble import callers
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, change
from tests.testkit.postgres import migrated_database
from tests.testkit.service import running_service
from tests.testkit.sizes import size

STOPPED_S, RUNS_S = 3.0, 0.35
NUMBER, AT_ONCE = size((20, 8), (200, 32))


@contextmanager
def slices(kafka: LocalKafka) -> Iterator[None]:
    """Stop the broker by SIGSTOP and let it go on, again and again, while the block runs."""
    enough = threading.Event()

    def stop_and_go() -> None:
        while not enough.is_set():
            kafka.pause()
            enough.wait(STOPPED_S)
            kafka.resume()
            enough.wait(RUNS_S)

    slicing = threading.Thread(target=stop_and_go)
    slicing.start()
    try:
        yield
    finally:
        enough.set()
        slicing.join()


async def test_a_broker_slowed_to_a_tenth_alters_all_that_it_is_asked_for(
    kafka: LocalKafka, database: LocalPostgres, tmp_path: Path
):
    _, url = migrated_database(database, "slow")
    turns, names = asyncio.Semaphore(AT_ONCE), [unique("slow") for _ in range(NUMBER)]
    with running_service(tmp_path, kafka.bootstrap_servers, url, patience=USUAL) as service:
        async with callers(service) as http:

            async def alter(name: str) -> str:
                async with turns:
                    answer = await http.post(ALTERATIONS, json=change(name, wait="none"))
                return f"{answer.status_code} {answer.json().get('detail', '')}".strip()

            assert await alter(unique("slow")) == "200"
            with slices(kafka):
                assert await asyncio.gather(*map(alter, names)) == ["200"] * NUMBER
            assert await alter(unique("slow")) == "200"


async def test_a_broker_that_does_not_answer_at_all_is_unavailable(
    kafka: LocalKafka, database: LocalPostgres, tmp_path: Path
):
    _, url = migrated_database(database, "silent")
    with running_service(tmp_path, kafka.bootstrap_servers, url, patience=USUAL) as service:
        async with callers(service) as http:
            body = change(unique("silent"), wait="none")
            assert (await http.post(ALTERATIONS, json=body)).status_code == 200
            kafka.pause()
            try:
                answer = await http.post(ALTERATIONS, json=change(unique("silent"), wait="none"))
            finally:
                kafka.resume()
    problem = problem_of(answer, 503)
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")
