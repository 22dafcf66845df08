"""Tidy Parquet: each row is judged, whatever the types of its columns."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from app.pipeline.commands.ingest import ingest, inputs_of, newest_time, rules_of
from app.pipeline.errors import InfrastructureError
from app.pipeline.ingest.files_at_hand import read_share, shares_of
from app.pipeline.tables import DQ_RESULT, QUARANTINE, RATE_MINUTE, SERIES
from tests.pipeline.ingest.points import NOON, Row, good, job_of, read, read_each, refused, run_job
from tests.pipeline.ingest.test_ingest import table

NAN, INFINITY = float("nan"), float("inf")
RATE, LONG = "kafka_server_quota_byte_rate", "x" * 5000
INT = pa.int32()
GOOD: Mapping[str, Any] = {
    "ts": NOON,
    "broker_id": 1,
    "metric": RATE,
    "resource": "Fetch",
    "user": "alice",
    "client_id": "etl",
    "value": 1.5,
    "cluster_id": "c",
}
THROTTLE = {"metric": "kafka_server_quota_throttle_time"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


CHANGES: tuple[tuple[Mapping[str, Any], str | None], ...] = (
    *(({"ts": at(n), "value": n / 7}, None) for n in range(0, 180, 20)),
    ({"value": NAN, **THROTTLE}, None),
    ({"value": 30.0, **THROTTLE}, None),
    ({"value": -1.0, **THROTTLE}, "negative"),
    ({"value": NAN}, "nan"),
    ({"value": INFINITY}, "infinite"),
    ({"value": -INFINITY}, "infinite"),
    ({"value": -1.0}, "negative"),
    ({"value": 9e12}, "too-large"),
    *(({"user": name}, None) for name in ("", None, "a%2Fb", "a+b", '"q"', "Zoë 😀", "two\nlines")),
    ({"user": "50%"}, None),
    *(({"client_id": name}, None) for name in ("", None, '"a\\"b"', "<default>", '"', LONG)),
    ({"client_id": '"a"b"'}, None),
    *(({"metric": name}, None) for name in (None, "", "BYTE-RATE", "consumer_byte_rate")),
    *(({"metric": name}, "unknown-metric") for name in ("byte_rat", LONG)),
    *(({"resource": name}, None) for name in ("fetch", "Produce")),
    *(({"resource": name}, "unknown-metric") for name in ("Produced", None, "Controller_Mutation")),
    *(({"broker_id": broker}, None) for broker in (0, 2**31 - 1)),
    *(({"broker_id": broker}, "missing-broker") for broker in (None, -1)),
    *(({name: None}, "unparsable") for name in ("ts", "value")),
    ({"ts": None, "metric": "x"}, "unparsable"),
    ({"cluster_id": None}, None),
    *(({"ts": at(n)}, None) for n in (-1, 86_399.999999, 86_400)),
    *(({"metric": "up", "user": "a", "value": value}, None) for value in (0.0, 1.0)),
    ({"metric": "tokens", "resource": "ControllerMutation", "value": -3.0}, None),
    ({"ts": datetime(9999, 12, 30, 23, 59, tzinfo=UTC)}, None),
    ({"ts": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)}, "unparsable"),
    ({"ts": EPOCH}, None),
    ({"ts": EPOCH - timedelta(seconds=1)}, "unparsable"),
)
REFUSED = [(line, reason, 1) for line, (_, reason) in enumerate(CHANGES, 1) if reason]
FINE = [{**GOOD, **change} for change, reason in CHANGES if not reason]


def write(folder: Path, *, naive: bool = False, brokers: pa.DataType = INT) -> Path:
    """Write all of the above into a file of many row groups."""
    zone = None if naive else "UTC"
    kinds = {"ts": pa.timestamp("us", zone), "broker_id": brokers, "value": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in GOOD])
    rows = [{**GOOD, **change} for change, _ in CHANGES]
    for row in rows:
        row["ts"] = row["ts"].replace(tzinfo=None) if row["ts"] and naive else row["ts"]
        if pa.types.is_string(brokers) and row["broker_id"] is not None:
            row["broker_id"] = str(row["broker_id"])
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "a.parquet", row_group_size=7)
    return folder


def test_each_row_is_judged_whatever_the_types_of_times_and_brokers(tmp_path: Path):
    files = {
        "UTC": write(tmp_path / "0"),
        "naive": write(tmp_path / "1", naive=True),
        "brokers as text": write(tmp_path / "2", brokers=pa.string()),
    }
    found = read_each(files, "parquet")
    assert {name: refused(rows) for name, rows in found.items()} == dict.fromkeys(files, REFUSED)
    for rows in found.values():
        assert_fine([row for row in rows if not row["problem"]])


def assert_fine(rows: list[Row]) -> None:
    """Assert that the rows say what was written."""
    of_tags = {"user", "client_id"}
    for row, written in zip(rows, FINE, strict=True):
        is_up = written["metric"] == "up"
        names = {name: "" if is_up else written[name] or "" for name in of_tags}
        assert {name: row[name] for name in of_tags} == names
        assert row["broker_id"] == written["broker_id"]
        assert row["cluster"] == (written["cluster_id"] or "")
        assert row["ts"] == (written["ts"] - EPOCH) // timedelta(microseconds=1)
        assert row["value"] == (None if isnan(written["value"]) else written["value"])


def test_tags_are_decoded(tmp_path: Path):
    rows = read(write(tmp_path), "collect")
    broken = [line for line, (change, _) in enumerate(CHANGES, 1) if is_no_tag(change)]
    assert refused(rows) == sorted(REFUSED + [(line, "undecodable-name", 1) for line in broken])
    assert len(broken) == 2
    names = {row[4:6] for row in good(rows)}
    assert {("a/b", "etl"), ("a b", "etl"), ('"q"', "etl"), ("alice", 'a"b')} <= names


def is_no_tag(change: Mapping[str, Any]) -> bool:
    return change in ({"user": "50%"}, {"client_id": '"a"b"'})


def test_a_period_leaves_rows_out(tmp_path: Path):
    start = int(NOON.timestamp()) * 1_000_000
    rows = read(write(tmp_path), "parquet", since_us=start, until_us=start + 86_400_000_000)
    reasons = [reason for _, reason, _ in refused(rows)]
    assert "left-out" not in reasons, "they are not even read"
    times = {row["ts"] for row in rows} - {None}
    assert all(start <= time < start + 86_400_000_000 for time in times)
    assert refused(rows)[0] == REFUSED[0]


FOLDER = "cluster_id=a%3Db/dt=2026-11-21"


def other_types() -> Sequence[Mapping[str, pa.Array]]:
    """Return columns of other types than ours; PyArrow imports pandas for the first array."""
    return (
        {
            "ts": pa.array([NOON], pa.timestamp("ns", "UTC")),
            "broker_id": pa.array([1], pa.int64()),
            "user": pa.array([b"alice"]),
            "value": pa.array([1.5], pa.float32()),
        },
        {"ts": pa.array([NOON], pa.timestamp("ms", "Europe/Berlin")), "value": pa.array(["1.5"])},
        {"ts": pa.array([NOON.isoformat()])},
        {"ts": pa.array([NOON.timestamp()])},
        {"ts": pa.array([int(NOON.timestamp()) * 10**9])},
    )


def test_columns_may_have_any_type_even_beside_each_other(tmp_path: Path):
    first, others = pa.Table.from_pylist([GOOD]), other_types()
    tables = {str(number): replaced(first, new) for number, new in enumerate(others)}
    tables["other columns {2}"] = first.append_column("more", pa.array([1])).drop_columns(
        "cluster_id"
    )
    tables[FOLDER] = tables["other columns {2}"]
    tables["nulls"] = pa.table(
        {
            "ts": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("ns")),
            "broker_id": pa.array([1.0, 2.0]),
            "metric": pa.array(["producer_byte_rate"] * 2).dictionary_encode(),
            "user": pa.array(["alice", None], pa.large_string()),
            "client_id": pa.array([None, None], pa.string()),
            "value": pa.array([1, 2], pa.int64()),
            "cluster_id": pa.array(["c", None]),
        }
    )
    tables["a name that is no text"] = replaced(
        pa.Table.from_pylist([GOOD, GOOD]),
        {"user": pa.array([b"al\xffce", b"bob"]).view(pa.string())},
    )
    files = {name: tmp_path / name / "a.parquet" for name in tables}
    for name, file in files.items():
        file.parent.mkdir(parents=True)
        pq.write_table(tables[name], file)
    found = read_each(files, "parquet")
    fine = (0, 1, "consumer_byte_rate", "rate", "alice", "etl", 1.5)
    assert {name: good(rows) for name, rows in found.items()} == {
        **{str(number): [(*fine, "c")] for number in range(len(others))},
        "other columns {2}": [(*fine, "")],
        FOLDER: [(*fine, "a=b")],
        "nulls": [(0, 1, "producer_byte_rate", "rate", "alice", "", 1, "c")],
        "a name that is no text": [(*fine[:4], "bob", "etl", 1.5, "c")],
    }
    bad = found["a name that is no text"][0]
    assert (bad["problem"], bad["user"]) == ("undecodable-name", None)
    assert "al\ufffdce" in bad["text"]
    assert refused(found["nulls"]) == [(2, "unparsable", 1)]


def replaced(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    arrays = {name: columns.get(name, table[name]) for name in table.column_names}
    return pa.table(arrays)


@pytest.mark.parametrize("period", [(), ("--from", "2026-11-21", "--to", "2026-11-23")])
def test_a_file_that_turns_out_to_be_broken_is_one_row(
    spark: SparkSession,
    tmp_path: Path,
    period: Sequence[str],
    capsys: pytest.CaptureFixture[str],
):
    source = write(tmp_path / "in")
    broken = bytearray((source / "a.parquet").read_bytes())
    broken[4:400] = bytes(396)
    (source / "z.parquet").write_bytes(broken)
    job = run_job(spark, "parquet", source, tmp_path / "out", *period)
    name = source / "z.parquet"
    words = f"ingest: 1 of 2 files cannot be read, {name} first: `quarantine` says why."
    assert words in capsys.readouterr().err
    assert job.counts["quarantined_by_reason"]["unreadable-file"] == 1
    assert job.counts["used"]["rate"] > 20
    unreadable = [
        item
        for item in table(spark, tmp_path / "out", QUARANTINE)
        if item.reason == "unreadable-file"
    ]
    assert [(item.source, item.line, item.n) for item in unreadable] == [
        (f"{source}/z.parquet", 0, 1)
    ]
    assert job.quarantined == sum(item.n for item in table(spark, tmp_path / "out", QUARANTINE))


def test_rows_that_are_lost_are_an_error(spark: SparkSession, tmp_path: Path):
    job = job_of(spark, "parquet", write(tmp_path / "in"), tmp_path / "out")
    rules = rules_of(job)
    inputs = inputs_of(job, rules)
    assert inputs.rows is not None
    inputs.rows += 1
    with pytest.raises(InfrastructureError, match="nothing is published"):
        ingest(job, rules, inputs, job.lake())
    assert not (tmp_path / "out").exists()


@pytest.mark.small
def test_tasks_that_read_files_themselves_say_what_spark_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = write(tmp_path / "in")
    write(tmp_path / "in" / "more", naive=True)
    options = ["--input", str(source / "more")]
    here = run_job(spark, "parquet", source, tmp_path / "here", *options)
    monkeypatch.setattr("app.pipeline.commands.ingest.shares_of", lambda *_: None)
    monkeypatch.setattr("app.pipeline.lake.folder_of_tasks", lambda *_: None)
    there = run_job(spark, "parquet", source, tmp_path / "there", *options)
    for what in (SERIES, RATE_MINUTE, QUARANTINE, DQ_RESULT):
        rows = [
            # Two clocks are read at different times.
            [row for row in table(spark, tmp_path / name, what) if "seconds_ahead" not in str(row)]
            for name in ("here", "there")
        ]
        assert rows[0] == rows[1], what.name
        assert rows[0]
    assert {**here.counts, "seconds": 0} == {**there.counts, "seconds": 0}
    assert here.counts["quarantined_by_reason"]["duplicate"] > 20


def test_hours_are_divided_where_row_groups_begin(spark: SparkSession, tmp_path: Path):
    """In order of time a task reads few of them, and each row is of one task."""
    rows = [{**GOOD, "ts": at(60 * minute), "value": float(minute)} for minute in range(600)]
    kinds = {"ts": pa.timestamp("us", "UTC"), "broker_id": INT, "value": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in GOOD])
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema), source / "a.parquet", row_group_size=50)
    job = job_of(spark, "parquet", source, tmp_path / "out")
    rules = rules_of(job)
    inputs = inputs_of(job, rules)
    shares = shares_of(spark, inputs, rules, rows=100)
    assert shares is not None
    assert len(shares) > 3
    assert max(len(share.row_groups) for share in shares) <= 4
    read = [
        points["value"].to_pylist()
        for share in shares
        for points in read_share(share, rules, ignores_broken=False)
    ]
    assert sorted(value for values in read for value in values) == [row["value"] for row in rows]
    pq.write_table(pa.Table.from_pylist(rows[::7] + rows, schema), source / "a.parquet")
    assert shares_of(spark, inputs_of(job, rules), rules, rows=100) is None, "Spark divides them"


@pytest.mark.parametrize("ahead", [[], [datetime(9999, 1, 1, tzinfo=UTC)]], ids=["", "ahead"])
def test_the_newest_time_is_not_of_a_clock_that_is_ahead(
    spark: SparkSession, tmp_path: Path, ahead: Sequence[datetime]
):
    rows = [{**GOOD, "ts": time} for time in (at(60), at(0), *ahead)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    job = job_of(spark, "parquet", tmp_path, tmp_path / "out")
    assert newest_time(job, rules_of(job)) == at(60)
