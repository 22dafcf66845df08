"""DuckDB, with SQL of its own, finds what Spark finds; in a long run for a million observations."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.pipeline.lake import Lake
from app.pipeline.synth.observations import observations
from app.pipeline.synth.plan import Plan
from app.pipeline.synth.quotas import quotas
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from benchmarks.pipeline import duckdb_arm, spark_arms
from tests.testkit.sizes import size

ROWS, ENTITIES = size((10_000, 500), (1_000_000, 10_000))


@pytest.mark.long
def test_two_engines_and_two_methods_give_one_answer(spark: SparkSession, tmp_path: Path):
    plan = Plan(3, ROWS, ENTITIES, "made-up", datetime(2026, 1, 1, tzinfo=UTC))
    lake = Lake(spark, str(tmp_path))
    lake.write(quotas(spark, plan), QUOTA_VERSION)
    lake.write(observations(spark, plan), OBSERVATION_MINUTE)
    with duckdb_arm.connected(2) as engine:
        expected = duckdb_arm.three_look_ups(engine, tmp_path)
    assert sum(rows for rows, _ in expected.values()) == ROWS
    assert {level for level, _ in expected} == set(range(9))
    assert spark_arms.three_look_ups(spark, tmp_path) == expected
    assert spark_arms.eight_joins(spark, tmp_path) == expected
