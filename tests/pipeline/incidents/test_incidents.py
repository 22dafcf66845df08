"""Stretches of violating minutes: by hand, and by brute force on random worlds."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.jobs.attribution import with_contributors, with_quotas
from app.pipeline.jobs.incidents import incidents
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE
from tests.testkit.bucket_worlds import (
    Row,
    at,
    bucket,
    drawn,
    frame,
    minute,
    observation,
    rows_of,
)


def found(spark: SparkSession, rows: list[Row], gap: int = 1) -> list[Row]:
    """Return the incidents in the order of start and broker."""
    result = rows_of(incidents(frame(spark, BUCKET_MINUTE, rows), gap))
    return sorted(result, key=lambda row: (row["start"], row["bucket_id"], row["broker_id"]))


def test_a_stretch_across_midnight_is_one_incident(spark: SparkSession):
    over = [
        minute(1439, rate_max=150.0, rate_avg=75.0, throttle_ms_max=10.0),
        minute(1440, rate_max=120.0, throttle_ms_max=30.0, throttle_ms_avg=5.0),
        minute(1441, rate_max=90.0, throttle_ms_avg=20.0, level=1),
    ]
    rows = [*over, minute(1442), minute(1450, rate_max=100.0)]
    rows += [minute(1440, broker_id=2, rate_max=101.0), minute(1450, broker_id=3, rate_max=101.0)]
    first, on_two, at_the_end = found(spark, rows)
    assert (first["start"], first["end"], first["minutes"]) == (at(1439), at(1442), 3)
    assert (first["peak_ratio"], first["throttle_ms_p95"], first["level"]) == (1.5, 30.0, 1)
    assert first["est_deferred_bytes"] == 50 * 60 // 2 + 20 * 60
    assert (first["brokers_affected"], first["status"]) == (2, "closed")
    assert (on_two["broker_id"], on_two["throttle_ms_p95"]) == (2, None)
    assert on_two["brokers_affected"] == 2
    assert (at_the_end["status"], at_the_end["brokers_affected"]) == ("open", 1)
    assert len({row["incident_id"] for row in (first, on_two, at_the_end)}) == 3


def test_throttling_without_a_limit_has_no_ratio_and_other_keys_no_bytes(spark: SparkSession):
    unlimited = minute(0, limit=None, level=0, throttle_ms_max=1.0)
    mutation = minute(0, bucket_id=8, key="controller_mutation_rate", rate_max=200.0)
    nothing, other = found(spark, [unlimited, mutation])
    assert (nothing["peak_ratio"], nothing["est_deferred_bytes"]) == (None, 0)
    assert (other["peak_ratio"], other["est_deferred_bytes"]) == (2.0, None)


_MINUTES = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 30), st.booleans(), st.booleans()),
    min_size=1,
    max_size=40,
    unique_by=lambda item: item[:2],
)


def _brute_force(world: list[tuple[int, int, bool, bool]], gap: int) -> set[tuple[Any, ...]]:
    """Return (broker, start, end, minutes, brokers affected, open) of each incident."""
    stretches: list[tuple[int, list[int]]] = []
    for broker in (1, 2):
        violating = sorted(
            time for on, time, over, slow in world if on == broker and (over or slow)
        )
        if not violating:
            continue
        cuts = [new for new, (old, late) in enumerate(pairwise(violating), 1) if late - old > gap]
        edges = [0, *cuts, len(violating)]
        stretches += [(broker, violating[begin:end]) for begin, end in pairwise(edges)]
    last = max(time for _, time, _, _ in world)
    return {
        (
            *(broker, times[0], times[-1] + 1, len(times)),
            len({b for b, t in stretches if t[0] <= times[-1] and t[-1] >= times[0]}),
            times[-1] == last,
        )
        for broker, times in stretches
    }


@pytest.mark.parametrize("gap", [1, 4])
def test_random_worlds_agree_with_brute_force(spark: SparkSession, gap: int):
    worlds = drawn(_MINUTES, 150)
    rows = [
        minute(
            time,
            cluster_id=f"{number:03}",
            broker_id=broker,
            rate_max=101.0 if over else 99.0,
            throttle_ms_avg=1.0 if slow else None,
        )
        for number, world in enumerate(worlds)
        for broker, time, over, slow in world
    ]
    mine: dict[str, set[tuple[Any, ...]]] = {}
    for row in found(spark, rows, gap):
        start, end = ((row[name] - at(0)).total_seconds() / 60 for name in ("start", "end"))
        one = (row["broker_id"], start, end, row["minutes"], row["brokers_affected"])
        mine.setdefault(row["cluster_id"], set()).add((*one, row["status"] == "open"))
    for number, world in enumerate(worlds):
        assert mine.get(f"{number:03}", set()) == _brute_force(world, gap)


def test_any_partitions_give_the_same_incidents(spark: SparkSession):
    rows = [
        minute(number, broker_id=broker, rate_max=90.0 + number % 17, throttle_ms_avg=number / 7)
        for number in range(0, 200, 3)
        for broker in (1, 2, 3)
    ]
    frames = [frame(spark, BUCKET_MINUTE, rows).repartition(number) for number in (2, 16)]
    two, sixteen = (
        sorted(rows_of(incidents(item, 3)), key=lambda row: row["incident_id"]) for item in frames
    )
    assert two == sixteen


def _named(spark: SparkSession, minutes: DataFrame, pairs: list[Row], dim: list[Row]) -> list[Row]:
    buckets = frame(spark, DIM_BUCKET, dim)
    observed = frame(spark, OBSERVATION_MINUTE, pairs)
    named = with_quotas(incidents(minutes), buckets)
    result = rows_of(with_contributors(named, minutes, buckets, observed))
    return sorted(result, key=lambda row: row["bucket_id"])


def test_an_incident_names_its_quota_and_who_began(spark: SparkSession):
    dim = [
        bucket(last_seen=at(1)),
        bucket(level=6, quota_user="", quota_user_default=True),
        bucket(bucket_id=8, level=1, bucket_client="own", quota_client_id="own"),
        bucket(bucket_id=9, level=8, bucket_user="", bucket_client="etl", quota_user=""),
    ]
    minutes = [minute(5, rate_max=150.0, level=6), minute(5, bucket_id=8, level=1)]
    minutes.append(minute(5, bucket_id=9, level=8, rate_max=300.0))
    minutes.append(minute(6, rate_max=150.0, level=6))
    pairs = [observation(5, "alice", f"app{number}", 10.0 + number) for number in range(6)]
    pairs += [
        observation(5, "alice", "own", 99.0),
        observation(5, "alice", "etl", 50.0),
        observation(5, "bob", "etl", 70.0),
        observation(5, "alice", "", 1.0),
        observation(6, "alice", "late", 1000.0),
        observation(5, "alice", "tagged", 1000.0, grain="bucket"),
    ]
    alices, etls = _named(spark, frame(spark, BUCKET_MINUTE, minutes), pairs, dim)
    quota = ("quota_user", "quota_user_default", "quota_client_id", "quota_client_default")
    assert [alices[name] for name in quota] == ["", True, "", False]
    told = json.loads(alices["first_contributors"])
    assert [item["client-id"] for item in told] == ["etl", "app5", "app4", "app3", "app2"]
    assert told[0] == {"user": "alice", "client-id": "etl", "rate_max": 50.0}
    assert [load["user"] for load in json.loads(etls["first_contributors"])] == ["bob"]


def test_without_names_and_pairs_both_are_null(spark: SparkSession):
    minutes = frame(spark, BUCKET_MINUTE, [minute(0, rate_max=101.0)])
    told = with_contributors(with_quotas(incidents(minutes), None), minutes, None, None)
    [row] = rows_of(told)
    assert (row["quota_user"], row["quota_user_default"]) == (None, None)
    assert row["first_contributors"] is None
