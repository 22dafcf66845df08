"""``rightsize``, ``stale``, ``overcommit`` and ``drift`` on a small lake, worked out by hand."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.tables import (
    BROKER_COMMIT,
    DRIFT_FINDING,
    QUOTA_CONFLICT,
    QUOTA_FAILED,
    QUOTA_SNAPSHOT,
    QUOTA_VERSION,
    RECOMMENDATION,
    STALE_QUOTA,
    UNCOVERED_CLIENT,
    Table,
)
from tests.pipeline.conftest import Command
from tests.pipeline.test_run import scrapes
from tests.testkit.advice_worlds import (
    ALICE,
    BOB,
    BOB_READS,
    CARL,
    DAVE,
    DAYS,
    FETCH,
    FREE,
    PRODUCE,
    START,
    version,
    write_world,
)
from tests.testkit.bucket_worlds import publish, read_arrow

Report = dict[str, Any]

CAPACITY = """
{"brokerCapacities": [
  {"brokerId": "-1", "capacity": {"DISK": "100000", "CPU": "100", "NW_IN": "1", "NW_OUT": "1"}},
  {"brokerId": "2", "capacity": {"DISK": {"/logs": "1"}, "CPU": {"num.cores": "8"},
    "NW_IN": "2", "NW_OUT": "0.5"}}]}
"""


def rows_of(folder: Path, table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_arrow(folder, table).to_pylist()
    return found


def run(command: Command, job: str, *options: str | Path) -> Report:
    ended = command(job, "--json", *options)
    assert ended.returncode == 0, ended.stderr
    report: Report = json.loads(ended.stdout)
    return report


def alteration(row: Mapping[str, Any]) -> Any:
    """Return the one alteration of a row's body."""
    (found,) = json.loads(row["body"])["alterations"]
    return found


@pytest.mark.small
def test_advice_follows_from_what_was_used(spark_command: Command, tmp_path: Path):
    lake, out = write_world(tmp_path / "lake"), tmp_path / "out"
    _rightsize(spark_command, lake, out)
    _stale(spark_command, lake, out, tmp_path / "users.txt")
    _overcommit(spark_command, lake, out, tmp_path / "capacity.json")
    _drift(spark_command, tmp_path / "quotas", out)


def _rightsize(command: Command, lake: Path, out: Path) -> None:
    report = run(command, "rightsize", "--input", lake, "--out", out)
    assert report["advice"] == {"raise": 2, "lower": 1, "keep": 1, "insufficient": 0}
    assert report["findings"] == 3
    advice = {row["bucket_id"]: row for row in rows_of(out, RECOMMENDATION)}
    assert {
        bucket: (row["action"], row["limit"], row["value"]) for bucket, row in advice.items()
    } == {
        # 95 is in a bin whose middle is 94.84; with 15 % that is 109.1.
        ALICE: ("raise", 100.0, 110.0),
        # Half of the minutes were throttled: twice as much, for dave alone.
        DAVE: ("raise", 1000.0, 2000.0),
        # The default has to hold for carl, who needs 23, and is halved at most.
        CARL: ("lower", 1000.0, 500.0),
        BOB_READS: ("keep", 1000.0, None),
    }
    alice, dave, carl = (advice[bucket] for bucket in (ALICE, DAVE, CARL))
    assert (alice["broker_id"], alice["brokers"], alice["days"], alice["coverage"]) == (1, 2, 7, 1)
    assert alice["cluster_total"] == pytest.approx(125, rel=0.01)
    assert alice["skew"] == pytest.approx(95 / 62.5, rel=0.01)
    assert (alice["saving"], carl["saving"], carl["target"]) == (-20.0, 1000.0, 23.0)
    assert (dave["censored"], alice["censored"], carl["buckets"]) == (True, False, 3)
    assert (alice["since"], alice["until"]) == (
        START + timedelta(hours=9),
        START + timedelta(days=DAYS - 1, hours=10),
    )
    assert alteration(alice) == {
        "entity": {"user": "alice"},
        "ops": [{"key": PRODUCE, "value": 110}],
        "expected": {PRODUCE: 100},
    }
    assert (alteration(dave)["entity"], alteration(dave)["expected"]) == (
        {"user": "dave"},
        {PRODUCE: None},
    )
    assert alteration(carl)["entity"] == {"user": None}
    assert (carl["quota_user_default"], dave["quota_user_default"]) == (True, True)


def _stale(command: Command, lake: Path, out: Path, inventory: Path) -> None:
    inventory.write_text("alice\nUser:bob\ncarl\ndave\ngone\nfrank\n")
    options = ["--input", lake, "--out", out, "--quotas", lake, "--inventory", inventory]
    report = run(command, "stale", *options, "--days", "7")
    names = ("quota_user", "quota_client_id", "key", "kind")
    rows = rows_of(out, STALE_QUOTA)
    assert {tuple(row[name] for name in names) for row in rows} == {
        ("gone", "", PRODUCE, "idle"),
        ("erik", "", PRODUCE, "orphan"),
        ("", "etl", PRODUCE, "shadowed"),
        ("frank", "", PRODUCE, "redundant"),
        ("", "", FETCH, "shadowed"),
        ("", "", FETCH, "default_unused"),
    }
    assert report["findings"] == len(rows) == 6
    (unused,) = [row for row in rows if row["kind"] == "default_unused"]
    assert (unused["quota_user_default"], json.loads(unused["winners"])) == (
        True,
        [{"user": "bob"}],
    )
    assert alteration(unused) == {
        "entity": {"user": None},
        "ops": [{"key": FETCH, "remove": True}],
        "expected": {FETCH: 2000},
    }
    clients = {row["bucket_id"]: row for row in rows_of(out, UNCOVERED_CLIENT)}
    assert {bucket: row["value"] for bucket, row in clients.items()} == {
        BOB: 12.0,
        CARL: 23.0,
        DAVE: 1150.0,
        FREE: 460.0,
    }
    free = clients[FREE]
    assert free["share"] == pytest.approx(400 / 1555)
    assert (free["level"], free["limit"], free["bytes"]) == (0, None, 7 * 240_000)
    assert alteration(free)["entity"] == {"client-id": "free"}
    short = run(command, "stale", *options)
    assert short["stale"] == {"orphan": 1, "redundant": 1, "shadowed": 2}, "30 days are too many"


def _overcommit(command: Command, lake: Path, out: Path, capacity: Path) -> None:
    capacity.write_text(CAPACITY)
    report = run(command, "overcommit", "--input", lake, "--out", out, "--capacity", capacity)
    rows = {(row["broker_id"], row["direction"]): row for row in rows_of(out, BROKER_COMMIT)}
    assert report["over"] == 2
    figures = ("capacity", "limits_sum", "over", "buckets", "unlimited_buckets")
    assert {at: tuple(row[name] for name in figures) for at, row in rows.items()} == {
        (1, "in"): (1024.0, 2100.0, True, 4, 1),
        (1, "out"): (1024.0, 1000.0, False, 1, 0),
        (1, "request"): (None, 0.0, None, 0, 0),
        (2, "in"): (2048.0, 1100.0, False, 2, 0),
        (2, "out"): (512.0, 1000.0, True, 1, 0),
        (2, "request"): (None, 0.0, None, 0, 0),
    }
    busy = rows[1, "in"]
    assert busy["p99_of_sums"] == pytest.approx(1505, rel=0.005)
    assert busy["p99_sum"] == pytest.approx(1505, rel=0.005)
    assert busy["limits_ratio"] == 2100 / 1024
    assert busy["unlimited_share"] == pytest.approx(400 / 1505)


def _write_drift_world(quotas: Path) -> Path:
    """Write what the log says, and return the document.

    The log has 100 for alice, 50 for bob, and a failed 9 for carl; live are 100, 70 and 9.
    """
    taken = START + timedelta(days=1)
    logged = [version(PRODUCE, 100.0, "alice"), version(PRODUCE, 50.0, "bob")]
    carl = version(PRODUCE, 9.0, "carl")
    live = [logged[0], version(PRODUCE, 70.0, "bob"), carl]
    failed = {"at": START, "outcome": "refused", "alteration_id": "a-1"}
    later = {**live[1], "valid_from": taken}
    publish(
        quotas,
        {
            QUOTA_VERSION: [
                {**logged[0], "origin": "audit"},
                {**logged[1], "origin": "audit", "valid_to": taken},
                later,
                {**carl, "valid_from": taken},
            ],
            QUOTA_SNAPSHOT: [
                {**row, "dt": at.date(), "snapshot_id": f"{at}", "taken_at": at}
                for at, rows in ((START, logged[:1]), (taken, live))
                for row in rows
            ],
            QUOTA_FAILED: [{**carl, **failed}],
            QUOTA_CONFLICT: [{**row, "at": taken, "conflict": "other"} for row in live[1:]],
        },
    )
    desired = quotas / "desired.yaml"
    desired.write_text(
        f"""
        quotas:
        - {{entity: {{user: alice}}, values: {{{PRODUCE}: 200}}}}
        - {{entity: {{user: bob}}, values: {{{PRODUCE}: 70}}}}
        - {{entity: {{user: zoe}}, values: {{{PRODUCE}: 3}}}}
        """
    )
    return desired


def _drift(command: Command, quotas: Path, out: Path) -> None:
    desired = _write_drift_world(quotas)
    report = run(command, "drift", "--quotas", quotas, "--out", out, "--desired", desired)
    assert report["findings"] == 5
    assert {
        (row["kind"], row["quota_user"]): (row["desired"], row["logged"], row["live"])
        for row in rows_of(out, DRIFT_FINDING)
    } == {
        ("value_differs", "alice"): (200.0, 100.0, 100.0),
        ("out_of_band", "bob"): (70.0, 50.0, 70.0),
        ("unexpected", "carl"): (None, None, 9.0),
        ("failed_but_applied", "carl"): (None, None, 9.0),
        ("missing", "zoe"): (3.0, None, None),
    }


JOBS: Sequence[tuple[str, Sequence[str], Sequence[Table]]] = [
    ("rightsize", ["--half-life", "2", "--skew-aware"], [RECOMMENDATION]),
    ("stale", ["--quotas", "{lake}", "--days", "7"], [STALE_QUOTA, UNCOVERED_CLIENT]),
    ("overcommit", ["--capacity", "{capacity}", "--replication-factor", "3"], [BROKER_COMMIT]),
    ("drift", ["--quotas", "{quotas}", "--desired", "{desired}"], [DRIFT_FINDING]),
]


def test_advice_is_the_same_on_any_number_of_partitions(
    spark: SparkSession,
    spark_command: Command,
    tmp_path: Path,
    subtests: pytest.Subtests,
):
    lake, copy = (write_world(tmp_path / name) for name in ("lake", "copy"))
    capacity = tmp_path / "capacity.json"
    capacity.write_text(CAPACITY)
    quotas = tmp_path / "quotas"
    named = {"lake": lake, "capacity": capacity, "quotas": quotas}
    named["desired"] = _write_drift_world(quotas)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    for job, options, tables in JOBS:
        own = [option.format(**named) for option in options]
        found: list[Any] = []
        for partitions in ("2", "16"):
            spark.conf.set("spark.sql.shuffle.partitions", partitions)
            out = tmp_path / partitions
            # Of two lakes: only then tasks read them.
            inputs = ("--input", lake, "--input", copy)
            report = run(spark_command, job, *inputs, "--out", out, *own)
            found.append((report["run_id"], [rows_of(out, table) for table in tables]))
        with subtests.test(job=job):
            assert found[0] == found[1]
            assert all(found[0][1])
    spark.conf.set("spark.sql.shuffle.partitions", before or "2")


def test_what_tasks_find_is_what_is_found_without_them(
    spark_command: Command, tmp_path: Path, subtests: pytest.Subtests
):
    """Of two lakes Spark's tasks read the hours, of one on this machine the job itself does."""
    lake, copy = (write_world(tmp_path / name) for name in ("lake", "copy"))
    capacity = tmp_path / "capacity.json"
    capacity.write_text(CAPACITY)
    named = {"lake": lake, "capacity": capacity}
    for job, options, tables in JOBS[:-1]:
        own = [option.format(**named) for option in options]
        found = []
        for number, inputs in enumerate((["--input", lake], ["--input", lake, "--input", copy])):
            out = tmp_path / f"out{number}"
            run(spark_command, job, *inputs, "--out", out, *own)
            found.append([rows_of(out, table) for table in tables])
        with subtests.test(job=job):
            assert found[0] == found[1]
            assert all(found[0])


def test_a_run_that_has_the_last_hour_of_a_day_ends_with_advice(
    spark_command: Command, tmp_path: Path
):
    for name, text in {
        "map.yaml": "grain: pair\n",
        "capacity.json": CAPACITY,
        "users.txt": "alice\n",
        "desired.yaml": "quotas: []\n",
    }.items():
        (tmp_path / name).write_text(text)
    value = version(PRODUCE, 100.0, "alice")
    quotas = publish(tmp_path / "quotas", {QUOTA_VERSION: [value]})
    options = ["--format", "csv", "--cluster", "c1", "--quotas", quotas, "--out", tmp_path / "out"]
    for name in ("map.yaml", "capacity.json", "users.txt", "desired.yaml"):
        option = {"users": "inventory"}.get(name.partition(".")[0], name.partition(".")[0])
        options += [f"--{option}", tmp_path / name]
    steps = {}
    for hour in (22, 23):
        points = scrapes(tmp_path / f"{hour}.csv", minute=60 * hour)
        report = run(spark_command, "run", *options, "--input", points)
        steps[hour] = list(report["steps"])
    chain = ["ingest", "resolve", "utilization", "incidents"]
    assert steps == {
        22: [*chain, "drift"],
        23: [*chain, "rightsize", "stale", "overcommit", "drift"],
    }
    (advice,) = rows_of(tmp_path / "out", RECOMMENDATION)
    assert (advice["action"], advice["days"], advice["minutes"]) == ("insufficient", 1, 20)
    assert [row["kind"] for row in rows_of(tmp_path / "out", DRIFT_FINDING)] == ["unexpected"]
    assert {row["limits_sum"] for row in rows_of(tmp_path / "out", BROKER_COMMIT)} == {0.0, 100.0}
