"""The same points in each format, and what reads them without Spark."""

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.commands.export import observation_minutes
from app.pipeline.commands.ingest import ingest, inputs_of, rules_of
from app.pipeline.ingest.inputs import FORMATS, file_inputs
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.points import UNREADABLE, Rules
from app.pipeline.ingest.read import read_points, without_broken_files
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.main import _parser
from app.pipeline.results import Scope

HEADERS = ("ts", "broker_id", "metric", "resource", "user", "client_id", "value")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EIGHT_FIELDS = ("ts", "broker_id", "key", "attribute", "user", "client_id", "value", "cluster")


class Point(NamedTuple):
    """A scraped value, with the names as people write them."""

    second: int = 0
    broker: int = 1
    attribute: str = "byte_rate"
    resource: str = "Produce"
    user: str = "alice"
    client_id: str = "etl"
    value: float = 1.0

    @property
    def at(self) -> int:
        return int(NOON.timestamp()) + self.second

    @property
    def metric(self) -> str:
        return f"kafka_server_quota_{self.attribute}"

    def labels(self, **more: str) -> dict[str, str]:
        """Return the labels as an exporter gives them: names that are absent are no label."""
        names = {"user": user_tag(self.user), "clientId": client_tag(self.client_id)}
        present = {name: tag for name, tag in names.items() if tag}
        return {"broker_id": str(self.broker), "resource": self.resource, **present, **more}


def user_tag(name: str) -> str:
    """Return what a broker makes of a user. Source: ``Sanitizer.sanitize``."""
    return quote_plus(name, safe="*-._").replace("*", "%2A").replace("+", "%20").replace("~", "%7E")


def client_tag(name: str) -> str:
    """Return what JMX makes of a client-id. Source: ``Sanitizer.jmxSanitize``."""
    if all(item.isascii() and (item.isalnum() or item in "_-%. \t") for item in name):
        return name
    escaped = "".join(f"\\{item}" if item in '\\"*?' else item for item in name)
    return '"' + escaped.replace("\n", "\\n") + '"'


def write_csv(points: Sequence[Point], folder: Path) -> Path:
    file = folder / "points.csv"
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(HEADERS)
        for point in points:
            time = datetime.fromtimestamp(point.at, UTC).isoformat()
            names = (point.metric, point.resource, point.user, point.client_id)
            writer.writerow((time, point.broker, *names, point.value))
    return file


def write_parquet(points: Sequence[Point], folder: Path, *, tags: bool = False) -> Path:
    file = folder / "points.parquet"
    rows = [
        {
            "ts": datetime.fromtimestamp(point.at, UTC),
            "broker_id": point.broker,
            "metric": point.metric,
            "resource": point.resource,
            "user": user_tag(point.user) if tags else point.user,
            "client_id": client_tag(point.client_id) if tags else point.client_id,
            "value": point.value,
        }
        for point in points
    ]
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=3)
    return file


def write_adapter(points: Sequence[Point], folder: Path) -> Path:
    file = folder / "points.jsonl"
    file.write_bytes(b"".join(adapter_message(point) + b"\n" for point in points))
    return file


def adapter_message(point: Point) -> bytes:
    time = datetime.fromtimestamp(point.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = point.labels(__name__=point.metric)
    message = {
        "timestamp": time,
        "value": repr(point.value),
        "name": point.metric,
        "labels": labels,
    }
    return json.dumps(message).encode()


def write_query_range(points: Sequence[Point], folder: Path) -> Path:
    file = folder / "points.json"
    result = [
        {"metric": point.labels(__name__=point.metric), "values": [[point.at, repr(point.value)]]}
        for point in points
    ]
    file.write_text(query_range(result))
    return file


def query_range(result: Sequence[Any]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def write_export(points: Sequence[Point], folder: Path) -> Path:
    file = folder / "points.vm.jsonl"
    lines = [
        {
            "metric": point.labels(__name__=point.metric),
            "values": [None if point.value != point.value else point.value],
            "timestamps": [point.at * 1000],
        }
        for point in points
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def write_collected(points: Sequence[Point], folder: Path) -> Path:
    (folder / "collected").mkdir()
    write_parquet(points, folder / "collected", tags=True)
    return folder


WRITERS = {
    "parquet": write_parquet,
    "csv": write_csv,
    "adapter-json": write_adapter,
    "prom-json": write_query_range,
    "vm-jsonl": write_export,
    "collect": write_collected,
}


Row = dict[str, Any]


def read_each(
    files: Mapping[str, Path], kind: str, metric_map: MetricMap | None = None, **rules: Any
) -> dict[str, list[Row]]:
    """Return what one job of Spark makes of each file or folder, in its order."""
    chosen = metric_map or MetricMap()
    session = SparkSession.active()
    tags = FORMATS[kind].tags if chosen.urlencoded is None else chosen.urlencoded
    inputs = file_inputs(session, map(str, files.values()), kind, chosen)
    of_files = Rules(chosen, tags, **rules)
    rows = without_broken_files(
        session, inputs, lambda: rows_of(read_points(session, inputs, of_files))
    )
    for number, why in inputs.unreadable.items():
        rows.append({"file": number, "line": 0, "problem": UNREADABLE, "text": why, "n": 1})
    names = list(map(Path, inputs.names))
    return {
        name: [row for row in rows if names[row["file"]].is_relative_to(file)]
        for name, file in files.items()
    }


def read(file: Path, kind: str, metric_map: MetricMap | None = None, **rules: Any) -> list[Row]:
    """Return what the source makes of a file or folder, in its order."""
    return read_each({"": file}, kind, metric_map, **rules)[""]


def rows_of(points: DataFrame) -> list[Row]:
    """Return points in the order of their inputs; those refused alike are one row."""
    rows: list[Row] = []
    found = points.toArrow().to_pylist()
    for item in sorted(found, key=lambda row: (row["file"], row["line"] or 0)):
        same = ("file", "line", "problem", "text")
        if rows and item["problem"] and all(rows[-1][name] == item[name] for name in same):
            rows[-1]["n"] += 1
        else:
            rows.append({**item, "n": 1})
    return rows


def good(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return (second, broker, key, attribute, user, client-id, value, cluster) of what is fine."""
    noon = int(NOON.timestamp()) * 1_000_000
    return [
        ((row["ts"] - noon) // 1_000_000, *(row[name] for name in EIGHT_FIELDS[1:]))
        for row in rows
        if row["problem"] is None
    ]


def job_of(
    spark: SparkSession,
    kind: str,
    source: str | Path,
    out: Path,
    *options: str,
    name: str = "ingest",
) -> Job:
    """Return an ingest in the session of the tests, with the options of the command."""
    arguments = [name, "--format", kind, "--input", str(source), "--out", str(out), *options]
    job = Job(name, _parser([name]).parse_args(arguments))
    job.session = spark
    return job


def run_job(spark: SparkSession, kind: str, source: str | Path, out: Path, *options: str) -> Job:
    """Ingest, and return what was counted."""
    job = job_of(spark, kind, source, out, *options)
    rules = rules_of(job)
    ingest(job, rules, inputs_of(job, rules), job.lake())
    return job


def observed(spark: SparkSession, out: str | Path) -> DataFrame:
    """Return ``observation_minute`` as an export has it."""
    return observation_minutes([Lake(spark, str(out))], Scope())


def refused(rows: Sequence[Row]) -> list[tuple[int, str, int]]:
    """Return (line, reason, how many) of what is not; lines of text have no number."""
    return [(row["line"], row["problem"], row["n"]) for row in rows if row["problem"]]
