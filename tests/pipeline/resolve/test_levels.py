"""Spark finds what the domain finds: level, limit and bucket of every caller."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.lake import Lake
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.series import resolve
from app.pipeline.resolve.versions import Versions
from app.pipeline.synth.tables import Plan, observations, quotas
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from benchmarks.pipeline import spark_arms
from tests.pipeline.resolve.clusters import (
    KEYS,
    SEEN,
    Version,
    clusters,
    held_at,
    histories,
    index_of,
    judged,
    minute,
    observation,
    observation_table,
    quota_table,
)
from tests.testkit.sizes import size

Found = dict[str, Any]

COUNT = size(80, 5_000)
MINUTES = 24
CALLERS = (("a", "a"), ("a", "b"), ("b", ""), ("", "a"), ("", "z"), ("z", "z"))
FIRST_SEEN = {"audit": 0, "inferred": 0, "snapshot": 3}
"""The origin of an entity's first version, and the level that limited its minutes before that."""


def resolved(
    asked: Sequence[Mapping[str, Any]],
    versions: Sequence[Version],
    *,
    history: bool = False,
) -> list[Found]:
    chosen = Versions.in_history if history else Versions.latest
    look_up = LookUp.of(chosen(quota_table(versions)))
    found: list[Found] = resolve(observation_table(asked), look_up).to_pylist()
    return found


def answer(row: Found) -> tuple[int, float | None, str, str]:
    return row["level"], row["limit"], row["bucket_user"], row["bucket_client"]


@pytest.mark.timeout(900)
@pytest.mark.small
def test_random_clusters_resolve_as_in_the_domain():
    worlds = list(clusters(7, COUNT))
    names = dict(enumerate(product(SEEN, SEEN)))
    dice = random.Random(7)
    asked = [
        observation(str(number), key.value, 0, broker_id=pair, user=user, client_id=client)
        for number in range(COUNT)
        for pair, (user, client) in dice.sample(sorted(names.items(), key=str), 6)
        for key in KEYS
    ]
    found = resolved(asked, [version for world in worlds for version in world])
    assert len(found) == len(asked)
    indexes = [index_of(world) for world in worlds]
    wrong = [
        row
        for row in found
        if answer(row)
        != judged(indexes[int(row["cluster_id"])], row["key"], *names[row["broker_id"]])
    ]
    assert wrong == []
    assert {row["level"] for row in found} == set(range(9))


@pytest.fixture(scope="module")
def histories_resolved() -> tuple[list[list[Version]], list[Found]]:
    """Generated clusters, and what is found in them and in those of ``FIRST_SEEN``."""
    worlds = list(histories(11, size(20, 150), MINUTES))
    asked = [
        observation(str(number), key.value, at, broker_id=pair, user=user, client_id=client)
        for number in range(len(worlds))
        for key in KEYS
        for at in range(MINUTES)
        for pair, (user, client) in enumerate(CALLERS)
    ]
    versions = [version for world in worlds for version in world]
    entity, key = (("user", "a"),), KEYS[0]
    for origin in FIRST_SEEN:
        first = Version(origin, entity, key, 5.0, 2, 3, origin)
        versions += [first, Version(origin, entity, key, 6.0, 3, None)]
        asked += [observation(origin, key.value, at, user="a", client_id="x") for at in range(5)]
    found = resolved(asked, versions, history=True)
    assert len(found) == len(asked)
    return worlds, sorted(found, key=lambda row: row["ts"])


def of_cluster(found: list[Found], cluster: str) -> list[Found]:
    return [row for row in found if row["cluster_id"] == cluster]


@pytest.mark.timeout(900)
def test_a_history_resolves_as_a_replay_minute_by_minute(
    histories_resolved: tuple[list[list[Version]], list[Found]],
):
    worlds, found = histories_resolved
    at_minute = {minute(at): at for at in range(MINUTES)}
    wrong = []
    for number, world in enumerate(worlds):
        replayed = [index_of(held_at(world, at)) for at in range(MINUTES)]
        wrong += [
            row
            for row in of_cluster(found, str(number))
            if answer(row)
            != judged(replayed[at_minute[row["ts"]]], row["key"], *CALLERS[row["broker_id"]])
        ]
    assert wrong == []


def test_a_value_holds_before_its_first_version_where_a_snapshot_saw_it_first(
    histories_resolved: tuple[list[list[Version]], list[Found]], subtests: pytest.Subtests
):
    for origin, level in FIRST_SEEN.items():
        with subtests.test(origin=origin):
            before = (level, 5.0 if level else None)
            answers = [
                (row["level"], row["limit"]) for row in of_cluster(histories_resolved[1], origin)
            ]
            assert answers == [before, before, (3, 5.0), (3, 6.0), (3, 6.0)]


ROWS, ENTITIES = size((10_000, 500), (1_000_000, 10_000))


@pytest.mark.long
def test_two_engines_and_two_methods_give_one_answer(spark: SparkSession, tmp_path: Path):
    plan = Plan(3, ROWS, ENTITIES, "made-up", datetime(2026, 1, 1, tzinfo=UTC))
    lake = Lake(spark, str(tmp_path))
    lake.write(quotas(spark, plan), QUOTA_VERSION)
    lake.write(observations(spark, plan), OBSERVATION_MINUTE)
    # Imported where it is used: DuckDB tells what each process that has only imported it "leaked".
    from benchmarks.pipeline import duckdb_arm  # noqa: PLC0415

    with duckdb_arm.connected(2) as engine:
        expected = duckdb_arm.look_ups(engine, tmp_path, table=OBSERVATION_MINUTE)
    assert sum(rows for rows, _ in expected.values()) == ROWS
    assert {level for level, _ in expected} == set(range(9))
    assert spark_arms.look_ups(spark, tmp_path, table=OBSERVATION_MINUTE) == expected
    assert spark_arms.eight_joins(spark, tmp_path, table=OBSERVATION_MINUTE) == expected
