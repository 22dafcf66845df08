"""One run: replicas on one database and one cluster, clients, outages, and the verdict."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, LiteralString, Self

import httpx
import psycopg

from app.domain.entities import ClientQuotaEntity
from app.service.runtime.clock import USUAL
from tests.testkit.fake_kafka.cluster import (
    DROP_AFTER_APPLYING,
    DROP_BEFORE_APPLYING,
    Fault,
    FaultSchedule,
    apply_late,
    time_out_and_apply_late,
)
from tests.testkit.fake_kafka.messages import Alteration
from tests.testkit.history.checker import figures_of, note_figures, violations
from tests.testkit.history.events import Answer, Call, LogRecord, Write
from tests.testkit.history.evidence import Audit, Evidence, read_audit
from tests.testkit.kafka import eventually
from tests.testkit.load import Driver, Load, Plan, send
from tests.testkit.postgres import AuditDatabase
from tests.testkit.service import PLAIN_HTTP, RunningService, new_service
from tests.testkit.sizes import SEED

FINAL_AFTER_S: Final = 2.0
"""Instead of 95 s, where nothing is applied late."""

FINAL_AFTER_FAULTS_S: Final = 6.0
"""Twice what the fake cluster is late at most, on a machine that is busy."""

CALLER: Final = "root"
"""A super user, and its token."""

_HEADERS: Final = {"Authorization": f"Bearer {CALLER}"}
_POLL_S: Final = 0.3

_OPEN = """
select (select count(alteration_id) from quota_entity) + count(*) filter (where not exists (
  select from audit_entity as later
  where later.received_at = started.received_at and later.seq > 0
    and later.alteration_id = started.alteration_id
    and later.ordinal = started.ordinal and later.verdict <> 'unknown'))
from audit_entity_event as started where event_type = 'intent'
"""


def new_client(base_url: str = "") -> httpx.AsyncClient:
    """Return a client that calls as the super user of the replicas."""
    return httpx.AsyncClient(base_url=base_url, headers=_HEADERS, timeout=60.0, verify=PLAIN_HTTP)


async def ask(replica: RunningService, method: str, path: str, **options: Any) -> httpx.Response:
    async with new_client(replica.url) as http:
        return await http.request(method, path, **options)


class Run:
    """Replicas come and go; the history is one.

    Attributes:
        final_after_s: When recovery is final; more than anything can be late.
        quiet_within_s: How long it may take until everything is concluded.
        faults: How often something was killed, paused or cut off.
        below: What stands before each path: the cluster's, where replicas serve several.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap_servers: str,
        database: AuditDatabase,
        read_log: Callable[[], list[LogRecord]],
    ) -> None:
        self.database = database
        self.final_after_s = FINAL_AFTER_S
        self.quiet_within_s = 120.0
        self.faults = 0
        self.below = ""
        self.log: list[Call] = []
        self.replicas: list[RunningService] = []
        self._folders = (folder / f"replica-{number}" for number in count())
        self.bootstrap_servers = bootstrap_servers
        self._read_log = read_log
        self._began = datetime.now(UTC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.kill()

    async def serve(self, **settings: str) -> RunningService:
        """Start one more replica; ``settings`` are further variables without their prefix."""
        folder = next(self._folders)
        folder.mkdir()
        settings = {"test_final_after_s": str(self.final_after_s), **settings}
        url = self.database.service_url
        replica = new_service(folder, self.bootstrap_servers, url, patience=USUAL, **settings)
        self.replicas.append(replica)
        await asyncio.to_thread(replica.start)
        return replica

    async def until_watched(self) -> None:
        """Wait until the watch for drift has seen the cluster: from then on the log has its state.

        What nobody had seen before an alteration is never found to be as it was.
        """

        async def is_watched() -> bool:
            return bool(await asyncio.to_thread(self._count, "select count(*) from drift_baseline"))

        await eventually(is_watched, True)

    async def alter(
        self, replica: RunningService, *writes: Write, key: str | None = None
    ) -> Answer | None:
        """Send one request to one replica; null where no answer came."""
        async with new_client() as http:
            urls = [f"{replica.url}{self.below}"]
            return await send(http, urls, Plan(writes, key=key), self.log, "test")

    def driver(self, load: Load) -> Driver:
        urls = [f"{replica.url}{self.below}" for replica in self.replicas]
        return Driver(load, urls, self.log, CALLER)

    async def until_quiet(self) -> float:
        """Wait until every intent is concluded and every lock free, or no longer.

        Returns:
            How long that took, in seconds.
        """
        began = time.monotonic()
        while (
            await asyncio.to_thread(self._count, _OPEN)
            and time.monotonic() < began + self.quiet_within_s
        ):
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - began

    def is_quiet(self) -> bool:
        """Tell whether every intent is concluded and every lock free."""
        return not self._count(_OPEN)

    def _count(self, query: LiteralString) -> int:
        with psycopg.connect(self.database.superuser_url) as connection:
            row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    async def judge(self, *, bounded: bool = True) -> Evidence:
        """Wait until all is quiet, and check the whole run."""
        quiet_after_s = await self.until_quiet()
        evidence = await asyncio.to_thread(self._evidence, bounded=bounded)
        found = violations(evidence)
        note_figures(
            {
                "faults": self.faults,
                **figures_of(evidence, found),
                "quiet after, s": round(quiet_after_s, 1),
            }
        )
        assert not found, "\n".join(map(str, found))
        return evidence

    def audit(self) -> Audit:
        """Return what the log has of the run's cluster."""
        with self._client() as http:
            cluster_id = http.get("/quotas").raise_for_status().json()["cluster_id"]
        return read_audit(self.database.superuser_url, cluster_id)

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.replicas[-1].url}{self.below}",
            headers=_HEADERS,
            timeout=30.0,
            verify=PLAIN_HTTP,
        )

    def _evidence(self, *, bounded: bool) -> Evidence:
        calls, audit = list(self.log), self.audit()
        records = [record for record in self._read_log() if record.at >= self._began]
        ids = {call.answer.alteration_id for call in calls if call.answer}
        with self._client() as http:
            documents = {item: _outcomes(http, item) for item in ids if item is not None}
            quotas = http.get("/quotas").raise_for_status().json()["quotas"]
        described = {
            ClientQuotaEntity.of(quota["entity"]): {
                key: float(value) for key, value in quota["values"].items()
            }
            for quota in quotas
        }
        return Evidence(calls, audit, records, described, documents, bounded=bounded)


def _outcomes(http: httpx.Client, alteration_id: str) -> Mapping[ClientQuotaEntity, str]:
    """Return an alteration as `GET` answers it; nothing where the log does not have it."""
    answer = http.get(f"/quotas/alterations/{alteration_id}")
    if answer.status_code == httpx.codes.NOT_FOUND:
        return {}
    document = answer.raise_for_status().json()
    return {
        ClientQuotaEntity.of(result["entity"]): result["outcome"] for result in document["results"]
    }


Outage = Callable[[], Awaitable[None]]


def out(down: Callable[[], object], up: Callable[[], object], seconds: float = 0.0) -> Outage:

    async def outage() -> None:
        await asyncio.to_thread(down)
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(up)

    return outage


def reborn(replica: RunningService) -> Outage:
    return out(replica.kill, replica.start)


async def during_a_load(run: Run, outages: Sequence[Outage], *, between_s: float = 1.0) -> None:
    """Let outages happen one after the other while clients alter."""
    run.faults += len(outages)
    await during([run.driver(Load())], outages, between_s)


async def during(drivers: Sequence[Driver], outages: Sequence[Outage], between_s: float) -> None:
    """Let outages happen one after the other until these loads are ended."""
    chance = random.Random(SEED)
    async with asyncio.TaskGroup() as tasks:
        for driver in drivers:
            tasks.create_task(driver.run())
        for outage in outages:
            await asyncio.sleep(between_s * chance.uniform(0.1, 1.0))
            await outage()
        await asyncio.sleep(between_s)
        for driver in drivers:
            driver.enough = True


LATEST_S: Final = 2.5
"""Later than that nothing is applied."""


def random_faults(seed: int) -> FaultSchedule:
    """Return a fault schedule that does something to a quarter of all alterations."""
    chance = random.Random(seed)

    def decide(_: Alteration) -> Fault | None:
        if chance.random() > 0.25:
            return None
        late_s = chance.uniform(0.05, LATEST_S)
        return chance.choice(
            (
                DROP_BEFORE_APPLYING,
                DROP_AFTER_APPLYING,
                apply_late(late_s),
                time_out_and_apply_late(late_s),
                Fault(delay_s=late_s / 10),
                Fault(refused=42),
                Fault(error_code=-1),
            )
        )

    return decide
