"""Made-up data are what was asked for, the same again, and the same in each shape."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.domain.quota_keys import QuotaKey
from app.pipeline.lake import Lake, schema_of
from app.pipeline.synth.formats import SHAPES
from app.pipeline.synth.tables import KEYS, Plan, observations, quotas
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from tests.pipeline.ingest.points import observed, run_job
from tests.testkit.bucket_worlds import Row, rows_of
from tests.testkit.sizes import size

LARGE = 200_000
ROWS = size(8_000, LARGE)
START = datetime(2026, 1, 1, tzinfo=UTC)
SHAPED = 2_000
FILES = sorted(set(SHAPES) - {"kafka-json"})
PROVENANCE = ("source", "ingest_run_id")
ENTITY = ("user", "user_default", "client_id", "client_default")


def plan(observations: int, entities: int = 100, seed: int = 1) -> Plan:
    return Plan(seed, observations, entities, "synth", START)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> list[Row]:
    return rows_of(observations(spark, plan(ROWS)))


@pytest.fixture(scope="module")
def versions(spark: SparkSession) -> list[Row]:
    return rows_of(quotas(spark, plan(1, entities=1_003)))


def values(rows: list[Row], *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in columns) for row in rows)


@pytest.mark.parametrize("size", [1, 2, 7, 999, 10_000, 172_800, 172_801, 20_000_000, 10**9])
def test_the_sessions_hold_the_rows(size: int):
    sizes = plan(size)
    others = size - sizes.hot_rows
    assert sizes.hot_series * sizes.minutes >= sizes.hot_rows
    assert sizes.sessions * sizes.session_minutes >= others
    assert 4 * sizes.pairs_a_day * sizes.days >= sizes.sessions
    assert sizes.session_minutes <= sizes.minutes // sizes.days


def test_a_key_identifies_a_row(rows: list[Row]):
    assert len(rows) == len(values(rows, "cluster_id", "dt", *OBSERVATION_MINUTE.order)) == ROWS
    assert len(values(rows, "dt")) == plan(ROWS).days == size(1, 2)


def test_the_rows_have_the_columns_of_the_table_and_no_nulls_but_where_allowed(rows: list[Row]):
    assert list(rows[0]) == schema_of(OBSERVATION_MINUTE).fieldNames()
    nulls = {name for row in rows for name, value in row.items() if value is None}
    assert nulls == {"throttle_ms_avg", "throttle_ms_max", "bytes_est"}


def test_one_pair_has_a_tenth_of_the_rows_and_the_others_little(rows: list[Row]):
    (_, most), (_, second) = values(rows, "user", "client_id").most_common(2)
    assert most == ROWS / 10
    assert second < ROWS / size(50, 100)


def test_the_names_are_as_odd_as_kafka_allows(rows: list[Row]):
    users, clients = ({row[name] for row in rows} for name in ("user", "client_id"))
    assert {"", "<default>"} <= users & clients
    assert any(not name.isascii() for name in users)
    assert any("=" in name and "," in name for name in users)
    assert any("=" in name and "," in name for name in clients)
    assert any('"' in name for name in clients)
    assert any("%" in name for name in users)


def test_several_brokers_all_keys_and_some_throttled_minutes_over_the_limit(rows: list[Row]):
    assert len(values(rows, "broker_id")) == 3
    assert {row["key"] for row in rows} == set(KEYS) <= {str(key) for key in QuotaKey}
    throttled = [row for row in rows if (row["throttle_ms_avg"] or 0) > 0]
    assert ROWS / 400 < len(throttled) < ROWS / 10
    assert all(row["user"] and row["client_id"] for row in throttled)


@pytest.mark.long
def test_nights_are_quieter_than_days(spark: SparkSession):
    """Fewer rows are those of the first hours."""
    rows = observations(spark, plan(LARGE))
    calm = rows.where("throttle_ms_avg is null and key = 'producer_byte_rate'")
    by_hour = calm.groupBy(F.hour("ts").alias("hour")).agg(F.avg("rate_avg").alias("rate"))
    rates = {row.hour: row.rate for row in by_hour.collect()}
    assert rates[12] > 2 * rates[0]


def test_every_entity_has_one_to_three_keys_and_every_shape_is_there(versions: list[Row]):
    entities = values(versions, *ENTITY)
    assert len(entities) == 1_003
    assert set(entities.values()) == {1, 2, 3}
    assert (
        len({(bool(u), default_u, bool(c), default_c) for u, default_u, c, default_c in entities})
        == 8
    )
    assert len(values(versions, "cluster_id", *QUOTA_VERSION.order)) == len(versions)
    assert all(row["value"] > 0 for row in versions)
    assert any(row["user"] == "<default>" and not row["user_default"] for row in versions)


def contents(folder: Path) -> list[str]:
    return sorted(
        hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*.parquet")
    )


def test_the_bytes_follow_from_the_seed_whatever_the_partitions(
    spark: SparkSession, tmp_path: Path
):
    written = []
    for seed, number in ((1, "2"), (1, "7"), (2, "2")):
        spark.conf.set("spark.sql.shuffle.partitions", number)
        out = Lake(spark, str(tmp_path / f"{seed}-{number}"))
        out.write(observations(spark, plan(500, seed=seed)), OBSERVATION_MINUTE)
        written.append(contents(tmp_path / f"{seed}-{number}"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert written[0] == written[1]
    assert not set(written[0]) & set(written[2])


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth")
    sizes = ["--seed", "3", "--observations", str(SHAPED), "--entities", "50", "--cluster", "a=b/c"]
    command = [sys.executable, "-m", "app.pipeline.main", "synth", *sizes, "--shape", "all"]
    done = subprocess.run(
        [*command, "--out", str(folder), "--master", "local[2]", "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["observation_minute"] == SHAPED
    return folder


@pytest.mark.long
@pytest.mark.parametrize("shape", FILES)
def test_a_shape_comes_back_as_the_same_observations(
    spark: SparkSession, made_up: Path, tmp_path: Path, shape: str
):
    expected = Lake(spark, str(made_up)).read(OBSERVATION_MINUTE).drop(*PROVENANCE)
    job = run_job(spark, shape, made_up / shape, tmp_path, "--cluster", "a=b/c")
    assert job.quarantined == 0
    minutes = observed(spark, tmp_path)
    found = minutes.where("samples > 0").drop(*PROVENANCE)
    assert set(map(tuple, found.collect())) == set(map(tuple, expected.collect()))
    assert found.count() == SHAPED


@pytest.mark.long
def test_the_lines_for_kafka_are_those_of_the_adapter(made_up: Path):
    shapes = ("adapter-json", "kafka-json")
    lines = [next((made_up / shape).glob("part-*")).read_text() for shape in shapes]
    assert lines[0] == lines[1]
    first = json.loads(lines[0].splitlines()[0])
    assert set(first) == {"timestamp", "value", "name", "labels"}
    assert isinstance(first["value"], str)


@pytest.mark.long
def test_names_stand_in_labels_as_brokers_export_them(made_up: Path):
    table = pq.read_table(made_up / "collect" / "collected")
    assert table.schema.names == [
        *("cluster_id", "ts", "broker_id", "metric", "resource", "user", "client_id", "value")
    ]
    rows = table.to_pylist()
    ups = [row for row in rows if row["metric"] == "up"]
    assert len({(row["ts"], row["broker_id"]) for row in rows}) == len(ups)
    users = {row["user"] for row in rows}
    assert "%3Cdefault%3E" in users
    assert '"<default>"' in {row["client_id"] for row in rows}
