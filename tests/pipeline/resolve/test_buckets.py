"""The minutes of buckets, their names, and what stops a run."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from app.domain.quota_keys import QuotaKey
from app.pipeline.commands.resolve import add_arguments, write_buckets
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folders import RunFolder
from app.pipeline.job import Job
from app.pipeline.options import add_common_options
from app.pipeline.resolve import limits, look_ups
from app.pipeline.resolve.look_ups import Hashing
from app.pipeline.storage import read_table, write_table
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE
from tests.pipeline.resolve.clusters import (
    Version,
    minute,
    observation,
    observation_table,
    quota_table,
)

KEY = QuotaKey.PRODUCER_BYTE_RATE
C = "c"
Rows = Sequence[Mapping[str, Any]]


def job_with(*options: str) -> Job:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    add_common_options(parser)
    return Job("resolve", parser.parse_args(options))


def write(
    out: Path, observations: DataFrame, versions: DataFrame, *options: str, day: str = "2026-11-21"
) -> Mapping[str, Any]:
    """Write the buckets of observations that lie in as many files as the frame has partitions."""
    given = RunFolder(out.with_name(f"{out.name} {day} in"), "run")
    write_table(observations, OBSERVATION_MINUTE, given)
    given.publish()
    job, run = job_with(*options), RunFolder(out, f"run of {day}")
    rows = read_table(versions.sparkSession, [given.folder], OBSERVATION_MINUTE)
    write_buckets(job, rows, versions, run, [{"cluster_id": C, "dt": day}])
    run.publish()
    return job.counts


def seen(user: str | None, client: str | None, at: int = 0, **others: Any) -> dict[str, Any]:
    return observation(C, KEY.value, at, user=user, client_id=client, **others)


def value(amount: float, since: int = 0, until: int | None = None, **names: str | None) -> Version:
    entity = tuple((kind.replace("_", "-"), name) for kind, name in sorted(names.items()))
    return Version(C, entity, KEY, amount, since, until)


def frames(spark: SparkSession, rows: Rows, *versions: Version) -> tuple[DataFrame, DataFrame]:
    return (
        spark.createDataFrame(observation_table(rows)),
        spark.createDataFrame(quota_table(versions)),
    )


def test_the_members_of_a_bucket_are_summed_minute_by_minute(spark: SparkSession, tmp_path: Path):
    rows = [
        seen("alice", "x", rate_avg=0.1, rate_max=1.5, bytes_est=6, throttle_ms_avg=10.0),
        seen("alice", "y", rate_avg=0.2, rate_max=2.5, bytes_est=12, throttle_ms_max=30.0),
        seen("alice", "y", rate_avg=0.4, rate_max=0.0, grain="bucket", throttle_ms_avg=20.0),
        seen("alice", "x", at=1),
        seen("bob", None, at=1, broker_id=2),
    ]
    counts = write(tmp_path, *frames(spark, rows, value(50, user="alice")))
    minutes = read_table(spark, [tmp_path], BUCKET_MINUTE).orderBy("ts", "broker_id").collect()
    first = minutes[0].asDict()
    assert first | {"bucket_id": 0, "dt": 0, "ts": 0} == {
        "cluster_id": C,
        "dt": 0,
        "ts": 0,
        "broker_id": 1,
        "key": KEY.value,
        "bucket_id": 0,
        "rate_avg": 0.7,
        "rate_max": 4.0,
        "throttle_ms_avg": 15.0,
        "throttle_ms_max": 30.0,
        "bytes_est": 18,
        "limit": 50.0,
        "level": 3,
        "contributors": 2,
    }
    assert [(row.limit, row.level, row.contributors) for row in minutes[1:]] == [
        (50.0, 3, 1),
        (None, 0, 1),
    ]
    assert counts == {
        "rows_in": 5,
        "rows_resolved": 5,
        "rows_unlimited": 1,
        "rows_out": {"bucket_minute": 3, "dim_bucket": 2},
    }


def test_a_bucket_is_named_with_the_entity_that_limits_it(spark: SparkSession, tmp_path: Path):
    rows = [seen("alice", "x"), seen("alice", "x", at=5), seen("", "z")]
    rows += [seen("bob", "y", at=2), seen("carol", "y", at=2)]
    quotas = [value(1, user="alice", client_id=None), value(2, client_id=None)]
    write(tmp_path, *frames(spark, rows, *quotas))
    names = read_table(spark, [tmp_path], DIM_BUCKET).orderBy("bucket_client").collect()
    expected = spark.sql(f"select xxhash64('{C}', '{KEY.value}', 'alice', 'x')").head()
    assert expected is not None
    assert names[0].bucket_id == expected[0]
    assert [tuple(row)[3:] for row in names] == [
        (2, "alice", "x", "alice", False, "", True, *map(naive, (0, 5))),
        (8, "", "y", "", False, "", True, *map(naive, (2, 2))),
        (8, "", "z", "", False, "", True, *map(naive, (0, 0))),
    ]


def test_who_shares_a_bucket_is_counted(spark: SparkSession, tmp_path: Path):
    rows = [seen(user, "x") for user in ("a", "b", "")] + [seen("a", "y")]
    for name, more in (("one", ()), ("two", (seen("a", "x", source="another"),))):
        write(tmp_path / name, *frames(spark, [*rows, *more], value(2, client_id=None)))
        minutes = read_table(spark, [tmp_path / name], BUCKET_MINUTE)
        assert sorted(row.contributors for row in minutes.collect()) == [1, 3]


def naive(at: int) -> object:
    return minute(at).replace(tzinfo=None)


def test_a_run_keeps_the_names_of_the_days_that_it_is_not_about(
    spark: SparkSession, tmp_path: Path
):
    quotas = [value(1, user="alice")]
    tomorrow = 24 * 60
    write(tmp_path, *frames(spark, [seen("alice", "x"), seen("old", "x")], *quotas))
    rows = [seen("alice", "x", at=tomorrow), seen("new", "x", at=tomorrow)]
    write(tmp_path, *frames(spark, rows, *quotas), day="2026-11-22")
    names = {
        row.bucket_user: (row.first_seen, row.last_seen)
        for row in read_table(spark, [tmp_path], DIM_BUCKET).collect()
    }
    assert names == {
        "alice": (naive(0), naive(tomorrow)),
        "old": (naive(0), naive(0)),
        "new": (naive(tomorrow), naive(tomorrow)),
    }


def test_order_and_partitions_change_no_bit(spark: SparkSession, tmp_path: Path):
    rows = [
        seen(
            f"u{number % 5}", f"c{number % 7}", at=number % 3, rate_avg=number / 7, broker_id=number
        )
        | {"rate_max": number / 3, "source": str(number), "broker_id": number % 2}
        for number in range(600)
    ]
    observed, versions = frames(spark, rows, value(9, user="u1"), value(5, client_id=None))
    written = []
    for partitions, order in ((2, "rate_avg"), (16, "source")):
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        out = tmp_path / str(partitions)
        write(out, observed.repartition(partitions).sortWithinPartitions(sf.desc(order)), versions)
        written.append(
            [
                read_table(spark, [out], table).orderBy(*table.order).collect()
                for table in (BUCKET_MINUTE, DIM_BUCKET)
            ]
        )
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert written[0] == written[1]
    assert len(written[0][0]) == 48


class Written(NamedTuple):
    """What a run was given, where it wrote, and which minutes."""

    given: tuple[DataFrame, DataFrame]
    out: Path
    minutes: list[Row]


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A run of a key for each set of rules, and of a key without rules."""
    rows = [seen(f"u{n % 5}", f"c{n % 7}", at=n % 3, rate_avg=n / 7) for n in range(105)]
    rules = [value(9, user="u1"), value(5, client_id=None)]
    other = QuotaKey.CONSUMER_BYTE_RATE
    rows += [seen(u, c) | {"key": other.value} for u in ("a", "b", "") for c in ("x", "y", "")]
    others = (value(1, user="a"), value(2, client_id="x"), value(3, user=None))
    rules += [replace(rule, key=other) for rule in others]
    rows += [seen("a", "x") | {"key": QuotaKey.REQUEST_PERCENTAGE.value}]
    given = frames(spark, rows, *rules)
    out = tmp_path_factory.mktemp("buckets") / "once"
    write(out, *given)
    return Written(given, out, minutes_of(spark, out))


def minutes_of(spark: SparkSession, out: Path) -> list[Row]:
    return read_table(spark, [out], BUCKET_MINUTE).orderBy(*BUCKET_MINUTE.order).collect()


@pytest.mark.long
def test_days_that_one_task_cannot_hold_give_the_same(
    spark: SparkSession, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.pipeline.commands.resolve.ROWS_OF_FILE", 20)
    out = tmp_path / "divided"
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        write(out, *written.given)
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    assert minutes_of(spark, out) == written.minutes
    files = [list((run / BUCKET_MINUTE.name).rglob("*.parquet")) for run in (written.out, out)]
    assert len(files[0]) == 1 < len(files[1])


@pytest.mark.long
def test_look_ups_that_are_too_large_to_broadcast_give_the_same(
    spark: SparkSession, written: Written, tmp_path: Path
):
    write(tmp_path / "merged", *written.given, "--broadcast-max", "0", "--as-of", "history")
    assert minutes_of(spark, tmp_path / "merged") == written.minutes


def test_another_seed_gives_other_ids_and_the_same_limits(
    spark: SparkSession, written: Written, tmp_path: Path
):
    write(tmp_path / "seed", *written.given, "--hash-seed", "7")
    other = minutes_of(spark, tmp_path / "seed")
    limits, others = (Counter(row.limit for row in rows) for rows in (written.minutes, other))
    assert limits == others
    assert set(others) == {None, 1.0, 3.0, 5.0, 9.0}
    assert {row.bucket_id for row in other}.isdisjoint(row.bucket_id for row in written.minutes)


def test_versions_that_overlap_are_refused(spark: SparkSession, tmp_path: Path):
    given = frames(spark, [seen("a", "x")], value(1, 0, 5, user="a"), value(2, 4, user="a"))
    with pytest.raises(UsageError, match=r"level 3, user 'a', .* overlap: two values of producer"):
        write(tmp_path, *given, "--as-of", "history")


def test_two_values_that_hold_now_are_refused(spark: SparkSession, tmp_path: Path):
    given = frames(spark, [seen("a", "x")], value(1, 0, user="a"), value(2, 4, user="a"))
    with pytest.raises(UsageError, match="overlap: two values of producer_byte_rate hold at the "):
        write(tmp_path, *given)


def test_names_with_the_same_hash_are_told_apart(
    spark: SparkSession, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Hashing, "of", lambda self, user, client_id: "CAST(1 AS BIGINT)")
    write(tmp_path / "one-hash", *written.given)
    assert minutes_of(spark, tmp_path / "one-hash") == written.minutes


def test_buckets_with_the_same_id_stop_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "bucket_id", lambda hashing: "CAST(1 AS BIGINT)")
    with pytest.raises(UsageError, match=r"have the same bucket_id.*--hash-seed"):
        write(tmp_path, *frames(spark, [seen("a", "x"), seen("b", "y")], value(1, user="a")))


def test_a_run_that_doubles_rows_publishes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "app.pipeline.commands.resolve.build_look_up", doubled(look_ups.build_look_up)
    )
    with pytest.raises(InfrastructureError, match="1 observations came in and 2 were resolved"):
        write(tmp_path, *frames(spark, [seen("a", "x")], value(1, user="a")))


def doubled(build: Any) -> Any:
    def build_twice(*given: Any) -> Any:
        once = build(*given)
        return once.unionByName(once.where("user <> ''"))

    return build_twice
