"""What `whatif` says of a quota, and what a real broker does once the quota is set."""

import json
import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.localdev.traffic import TrafficClient, prepare_traffic, run_traffic
from tests.pipeline.real_broker import collecting, pipeline
from tests.testkit.accounts import allow
from tests.testkit.postgres import migrated_database
from tests.testkit.service import acl, running_service

pytestmark = pytest.mark.long

LOAD_S = 150
INTERVAL_S = 5
LIMIT = 200_000
ANYBODY = 10**12
"""Limits nobody: brokers measure a client only where some quota is its."""

RATES = (120_000, 260_000, 500_000)
PRODUCERS = {f"p{rate}": TrafficClient(f"p{rate}", "etl", rate) for rate in RATES}
CONSUMERS = {f"c{rate}": TrafficClient(f"c{rate}", "reader", rate, consumes=True) for rate in RATES}
CLIENTS = PRODUCERS | CONSUMERS
KEYS = {
    name: "consumer_byte_rate" if client.consumes else "producer_byte_rate"
    for name, client in CLIENTS.items()
}
USERS = {name: f"{name}-secret" for name in ("alice", *CLIENTS)}
PROPOSED = [
    {"entity": {"user": name}, "ops": [{"key": key, "value": LIMIT}]} for name, key in KEYS.items()
]


@dataclass
class Outcome:
    """Shares of the time in which each client was throttled, by the model and by the broker."""

    modelled: dict[str, float]
    measured: dict[str, float]


def load(kafka: LocalKafka) -> tuple[datetime, datetime]:
    """Run the clients, and return when they began and ended."""
    done = threading.Event()
    clients = threading.Thread(
        target=run_traffic, args=(kafka.sasl_bootstrap_servers, [*CLIENTS.values()], done)
    )
    begun = datetime.now(UTC)
    clients.start()
    # What takes time here is the measurement itself.
    done.wait(LOAD_S)
    done.set()
    clients.join()
    return begun, datetime.now(UTC)


def throttled_scrapes(raw: Path, begun: datetime, ended: datetime) -> dict[str, float]:
    """Return in which share of the scrapes under load the broker said that it throttles a user."""
    resources = {"Produce": PRODUCERS, "Fetch": CONSUMERS}
    scrapes: dict[str, list[bool]] = {name: [] for name in CLIENTS}
    for row in pq.read_table(raw / "collected").to_pylist():
        within = begun + timedelta(seconds=INTERVAL_S) <= row["ts"] <= ended
        if (
            "throttle" in row["metric"]
            and within
            and row["user"] in resources.get(row["resource"], {})
        ):
            scrapes[row["user"]].append(not math.isnan(row["value"]) and row["value"] > 0)
    return {name: sum(seen) / len(seen) for name, seen in scrapes.items()}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, postgres: LocalPostgres) -> Outcome:
    folder = tmp_path_factory.mktemp("whatif")
    _, service_url = migrated_database(postgres, "whatif")
    out, answers = folder / "out", folder / "answers"
    body = folder / "proposed.json"
    body.write_text(json.dumps({"alterations": PROPOSED}), encoding="utf-8")
    (folder / "token").write_text("alice", encoding="utf-8")
    with LocalKafka(folder / "kafka", plain_users=USERS, metrics=True) as kafka:
        allow(kafka, acl("alice", "ALTER_CONFIGS"))
        prepare_traffic(kafka.bootstrap_servers)
        with running_service(folder, kafka.bootstrap_servers, service_url) as service:
            everybody: dict[str, Any] = {
                "entity": {"user": None, "client-id": None},
                "ops": [{"key": key, "value": ANYBODY} for key in sorted({*KEYS.values()})],
            }
            assert service.alter(everybody).status_code == 200
            with collecting(kafka, folder / "before", INTERVAL_S):
                load(kafka)
            to_service = ("--server", service.url, "--token-file", folder / "token")
            pipeline("snapshot", *to_service, "--out", out)
            assert service.alter(*PROPOSED).status_code == 200
            with collecting(kafka, folder / "after", INTERVAL_S):
                begun, ended = load(kafka)
    pipeline("ingest", "--format", "collect", "--input", folder / "before", "--out", out)
    pictures = folder / "pictures"
    pipeline(
        *("whatif", "--input", out, "--quotas", out, "--alterations", body, "--out", answers),
        *("--plot", pictures),
    )
    rows = pq.read_table(answers / "whatif_entity").to_pylist()
    modelled = {
        row["bucket_user"]: row["throttled_s_new"] / LOAD_S for row in rows if row["bucket_user"]
    }
    return Outcome(modelled, throttled_scrapes(folder / "after", begun, ended))


@pytest.mark.parametrize("name", CLIENTS)
def test_the_model_throttles_for_as_long_as_the_broker(outcome: Outcome, name: str):
    assert abs(outcome.modelled[name] - outcome.measured[name]) <= 0.15, outcome
