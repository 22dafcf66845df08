"""What `whatif` says of a quota, and what a real broker does once the quota is set.

Both are shares of the minutes that were under load from end to end. The broker's is that of the
scrapes in which it reported throttling.
"""

import json
import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

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
SLOW_FETCHES = f"c{RATES[0]}"
"""It stays below the limit, but each of its fetches is five seconds of it, which is not modelled:
the broker delays it now and then. The model sees it where two of them make a minute's maximum,
which is the limit itself but for some bytes."""

PROPOSED = [
    {"entity": {"user": name}, "ops": [{"key": key, "value": LIMIT}]} for name, key in KEYS.items()
]


@dataclass
class Outcome:
    """Shares of the time in which each client was throttled, by the model and by the broker."""

    modelled: dict[str, float]
    measured: dict[str, float]


class Span(NamedTuple):
    """When a load began and ended."""

    begun: datetime
    ended: datetime

    def has(self, minute: datetime) -> bool:
        """Tell whether a minute was under load from end to end."""
        return self.begun <= minute and minute + timedelta(minutes=1) <= self.ended


def load(kafka: LocalKafka) -> Span:
    """Run the clients."""
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
    return Span(begun, datetime.now(UTC))


def modelled_shares(answers: Path, span: Span) -> dict[str, float]:
    """Return for which share of the whole minutes each user would be throttled."""
    rows = pq.read_table(answers / "whatif_entity").to_pylist()
    # Of the bucket without a client-id: that of the pair is left by its only member.
    users = {row["bucket_id"]: row["bucket_user"] for row in rows if not row["bucket_client"]}
    shares: dict[str, list[float]] = {name: [0.0] for name in CLIENTS}
    minutes = pq.read_table(answers / "whatif_timeline").to_pylist()
    for row in minutes:
        if row["bucket_id"] in users and span.has(row["ts"]):
            shares[users[row["bucket_id"]]].append(row["throttled_s_new"] / 60)
    return {name: sum(found) / max(len(found) - 1, 1) for name, found in shares.items()}


def measured_shares(raw: Path, span: Span) -> dict[str, float]:
    """Return in which share of the scrapes the broker said that it throttles each user."""
    resources = {"Produce": PRODUCERS, "Fetch": CONSUMERS}
    scrapes: dict[str, list[bool]] = {name: [] for name in CLIENTS}
    for row in pq.read_table(raw / "collected").to_pylist():
        is_own = row["user"] in resources.get(row["resource"], {}) and not row["client_id"]
        if is_own and "throttle" in row["metric"] and span.has(row["ts"].replace(second=0)):
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
                before = load(kafka)
            to_service = ("--server", service.url, "--token-file", folder / "token")
            pipeline("snapshot", *to_service, "--out", out)
            assert service.alter(*PROPOSED).status_code == 200
            with collecting(kafka, folder / "after", INTERVAL_S):
                after = load(kafka)
    pipeline("ingest", "--format", "collect", "--input", folder / "before", "--out", out)
    pictures = folder / "pictures"
    pipeline(
        *("whatif", "--input", out, "--quotas", out, "--alterations", body, "--out", answers),
        *("--plot", pictures),
    )
    return Outcome(modelled_shares(answers, before), measured_shares(folder / "after", after))


@pytest.mark.parametrize("name", sorted({*CLIENTS} - {SLOW_FETCHES}))
def test_the_model_throttles_for_as_long_as_the_broker(outcome: Outcome, name: str):
    assert abs(outcome.modelled[name] - outcome.measured[name]) <= 0.15, outcome


def test_large_fetches_are_throttled_below_the_limit(outcome: Outcome):
    assert 0 < outcome.measured[SLOW_FETCHES] < 1
    assert outcome.modelled[SLOW_FETCHES] <= outcome.measured[SLOW_FETCHES] + 0.15, outcome
