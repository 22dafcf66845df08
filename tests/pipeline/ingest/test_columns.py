"""Rows of Parquet that are judged by whole columns: the same as one by one, to the last word."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from app.pipeline.commands.ingest import ingest
from app.pipeline.errors import InfrastructureError
from app.pipeline.job import Job
from app.pipeline.sources.formats import FORMATS
from app.pipeline.sources.inputs import file_inputs
from app.pipeline.sources.material import material_of
from app.pipeline.sources.metric_map import MetricMap
from app.pipeline.sources.points import Rules
from app.pipeline.sources.raw_points import points_of
from app.pipeline.sources.raw_rows import layouts_of, read_raw
from app.pipeline.tables import DQ_RESULT, OBSERVATION_MINUTE, QUARANTINE
from tests.pipeline.ingest.points import NOON, read
from tests.pipeline.ingest.test_ingest import job_of, table

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


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


CHANGES: tuple[Mapping[str, Any], ...] = (
    *({"ts": at(n), "value": n / 7} for n in range(0, 180, 20)),
    *({"ts": at(n), "value": item, **THROTTLE} for n, item in enumerate((NAN, 30.0, 5.0, -1.0))),
    *(
        {"user": f"u{n}", "value": item}
        for n, item in enumerate((NAN, INFINITY, -INFINITY, -1, 9e12))
    ),
    *({"user": name} for name in ("", None, "a%2Fb", "50%", "a+b", '"q"', "Zoë 😀", "two\nlines")),
    *({"client_id": name} for name in ("", None, '"a\\"b"', '"a"b"', "<default>", '"', LONG)),
    *({"metric": item} for item in ("byte_rat", None, "", LONG, "BYTE-RATE", "consumer_byte_rate")),
    *({"resource": item} for item in ("Produced", None, "fetch", "Produce", "Controller_Mutation")),
    *({"broker_id": item} for item in (None, -1, 0, 2**31 - 1)),
    *({"ts": None}, {"value": None}, {"ts": None, "metric": "x"}, {"cluster_id": None}),
    *({"ts": at(n), "user": "out"} for n in (-1, 86_399.999999, 86_400)),
    *({"metric": "up", "user": name, "value": value} for name, value in (("a", 0), ("b", 1))),
    {"metric": "tokens", "resource": "ControllerMutation", "value": -3.0},
    *({"user": "none", "value": 30.0, **THROTTLE}, {"user": "none", "value": NAN}),
    *({"user": "late", "ts": datetime(9999, 12, day, 23, 59, tzinfo=UTC)} for day in (30, 31)),
    *(
        {"user": "early", "ts": datetime(1970, 1, 1, tzinfo=UTC) - timedelta(seconds=n)}
        for n in (0, 1)
    ),
)


def write(folder: Path, *, naive: bool = False, brokers: pa.DataType = INT) -> Path:
    """Write all of the above into two files, with a good half of it twice."""
    rows = [{**GOOD, **change} for change in CHANGES]
    zone = None if naive else "UTC"
    kinds = {"ts": pa.timestamp("us", zone), "broker_id": brokers, "value": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in GOOD])
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in (("a.parquet", rows), ("z.parquet", rows[::2])):
        told = [{**row, "ts": _zoned(row["ts"], naive)} for row in some]
        told = [{**row, "broker_id": _as(row["broker_id"], brokers)} for row in told]
        pq.write_table(pa.Table.from_pylist(told, schema), folder / name, row_group_size=7)
    return folder


def _zoned(time: datetime | None, naive: bool) -> datetime | None:
    return time.replace(tzinfo=None) if time and naive else time


def _as(broker: int | None, kind: pa.DataType) -> int | str | None:
    return str(broker) if broker is not None and pa.types.is_string(kind) else broker


def run_both(
    spark: SparkSession, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[Job, Job]:
    """Run the job as it is, then with every row read by Python."""
    jobs = []
    for name in ("columns", "rows"):
        job = job_of(source, out / name, **{"format": "parquet", **options})
        folder = job.output()
        material = material_of(job)
        assert all(piece["types"] for piece in material.inputs.pieces)
        if name == "rows":
            for piece in material.inputs.pieces:
                monkeypatch.setitem(cast("dict[str, Any]", piece), "types", None)
        ingest(job, spark, material, folder)
        folder.publish()
        jobs.append(job)
    return jobs[0], jobs[1]


@pytest.mark.parametrize(
    "shape",
    [{}, {"naive": True}, {"brokers": pa.string()}, {"period": True}, {"tags": True}],
    ids=str,
)
def test_columns_are_judged_as_rows_are(shape: Mapping[str, Any], tmp_path: Path):
    told = {name: item for name, item in shape.items() if name in ("naive", "brokers")}
    kind = "collect" if "tags" in shape else "parquet"
    start = int(NOON.timestamp()) * 1_000_000
    period = {"since_us": start, "until_us": start + 86_400_000_000} if "period" in shape else {}
    place = write(tmp_path / "in", **told)
    expected = read(place, kind, **period)
    pieces = file_inputs([str(place)], kind, MetricMap()).pieces
    rules = Rules(MetricMap(), FORMATS[kind].tags, **period)
    raw = pa.concat_tables([rows for chunk in pieces for rows in read_raw(chunk)])
    fine, refused = points_of(raw, rules, layouts_of(pieces))
    assert told_of(fine.to_pylist()) == told_of(item for item in expected if not item["problem"])
    assert told_of(refused.to_pylist()) == told_of(item for item in expected if item["problem"])
    assert fine.num_rows > 20
    assert refused.num_rows > 20


def told_of(points: Iterable[Mapping[str, Any]]) -> tuple[list[str], int]:
    """Return the points in order, as text since NaN equals nothing, and how many are left out."""
    points = list(points)
    left_out = [point for point in points if point["problem"] == "outside-period"]
    kept = [repr(sorted(point.items())) for point in points if point not in left_out]
    return sorted(kept), sum(item["n"] for item in left_out)


def test_a_run_gives_the_same_by_columns_and_by_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = write(tmp_path / "in")
    jobs = run_both(spark, source, tmp_path, monkeypatch)
    assert jobs[0].counts == jobs[1].counts
    for what in (OBSERVATION_MINUTE, QUARANTINE):
        columns, rows = (table(spark, tmp_path / name, what) for name in ("columns", "rows"))
        assert columns == rows
        assert columns
    # What a check measures against the clock of this machine differs from run to run.
    columns, rows = (
        [
            (item.check, item.passed, item.detail)
            for item in table(spark, tmp_path / name, DQ_RESULT)
        ]
        for name in ("columns", "rows")
    )
    assert columns == rows
    assert columns


@pytest.mark.parametrize("brokers", [INT, pa.int64()], ids=["columns", "rows"])
def test_a_name_that_is_no_text_is_put_aside(brokers: pa.DataType, tmp_path: Path):
    names = pa.array([b"al\xffce", b"bob"]).buffers()
    rows = pa.Table.from_pylist([GOOD, GOOD])
    changes = {
        "user": pa.Array.from_buffers(pa.string(), 2, names),
        "broker_id": pa.array([1, 1], brokers),
    }
    for name, change in changes.items():
        rows = rows.set_column(rows.column_names.index(name), name, change)
    file = tmp_path / "a.parquet"
    pq.write_table(rows, file)
    (piece,) = file_inputs([str(file)], "parquet", MetricMap()).pieces
    points = read(file, "parquet")
    if piece["types"]:
        rules = Rules(MetricMap(), tags=False)
        fine, refused = points_of(pa.concat_tables(read_raw(piece)), rules, layouts_of([piece]))
        assert told_of([*refused.to_pylist(), *fine.to_pylist()]) == told_of(points)
    assert [(point["problem"], point["user"]) for point in points] == [
        ("undecodable-name", None),
        (None, "bob"),
    ]
    assert "al\\udcffce" in points[0]["raw"]


def test_a_file_that_turns_out_to_be_broken_is_one_row(spark: SparkSession, tmp_path: Path):
    source = write(tmp_path / "in")
    broken = bytearray((source / "z.parquet").read_bytes())
    broken[4:400] = bytes(396)
    (source / "z.parquet").write_bytes(broken)
    job = job_of(source, tmp_path / "out", format="parquet")
    folder = job.output()
    ingest(job, spark, material_of(job), folder)
    assert job.counts["quarantined_by_reason"]["unreadable-file"] == 1
    assert job.counts["used"]["rate"] > 20


def test_other_types_are_read_row_by_row(tmp_path: Path):
    told = {
        "times": {"ts": pa.array([NOON], pa.timestamp("ns", "UTC"))},
        "zone": {"ts": pa.array([NOON], pa.timestamp("us", "Europe/Berlin"))},
        "values": {"value": pa.array([1], pa.int64())},
        "names": {"user": pa.array([1])},
    }
    for name, change in told.items():
        rows = pa.Table.from_pylist([{**GOOD}])
        for column, values in {"broker_id": pa.array([1], pa.int32()), **change}.items():
            place = rows.schema.get_field_index(column)
            rows = rows.drop_columns(column) if place >= 0 else rows
            rows = rows.append_column(column, values)
        file = tmp_path / f"{name}.parquet"
        pq.write_table(rows, file)
        (piece,) = file_inputs([str(file)], "parquet", MetricMap()).pieces
        assert piece["types"] is None, name


def test_rows_that_are_lost_are_an_error(spark: SparkSession, tmp_path: Path):
    job = job_of(write(tmp_path / "in"), tmp_path / "out", format="parquet")
    folder, material = job.output(), material_of(job)
    material.inputs.pieces[0]["rows"] += 1
    with pytest.raises(InfrastructureError, match="nothing is published"):
        ingest(job, spark, material, folder)
