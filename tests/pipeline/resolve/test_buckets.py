"""The minutes of buckets, their names, what stops a run, and the command as a person runs it."""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from app.domain.quota_keys import QuotaKey
from app.pipeline.commands.resolve import add_arguments, require_own_ids, write_limits
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.main import main
from app.pipeline.options import add_common_options
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.versions import Versions
from app.pipeline.results import merge_buckets
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    QUOTA_VERSION,
    SERIES,
    SERIES_LIMIT,
    Table,
)
from app.pipeline.usage.buckets import minutes_of_buckets
from tests.pipeline.conftest import Command
from tests.pipeline.resolve.clusters import (
    Version,
    minute,
    observation,
    observation_table,
    quota_table,
)
from tests.testkit.bucket_worlds import facts_of_observations, publish, write_arrow

KEY = QuotaKey.PRODUCER_BYTE_RATE
TOMORROW = 24 * 60
MEMBERS, NAMED, RULES, STAYS = "members", "named", "rules", "stays"
"""Clusters: a world for each test, so that a run serves all of them."""

Row = Mapping[str, Any]
NONE = Path()


def seen(
    cluster: str, user: str | None, client: str | None, at: int = 0, **others: Any
) -> dict[str, Any]:
    return observation(cluster, KEY.value, at, user=user, client_id=client, **others)


def value(
    cluster: str, amount: float, since: int = 0, until: int | None = None, **names: str | None
) -> Version:
    entity = tuple((kind.replace("_", "-"), name) for kind, name in sorted(names.items()))
    return Version(cluster, entity, KEY, amount, since, until)


class Input(NamedTuple):
    """What a run reads: series and minutes below a folder, and quotas."""

    folder: Path
    quotas: pa.Table


def publish_input(folder: Path, rows: Sequence[Row], quotas: Sequence[Version]) -> Input:
    return Input(publish(folder, facts_of_observations(rows)), quota_table(quotas))


def write(spark: SparkSession, out: Path, inputs: Input, *options: str, beside: Path = NONE) -> Row:
    """Write what limits the series of the input, and the minutes of its buckets; return counts.

    Args:
        spark: Does it.
        out: Where to.
        inputs: What is read.
        options: Of the command.
        beside: Another input, so that Spark reads both.
    """
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    add_common_options(parser)
    job = Job("resolve", parser.parse_args(options))
    lakes = [Lake(spark, str(folder)) for folder in (inputs.folder, beside) if folder != NONE]
    lake, hours = Lake(spark, str(out)), lakes[0].partitions(SERIES)
    write_limits(job, lakes, hours, inputs.quotas, lake)
    minutes = minutes_of_buckets([lakes[0], lake], hours).rows(BUCKET_MINUTE.ddl)
    lake.write(minutes.repartition(*BUCKET_MINUTE.partitions), BUCKET_MINUTE)
    return job.counts


def rows_of(out: Path, table: Table, cluster: str | None = None) -> list[Row]:
    rows = pq.read_table(out / table.name).to_pylist()
    found = [row for row in rows if cluster in {None, row["cluster_id"]}]
    return sorted(found, key=lambda row: [str(row[name]) for name in table.order])


class Written(NamedTuple):
    """The input of a run, where it wrote, and what it counted."""

    inputs: Input
    out: Path
    counts: Row

    def minutes(self, cluster: str | None = None) -> list[Row]:
        return rows_of(self.out, BUCKET_MINUTE, cluster)

    def names(self, cluster: str | None = None) -> list[Row]:
        return rows_of(self.out, DIM_BUCKET, cluster)


def worlds() -> tuple[list[dict[str, Any]], list[Version]]:
    """Return the observations and the quotas of all clusters."""
    rows = [
        seen(MEMBERS, "alice", "x", rate_avg=0.1, rate_max=1.5, throttle_ms_avg=10.0),
        seen(MEMBERS, "alice", "y", rate_avg=0.2, rate_max=2.5, throttle_ms_max=30.0),
        seen(MEMBERS, "alice", "z", rate_avg=0.4, rate_max=0.0, throttle_ms_avg=20.0),
        seen(MEMBERS, "alice", "x", at=1),
        seen(MEMBERS, "alice", "idle", at=1, rate_avg=0.0, rate_max=0.0, samples=0),
        seen(MEMBERS, "bob", None, at=1, broker_id=2),
    ]
    quotas = [value(MEMBERS, 50, user="alice")]
    rows += [seen(NAMED, "alice", "x"), seen(NAMED, "alice", "x", at=5), seen(NAMED, "", "z")]
    rows += [seen(NAMED, "bob", "y", at=2), seen(NAMED, "carol", "y", at=2)]
    quotas += [value(NAMED, 1, user="alice", client_id=None), value(NAMED, 2, client_id=None)]
    rows += [seen(STAYS, "alice", "x"), seen(STAYS, "old", "x")]
    quotas += [value(STAYS, 1, user="alice")]
    for n in range(300):
        rates = {"rate_avg": n / 7, "rate_max": n / 3}
        who = {"broker_id": n}
        rows.append(seen(RULES, f"u{n % 5}", f"c{n % 7}", n % 3, **rates, **who))
    quotas += [value(RULES, 9, user="u1"), value(RULES, 5, client_id=None)]
    other = QuotaKey.CONSUMER_BYTE_RATE
    names = [(user, client) for user in ("a", "b", "") for client in ("x", "y", "")]
    rows += [seen(RULES, *name) | {"key": other.value} for name in names]
    rules = value(RULES, 1, user="a"), value(RULES, 2, client_id="x"), value(RULES, 3, user=None)
    quotas += [replace(rule, key=other) for rule in rules]
    rows += [seen(RULES, "a", "x") | {"key": QuotaKey.REQUEST_PERCENTAGE.value}]
    return rows, quotas


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    inputs, out = (tmp_path_factory.mktemp("buckets") / name for name in ("input", "once"))
    published = publish_input(inputs, *worlds())
    return Written(published, out, write(spark, out, published))


@pytest.mark.small
def test_the_members_of_a_bucket_are_summed_minute_by_minute(written: Written):
    first, *others = written.minutes(MEMBERS)
    assert first == {
        "cluster_id": MEMBERS,
        "dt": "2026-11-21",
        "ts": minute(0),
        "broker_id": 1,
        "key": KEY.value,
        "bucket_id": first["bucket_id"],
        "rate_avg": 0.7,
        "rate_max": 4.0,
        "throttle_ms_avg": 15.0,
        "throttle_ms_max": 30.0,
        "bytes_est": 42,
        "limit": 50.0,
        "level": 3,
        "contributors": 3,
    }
    assert [(row["limit"], row["level"], row["contributors"]) for row in others] == [
        (50.0, 3, 1),
        (None, 0, 1),
    ]


@pytest.mark.small
def test_every_series_is_counted(written: Written):
    series = pq.read_table(written.inputs.folder / SERIES.name).num_rows
    limits = rows_of(written.out, SERIES_LIMIT)
    unlimited = sum(row["level"] == 0 for row in limits)
    assert written.counts == {
        "rows_in": series,
        "unlimited": unlimited,
        "rows_out": {"series_limit": series, "dim_bucket": len(written.names())},
    }
    assert unlimited == 6
    assert {row["valid_to"] - row["valid_from"] for row in limits} == {timedelta(hours=1)}


@pytest.mark.small
def test_a_bucket_is_named_with_the_entity_that_limits_it(spark: SparkSession, written: Written):
    names = sorted(written.names(NAMED), key=lambda row: row["bucket_client"])
    hashed = f"select xxhash64('{NAMED}', '{KEY.value}', 'alice', 'x')"
    assert [tuple(row) for row in spark.sql(hashed).collect()] == [(names[0]["bucket_id"],)]
    columns = ("level", "bucket_user", "bucket_client", "quota_user", "quota_user_default")
    columns += ("quota_client_id", "quota_client_default", "first_seen", "last_seen")
    assert [tuple(row[name] for name in columns) for row in names] == [
        (2, "alice", "x", "alice", False, "", True, minute(0), minute(5)),
        (8, "", "y", "", False, "", True, minute(2), minute(2)),
        (8, "", "z", "", False, "", True, minute(0), minute(0)),
    ]


def test_a_further_day_leaves_the_names_of_the_first(
    spark: SparkSession, written: Written, tmp_path: Path
):
    out = tmp_path / "further"
    shutil.copytree(written.out, out)
    rows = [seen(STAYS, name, "x", TOMORROW) for name in ("alice", "new")]
    write(spark, out, publish_input(tmp_path / "input", rows, worlds()[1]))
    merged = merge_buckets(Lake(spark, str(out)).read(DIM_BUCKET)).where(f"cluster_id = '{STAYS}'")
    assert {
        row["bucket_user"]: (row["first_seen"], row["last_seen"])
        for row in merged.toArrow().to_pylist()
    } == {
        "alice": (minute(0), minute(TOMORROW)),
        "old": (minute(0), minute(0)),
        "new": (minute(TOMORROW), minute(TOMORROW)),
    }
    assert rows_of(out, DIM_BUCKET, RULES) == written.names(RULES)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def test_what_spark_reads_and_shuffles_changes_no_bit(
    spark: SparkSession, written: Written, tmp_path: Path
):
    with setting(spark, "spark.sql.shuffle.partitions", "5"):
        write(spark, tmp_path / "out", written.inputs, beside=tmp_path / "none")
    for table in (BUCKET_MINUTE, SERIES_LIMIT, DIM_BUCKET):
        assert rows_of(tmp_path / "out", table) == rows_of(written.out, table)
    assert len(written.minutes(RULES)) > 50
    limits = {row["limit"] for row in written.minutes(RULES)}
    assert limits == {None, 1.0, 3.0, 5.0, 9.0}


def test_more_versions_than_may_be_broadcast_give_the_same(
    spark: SparkSession, written: Written, tmp_path: Path
):
    write(spark, tmp_path, written.inputs, "--broadcast-max", "3", "--as-of", "history")
    for table in (BUCKET_MINUTE, SERIES_LIMIT, DIM_BUCKET):
        assert rows_of(tmp_path, table) == rows_of(written.out, table)


@pytest.mark.parametrize(("most", "shares"), [("2", 1), ("1", 2)])
def test_more_versions_than_may_be_broadcast_are_divided_by_user(
    most: str,
    shares: int,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    quotas = [value(RULES, number, user=name) for number, name in enumerate("ab", 1)]
    inputs = publish_input(tmp_path / "in", [seen(RULES, name, "x") for name in "abc"], quotas)
    write(spark, tmp_path / "out", inputs, "--broadcast-max", most, "--explain")
    assert ("Union" in capsys.readouterr().err) is (shares > 1)
    limits = rows_of(tmp_path / "out", SERIES_LIMIT)
    assert sorted((row["level"], row["limit"] or 0) for row in limits) == [(0, 0), (3, 1), (3, 2)]


def test_a_look_up_has_a_row_for_names_with_a_quota_alone():
    quotas = [value(RULES, 1, user=name) for name in "abc"] + [value(RULES, 2, client_id="x")]
    look_up = LookUp.of(Versions.latest(quota_table(quotas)))
    number = {level: len(held.values) for level, held in look_up.levels.items() if level}
    assert number == {3: 3, 7: 1}
    rows = look_up.rows_of(observation_table([seen(RULES, "a", "x"), seen(RULES, "z", "z")]))
    found = {names: (row >= 0).tolist() for names, row in rows.items()}
    assert found == {
        (True, True): [False, False],
        (True, False): [True, False],
        (False, True): [True, False],
        (False, False): [True, True],
    }


@pytest.mark.parametrize(
    ("until", "as_of", "sentence"),
    [
        (5, "history", r"level 3, user 'a', .* overlap: two values of producer"),
        (None, "latest", "overlap: two values of producer_byte_rate hold at the "),
    ],
)
def test_values_that_hold_at_the_same_time_are_refused(
    spark: SparkSession, tmp_path: Path, until: int | None, as_of: str, sentence: str
):
    quotas = value(RULES, 1, 0, until, user="a"), value(RULES, 2, 4, user="a")
    inputs = publish_input(tmp_path / "in", [seen(RULES, "a", "x")], quotas)
    with pytest.raises(UsageError, match=sentence):
        write(spark, tmp_path / "out", inputs, "--as-of", as_of)


def test_buckets_with_the_same_id_stop_the_run(spark: SparkSession):
    columns = ["cluster_id", "key", "bucket_user", "bucket_client", "bucket_id"]
    decided = [(RULES, "k", user, "", 1) for user in "bba"]
    ids = pa.table({"bucket_id": [1, 2, 1], "other": [5, 6, 7]})
    require_own_ids(ids[:2], lambda: pytest.fail("nothing is the same"))
    with pytest.raises(UsageError, match=r"'k', 'a', ''.* and .*'b', ''.* have the same bucket_id"):
        require_own_ids(ids, lambda: spark.createDataFrame(decided, columns))


CONSUMED = QuotaKey.CONSUMER_BYTE_RATE
CLUSTER = "Kafka's id"
ALICE = (("user", "alice"),)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with observations and quotas: alice's limit was raised after two minutes.

    The quotas are of one of the two clusters.
    """
    rows = [
        observation(CLUSTER, CONSUMED.value, at, user="alice", client_id="x") for at in range(4)
    ]
    rows.append(observation("other", CONSUMED.value, 0, user="alice", client_id="x"))
    first = Version(CLUSTER, ALICE, CONSUMED, 10.0, 1, 2, "snapshot")
    quotas = [first, Version(CLUSTER, ALICE, CONSUMED, 20.0, 2, None)]
    publish(tmp_path / "tables", facts_of_observations(rows))
    write_arrow(quota_table(quotas), QUOTA_VERSION, tmp_path / "tables")
    # The same traffic as another source has it.
    again = [{**row, "source": "another", "rate_max": 99.0} for row in rows]
    publish(tmp_path / "again", facts_of_observations(again))
    return tmp_path / "tables"


def test_a_dry_run_says_what_it_would_do(tables: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(tables), "--quotas", str(tables), "--out", "/never", "--dry-run"]
    assert main(["resolve", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["would_read"] == [
        str(tables / "series"),
        str(tables / "quota_version"),
    ]
    assert report["would_write"] == ["/never/series_limit", "/never/dim_bucket"]


def test_each_series_has_the_limit_that_held_then_and_missing_quotas_are_named(
    spark_command: Command, tables: Path, tmp_path: Path
):
    out = tmp_path / "out"
    inputs = ["--input", tables, "--input", tables.with_name("again")]
    options = [*inputs, "--quotas", tables, "--out", out, "--json", "--explain"]
    period = ["--from", minute(0).isoformat(), "--to", minute(3).isoformat()]
    done = spark_command("resolve", "--as-of", "history", *options, *period)
    assert done.returncode == 3
    assert "No quota is of the cluster 'other', so all of its rows are unlimited" in done.stderr
    assert 'there are quotas of "Kafka\'s id".' in done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["rows_out"]) == (3, {"series_limit": 3, "dim_bucket": 2})
    assert "MapInArrow" in done.stderr
    limits = sorted(
        pq.read_table(out / "series_limit").to_pylist(), key=lambda row: row["limit"] or 0
    )
    spans = [(row["valid_from"], row["valid_to"], row["limit"], row["level"]) for row in limits]
    assert spans == [
        (minute(0), minute(60), None, 0),
        (minute(0), minute(2), 10.0, 3),
        (minute(2), minute(60), 20.0, 3),
    ]
    names = {row["cluster_id"]: row for row in pq.read_table(out / "dim_bucket").to_pylist()}
    bucket = names[CLUSTER]
    assert (bucket["bucket_user"], bucket["quota_user"]) == ("alice", "alice")
    assert {row["bucket_id"] for row in limits if row["level"]} == {bucket["bucket_id"]}
    exported = ["--table", "bucket_minute", *inputs, "--input", out, "--out", out]
    done = spark_command("export", *exported, "--json")
    assert json.loads(done.stdout)["rows_out"] == {"bucket_minute": 5}
    minutes = sorted(pq.read_table(out / "bucket_minute").to_pylist(), key=lambda row: row["ts"])
    assert {(row["rate_max"], row["contributors"]) for row in minutes} == {(2.0, 1)}
    found = [row["limit"] for row in minutes if row["cluster_id"] == CLUSTER]
    assert found == [10.0, 10.0, 20.0, 20.0]
