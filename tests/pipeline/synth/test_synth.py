"""Made-up data are what was asked for, and the same again."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.domain.quota_keys import QuotaKey
from app.pipeline.folders import RunFolder
from app.pipeline.lake import schema_of
from app.pipeline.storage import write_table
from app.pipeline.synth.observations import observations
from app.pipeline.synth.plan import KEYS, Plan
from app.pipeline.synth.quotas import entities_of_levels, quotas
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from tests.testkit.sizes import size

LARGE = 200_000
ROWS = size(20_000, LARGE)
START = datetime(2026, 1, 1, tzinfo=UTC)
ENTITY = ("user", "user_default", "client_id", "client_default")


def plan(observations: int, entities: int = 100, seed: int = 1) -> Plan:
    return Plan(seed, observations, entities, "synth", START)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return observations(spark, plan(ROWS)).cache()


@pytest.fixture(scope="module")
def versions(spark: SparkSession) -> DataFrame:
    return quotas(spark, plan(1, entities=1_003)).cache()


@pytest.mark.parametrize("size", [1, 2, 7, 999, 10_000, 172_800, 172_801, 20_000_000, 10**9])
def test_the_sessions_of_a_day_hold_its_rows(size: int):
    sizes = plan(size)
    rows = -(-size // sizes.days)
    hot = -(-rows // 10)
    assert hot <= sizes.hot_sessions * sizes.minutes
    assert sizes.hot_sessions <= sizes.brokers * len(KEYS)
    others = (sizes.sessions_a_day - sizes.hot_sessions) * sizes.session_minutes
    assert others >= rows - rows // 10


def test_a_row_is_known_by_its_key(rows: DataFrame):
    assert rows.count() == ROWS
    assert rows.select(*OBSERVATION_MINUTE.key).distinct().count() == ROWS
    assert rows.select("dt").distinct().count() == plan(ROWS).days == size(1, 2)


def test_the_rows_have_the_columns_of_the_table_and_no_nulls_but_where_allowed(rows: DataFrame):
    assert rows.columns == schema_of(OBSERVATION_MINUTE).fieldNames()
    nullable = {"throttle_ms_avg", "throttle_ms_max", "bytes_est"}
    nulls = rows.select(
        *(F.count_if(F.col(column).isNull()).alias(column) for column in rows.columns)
    )
    assert {name for name, n in nulls.first().asDict().items() if n} == nullable


def test_one_pair_has_a_tenth_of_the_rows_and_the_others_little(rows: DataFrame):
    counts = rows.groupBy("user", "client_id").count().orderBy(F.desc("count")).take(2)
    assert counts[0]["count"] == ROWS / 10
    assert counts[1]["count"] < ROWS / 100


def test_the_names_are_as_odd_as_kafka_allows(rows: DataFrame):
    users = {row.user for row in rows.select("user").distinct().collect()}
    clients = {row.client_id for row in rows.select("client_id").distinct().collect()}
    assert {"", "<default>"} <= users & clients
    assert any(not name.isascii() for name in users)
    assert any("=" in name and "," in name for name in users)
    assert any("=" in name and "," in name for name in clients)
    assert any('"' in name for name in clients)
    assert any("%" in name for name in users)


def test_several_brokers_all_keys_and_some_throttled_minutes_over_the_limit(rows: DataFrame):
    assert rows.select("broker_id").distinct().count() == 3
    assert {row.key for row in rows.select("key").distinct().collect()} == set(KEYS)
    assert set(KEYS) <= {str(key) for key in QuotaKey}
    throttled = rows.where("throttle_ms_avg > 0")
    assert ROWS / 400 < throttled.count() < ROWS / 10
    assert throttled.where("user = '' or client_id = ''").count() == 0


@pytest.mark.long
def test_nights_are_quieter_than_days(spark: SparkSession):
    """Fewer rows are those of the first hours."""
    rows = observations(spark, plan(LARGE))
    calm = rows.where("throttle_ms_avg is null and key = 'producer_byte_rate'")
    by_hour = calm.groupBy(F.hour("ts").alias("hour")).agg(F.avg("rate_avg").alias("rate"))
    rates = {row.hour: row.rate for row in by_hour.collect()}
    assert rates[12] > 2 * rates[0]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 22, 23, 24, 1_003, 100_000])
def test_the_levels_share_the_entities_out(size: int):
    assert sum(entities_of_levels(size).values()) == size


def test_every_entity_has_one_to_three_keys_and_every_shape_is_there(versions: DataFrame):
    entities = versions.groupBy(*ENTITY).agg(F.count("*").alias("keys"))
    assert entities.count() == 1_003
    assert {row["keys"] for row in entities.select("keys").distinct().collect()} == {1, 2, 3}
    kinds = entities.select(
        "user_default",
        (F.col("user") != "").alias("user"),
        "client_default",
        (F.col("client_id") != "").alias("client"),
    )
    assert kinds.distinct().count() == 8
    assert versions.select(*QUOTA_VERSION.key).distinct().count() == versions.count()
    assert versions.where("not value > 0").count() == 0
    assert versions.where("user = '<default>' and not user_default").count() > 0


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
        run = RunFolder(tmp_path / f"{seed}-{number}", "run")
        write_table(observations(spark, plan(1_000, seed=seed)), OBSERVATION_MINUTE, run)
        run.publish()
        written.append(contents(tmp_path / f"{seed}-{number}"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert written[0] == written[1]
    assert not set(written[0]) & set(written[2])
