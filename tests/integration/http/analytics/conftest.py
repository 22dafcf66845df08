"""A service of its own, with results that the pipeline published into its database."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.pipeline.publish.results import Rows, job_of, publish_rows
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service


@dataclass
class Published:
    """The service, and what publishes for it."""

    service: RunningService
    url: str
    cluster_id: str

    def publish(self, name: str, rows: Rows, cluster_id: str | None = None) -> str:
        """Publish rows under a name, of the service's cluster or another; return the run's id."""
        of = {"cluster_id": cluster_id or self.cluster_id}
        own = {table: [{**row, **of} for row in each] for table, each in rows.items()}
        job = job_of("run", input=[name])
        job.run_id = hashlib.sha256(name.encode()).hexdigest()[:16]
        days = {row["dt"] for each in own.values() for row in each if "dt" in row}
        return publish_rows(self.url, own, job, sorted(days)).run_id


@pytest.fixture(scope="module")
def published(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    """Nothing is published yet: alice may alter, bob describe, mallory nothing.

    alice has a quota, and so every user has a bucket of his own: where no rule names a user, all
    spend from the same one.
    """
    folder = tmp_path_factory.mktemp("analytics")
    _, service_url = migrated_database(postgres, folder.name)
    with running_service(folder, broker.bootstrap_servers, service_url) as service:
        rule = {"entity": {"user": "alice"}}
        ops: list[dict[str, object]] = [{"key": "producer_byte_rate", "value": 1_000_000}]
        service.alter({**rule, "ops": ops}).raise_for_status()
        cluster_id = service.api("bob").get("/quotas").json()["cluster_id"]
        yield Published(service, service_url, cluster_id)
        ops = [{"key": "producer_byte_rate", "remove": True}]
        service.alter({**rule, "ops": ops}).raise_for_status()
