"""Real throttling, from a real broker's metrics to incidents: the right quota at the right time."""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.domain.entities import show_name
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.localdev.traffic import TrafficClient, prepare_traffic, run_traffic
from tests.pipeline.real_broker import collecting, pipeline
from tests.testkit.accounts import allow
from tests.testkit.postgres import migrated_database
from tests.testkit.service import acl, running_service

pytestmark = pytest.mark.long

QUIET_S = 60
LOAD_S = 150
INTERVAL_S = 5
KEY = "producer_byte_rate"
LIMITS = {"user": 100_000, "pair": 150_000, "default": 120_000}
PAIR_CLIENT = "etl, 100%+"

QUOTAS = [
    ({"user": "carol"}, LIMITS["user"]),
    ({"user": "alice", "client-id": PAIR_CLIENT}, LIMITS["pair"]),
    ({"user": None}, LIMITS["default"]),
]
CLIENTS = [
    TrafficClient("carol", "loud", 300_000),
    TrafficClient("carol", "quiet", 20_000),
    TrafficClient("alice", PAIR_CLIENT, 450_000),
    TrafficClient("bob", "web", 360_000),
    TrafficClient("dave", "calm", 20_000),
]
USERS = {name: f"{name}-secret" for name in ("alice", "bob", "carol", "dave")}

Bucket = tuple[str, str, int, str | None, bool, str | None, bool]
"""Tags of the metric, level, and the entity whose quota limits it."""

EXPECTED: dict[Bucket, int] = {
    ("carol", "", 3, "carol", False, "", False): LIMITS["user"],
    ("alice", PAIR_CLIENT, 1, "alice", False, PAIR_CLIENT, False): LIMITS["pair"],
    ("bob", "", 6, "", True, "", False): LIMITS["default"],
}


@dataclass
class Outcome:
    """The folders of all tables and of the pictures, and when the load began and ended."""

    folder: Path
    pictures: Path
    begun: datetime
    ended: datetime

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.folder / table).to_pylist()
        return rows

    def bucket(self, row: Mapping[str, Any]) -> Bucket:
        """Return whose bucket a row of dim_bucket is."""
        return (
            row["bucket_user"],
            row["bucket_client"],
            row["level"],
            row["quota_user"],
            row["quota_user_default"],
            row["quota_client_id"],
            row["quota_client_default"],
        )


def load(kafka: LocalKafka) -> tuple[datetime, datetime]:
    """Run the clients; return the minutes in which they began and ended."""
    done = threading.Event()
    clients = threading.Thread(
        target=run_traffic, args=(kafka.sasl_bootstrap_servers, CLIENTS, done)
    )
    begun = datetime.now(UTC)
    clients.start()
    # What takes time here is the measurement itself.
    done.wait(LOAD_S)
    done.set()
    clients.join()
    return begun, datetime.now(UTC)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, postgres: LocalPostgres) -> Outcome:
    folder = tmp_path_factory.mktemp("real-metrics")
    _, service_url = migrated_database(postgres, "real_metrics")
    with LocalKafka(folder / "kafka", plain_users=USERS, metrics=True) as kafka:
        allow(kafka, acl("alice", "ALTER_CONFIGS"))
        prepare_traffic(kafka.bootstrap_servers)
        with running_service(folder, kafka.bootstrap_servers, service_url) as service:
            changes = [
                {"entity": entity, "ops": [{"key": KEY, "value": value}]}
                for entity, value in QUOTAS
            ]
            assert service.alter(*changes).status_code == 200
            with collecting(kafka, folder / "raw", INTERVAL_S):
                begun, ended = load(kafka)
                threading.Event().wait(QUIET_S)
            (folder / "token").write_text("alice")
            out = folder / "out"
            pipeline(
                "snapshot", "--server", service.url, "--token-file", folder / "token", "--out", out
            )
    pipeline("ingest", "--format", "collect", "--input", folder / "raw", "--out", out)
    pipeline("resolve", "--input", out, "--quotas", out, "--out", out)
    pipeline("utilization", "--input", out, "--out", out)
    pipeline("incidents", "--input", out, "--out", out)
    pipeline("plot", "--input", out, "--out", folder / "pictures")
    return Outcome(out, folder / "pictures", begun, ended)


def throttled_buckets(outcome: Outcome) -> dict[int, Bucket]:
    return {
        row["bucket_id"]: outcome.bucket(row)
        for row in outcome.rows("dim_bucket")
        if outcome.bucket(row) in EXPECTED
    }


def test_each_rule_is_named_with_its_level_and_its_bucket(outcome: Outcome):
    assert set(throttled_buckets(outcome).values()) == set(EXPECTED)
    limits = {row["bucket_id"]: row["limit"] for row in outcome.rows("series_limit")}
    for bucket_id, bucket in throttled_buckets(outcome).items():
        assert limits[bucket_id] == EXPECTED[bucket]


def test_who_stays_below_has_no_incident_and_the_others_have_one_each(outcome: Outcome):
    incidents = [row["bucket_id"] for row in outcome.rows("throttle_incident")]
    assert sorted(incidents) == sorted(throttled_buckets(outcome))


def test_an_incident_lasts_as_long_as_the_load(outcome: Outcome):
    minute = timedelta(minutes=1)
    incidents = outcome.rows("throttle_incident")
    assert len(incidents) == len(EXPECTED)
    for row in incidents:
        assert abs(row["start"] - _floor(outcome.begun)) <= minute
        assert abs(row["end"] - (_floor(outcome.ended) + minute)) <= minute
        assert row["brokers_affected"] == 1


def test_a_day_shows_a_bucket_at_its_limit(outcome: Outcome):
    days = {
        row["bucket_id"]: row for row in outcome.rows("utilization_daily") if row["broker_id"] == 1
    }
    throttled = throttled_buckets(outcome)
    assert len(throttled) == len(EXPECTED)
    for bucket_id in throttled:
        assert days[bucket_id]["throttled_minutes"] >= math.floor(LOAD_S / 60)
        assert days[bucket_id]["util_p99"] > 0.9


def test_nothing_was_quarantined_and_every_scrape_counts(outcome: Outcome):
    # A table is made by its first rows.
    assert not (outcome.folder / "quarantine").exists()
    assert {row["broker_id"] for row in outcome.rows("rate_minute")} == {1}


def test_each_picture_shows_the_buckets_that_were_throttled(outcome: Outcome):
    pictures = sorted(outcome.pictures.glob("*.png"))
    assert [item.stem for item in pictures] == [
        "percentile_ladder",
        "rate_against_limit",
        "utilization_heat_map",
    ]
    names = [show_name(name) for name in ("carol", PAIR_CLIENT, "bob")]
    for picture in pictures:
        csv = picture.with_suffix(".csv").read_text()
        assert all(name in csv for name in names), picture


def _floor(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
