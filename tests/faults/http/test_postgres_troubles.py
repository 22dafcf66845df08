"""Postgres is in trouble for a while, 20 alterations and 50 reads a second go on."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.service.runtime.clock import USUAL
from tests.faults.http.trouble import Traffic, until_answered
from tests.testkit.history.checker import note_figures
from tests.testkit.outages import ANYWHERE, Trouble, disk_full, read_only, table_missing
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RawQuotas, RequestLog
from tests.testkit.service import RunningService, running_service

pytestmark = pytest.mark.long

OUTAGE_S = 60.0
NORMAL_S = 15.0
CONCLUDED_WITHIN_S = 300.0
NAME = "troubled"
FULL_DISK = "on a full disk"
"""What still fits into a page is committed, and sent."""


@pytest.fixture(scope="module")
def service(
    kafka: LocalKafka, disk_database: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    _, service_url = migrated_database(disk_database, NAME)
    folder = tmp_path_factory.mktemp("troubled-service")
    with running_service(folder, kafka.bootstrap_servers, service_url, patience=USUAL) as running:
        yield running


def troubles(disk: Path) -> dict[str, Trouble]:
    return {
        **ANYWHERE,
        "read-only": read_only,
        "without the audit table": partial(table_missing, NAME),
        FULL_DISK: partial(disk_full, disk),
    }


@pytest.mark.parametrize("kind", troubles(Path()))
async def test_nothing_is_altered_and_everything_read_while_postgres_is(
    kind: str, service: RunningService, disk_database: LocalPostgres, kafka: LocalKafka, disk: Path
) -> None:
    await until_answered(service, 200)
    normal, traffic = Traffic(), Traffic()
    await normal.flow(service, NORMAL_S)
    with RawQuotas(kafka.bootstrap_servers) as raw:
        with troubles(disk)[kind](disk_database):
            await until_answered(service, 503)
            with RequestLog(kafka.request_log_path, raw).alterations() as arrived:
                await traffic.flow(service, OUTAGE_S)
        back_s = await until_answered(service, 200)
    await asyncio.to_thread(assert_written_again, service)
    refused = traffic.attempts.refused_unsent
    sent = sum(len(request["entries"]) for request in arrived)
    note_figures(
        {
            "alterations attempted": len(traffic.attempts.answers),
            "refused with 503, nothing sent": refused,
            "alterations that arrived at the broker": sent,
            "slowest refusal, s": traffic.attempts.slowest_s,
            "reads": len(traffic.reads.answers),
            "reads answered 200": traffic.reads.answered(200),
            "p99 of reads, ms": traffic.reads.p99_ms,
            "p99 of reads before, ms": normal.reads.p99_ms,
            "altering again after, s": round(back_s, 2),
        }
    )
    assert sent + refused == len(traffic.attempts.answers)
    assert sent == 0 or kind == FULL_DISK
    assert traffic.reads.answered(200) >= 0.999 * len(traffic.reads.answers)


def assert_written_again(service: RunningService) -> None:
    """Check that the log concludes all it holds: what was committed unseen takes recovery 95 s."""

    def outcomes() -> set[str]:
        answer = service.api("auditor").get("/audit", params={"page_size": "10000"})
        return {row["outcome"] for row in answer.raise_for_status().json()["rows"]}

    deadline = time.monotonic() + CONCLUDED_WITHIN_S
    while "unknown" in outcomes():
        assert time.monotonic() < deadline, "an intent is still open"
        time.sleep(1)
    assert {"applied"} <= outcomes() <= {"applied", "not_sent"}
