"""One run: replicas of the service on one database and one cluster, clients, and the verdict."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import psycopg

from app.domain.entities import ClientQuotaEntity
from tests.faults.crash_recovery.replica import CALLER, Replica, new_replica
from tests.testkit.history.checker import figures_of, note_figures, violations
from tests.testkit.history.events import Answer, HistoryLog, Write, read_history
from tests.testkit.history.evidence import Audit, Described, Evidence, read_audit
from tests.testkit.history.metadata_log import Oracle
from tests.testkit.load import Driver, Load, Plan, send
from tests.testkit.service import PLAIN_HTTP

FINAL_AFTER_S: Final = 6.0
"""Instead of 95 s: twice what the fake cluster is late at most, on a machine that is busy."""

QUIET_WITHIN_S: Final = 120.0
HEADERS: Final = {"Authorization": f"Bearer {CALLER}"}
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
    return httpx.AsyncClient(base_url=base_url, headers=HEADERS, timeout=60.0, verify=PLAIN_HTTP)


@dataclass(frozen=True)
class RunDatabase:
    """A database, for the service and for the judge."""

    service_url: str
    superuser_url: str


class Run:
    """Replicas come and go; the history is one.

    Attributes:
        final_after_s: When recovery is final; more than anything can be late.
        quiet_within_s: How long it may take until everything is concluded.
        faults: How often something was killed, paused or cut off.
    """

    def __init__(self, folder: Path, bootstrap_servers: str, database: RunDatabase) -> None:
        self.database = database
        self.final_after_s = FINAL_AFTER_S
        self.quiet_within_s = QUIET_WITHIN_S
        self.faults = 0
        self.log = HistoryLog(folder / "history.jsonl")
        self.replicas: list[Replica] = []
        self._folder = folder
        self._addresses = {
            "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "QUOTAS_DATABASE_URL": database.service_url,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for replica in self.replicas:
            replica.kill()
        self.log.close()

    @property
    def urls(self) -> list[str]:
        """Where the replicas listen."""
        return [replica.url for replica in self.replicas]

    def serve(self, **settings: str) -> Replica:
        """Start one more replica; ``settings`` are further variables without their prefix."""
        folder = self._folder / f"replica-{len(self.replicas)}"
        folder.mkdir()
        settings = {"test_final_after_s": str(self.final_after_s), **settings}
        replica = new_replica(folder, self._addresses, settings)
        self.replicas.append(replica)
        replica.start()
        return replica

    async def alter(
        self, replica: Replica, *writes: Write, key: str | None = None
    ) -> Answer | None:
        """Send one request to one replica; null where no answer came."""
        noted = Plan(writes, key=key).noted(self.log, "test")
        async with new_client() as http:
            return await send(http, [replica.url], noted)

    def driver(self, load: Load) -> Driver:
        """Return clients of the present replicas."""
        return Driver(load, self.urls, self.log, CALLER)

    async def until_quiet(self) -> float:
        """Wait until every intent is concluded and every lock free, or no longer.

        Returns:
            How long that took, in seconds.
        """
        began = time.monotonic()
        while self._open() and time.monotonic() < began + self.quiet_within_s:
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - began

    def _open(self) -> int:
        with psycopg.connect(self.database.superuser_url) as connection:
            row = connection.execute(_OPEN).fetchone()
        return int(row[0]) if row else 0

    async def judge(self, read_oracle: Callable[[], Oracle], **members: Any) -> Evidence:
        """Wait until all is quiet, and check the whole run."""
        quiet_after_s = await self.until_quiet()
        evidence = await asyncio.to_thread(self._evidence, read_oracle, members)
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
        return read_audit(self.database.superuser_url, self._cluster_id())

    def _cluster_id(self) -> str:
        answer = httpx.get(f"{self.urls[-1]}/quotas", headers=HEADERS, timeout=30)
        return str(answer.raise_for_status().json()["cluster_id"])

    def _evidence(self, read_oracle: Callable[[], Oracle], members: Mapping[str, Any]) -> Evidence:
        calls, audit, oracle = (read_history(self.log.path), self.audit(), read_oracle())
        ids = {call.answer.alteration_id for call in calls if call.answer}
        with httpx.Client(base_url=self.urls[-1], headers=HEADERS, timeout=30) as http:
            documents = {item: _outcomes(http, item) for item in ids if item is not None}
            described = _described(http)
        return Evidence(calls, audit, oracle, described, documents, **members)


def _outcomes(http: httpx.Client, alteration_id: str) -> Mapping[ClientQuotaEntity, str]:
    """Return an alteration as `GET` answers it; nothing where the log does not have it."""
    answer = http.get(f"/quotas/alterations/{alteration_id}")
    if answer.status_code == httpx.codes.NOT_FOUND:
        return {}
    document = answer.raise_for_status().json()
    return {
        ClientQuotaEntity.of(result["entity"]): result["outcome"] for result in document["results"]
    }


def _described(http: httpx.Client) -> Described:
    document = http.get("/quotas").raise_for_status().json()
    return {
        ClientQuotaEntity.of(quota["entity"]): {
            key: float(value) for key, value in quota["values"].items()
        }
        for quota in document["quotas"]
    }
