"""Read metrics of any shape into ``observation_minute``, one row a minute, broker and name.

Input that cannot be used goes to ``quarantine``, and ``dq_result`` judges the whole. The clusters
and days that the input is about are replaced, each as a whole: give it whole days.
"""

import argparse
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folders import RunFolder, write_table
from app.pipeline.job import Job
from app.pipeline.jobs.ingest import ingested, quarantined
from app.pipeline.jobs.ingest_checks import Tally, checks, tally
from app.pipeline.jobs.ingest_judged import UNNAMED
from app.pipeline.jobs.ingest_tasks import Task
from app.pipeline.lake import Partition, schema_of
from app.pipeline.sinks.result_tables import explain
from app.pipeline.sources.formats import FORMATS
from app.pipeline.sources.inputs import Inputs
from app.pipeline.sources.kafka_topic import ranges_report
from app.pipeline.sources.material import Material, material_of
from app.pipeline.sources.metrics import read_points
from app.pipeline.sources.points import UNREADABLE
from app.pipeline.tables import DQ_RESULT, OBSERVATION_MINUTE, QUARANTINE, Table

__all__ = ["add_arguments", "check_clusters", "ingest", "material_of", "run"]

_WRITES: Final = (OBSERVATION_MINUTE, QUARANTINE, DQ_RESULT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how the input is to be understood."""
    parser.add_argument(
        "--map",
        metavar="FILE",
        help="YAML: `columns` (ts, broker_id, metric, resource, user, client_id, value, cluster_id "
        "to headers), `instances` (labels to broker ids), `urlencoded`, `grain`",
    )
    parser.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="lines of NAME=VALUE for the Kafka client, in librdkafka's names",
    )
    parser.epilog = (
        f"--format is one of {', '.join(FORMATS)}. --input is a file, a folder or a pattern; "
        "for kafka-json kafka://HOST:PORT[,HOST:PORT]/TOPIC. Days are replaced as a whole."
    )


def run(job: Job) -> None:
    """Write the tables.

    Raises:
        UsageError: An option is missing or wrong, or a file lacks a column.
        InfrastructureError: Spark or a broker does not do its part.
    """
    material = material_of(job)
    job.counts |= {"format": material.kind, "inputs": len(material.inputs.names)}
    if material.inputs.ranges:
        job.counts["offsets"] = job.read["offsets"] = ranges_report(material.inputs.ranges)
    if job.options.dry_run:
        job.counts["would_read"] = material.inputs.names
        job.counts["would_write"] = [f"{job.options.out}/{table.name}" for table in _WRITES]
        return
    out = job.output()
    try:
        with job.spark() as session:
            ingest(job, session, material, out)
            out.publish()
    finally:
        out.discard()


def ingest(job: Job, session: SparkSession, material: Material, out: RunFolder) -> None:
    """Write the tables aside, and count into the report.

    Raises:
        UsageError: ``--cluster`` names one cluster, and the input holds several.
        InfrastructureError: Spark or a broker does not do its part.
    """
    place = out.aside(OBSERVATION_MINUTE)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    constants = {"grain": material.rules.map.grain, "source": material.kind}
    constants["ingest_run_id"] = job.run_id
    task = Task(str(place), job.options.cluster, constants)
    frame = ingested(read_points(session, material.inputs, material.rules), task)
    explain(job, OBSERVATION_MINUTE, frame)
    told = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = tally(told)
        check_clusters(job, counted)
        _require_all_rows(material.inputs, counted)
        out.wrote(OBSERVATION_MINUTE, _replaced(job, counted))
        _count(job, OBSERVATION_MINUTE, out)
        _write_quarantine(job, told, material.inputs, out)
        _write_checks(job, session, counted, out)
    finally:
        told.unpersist()


def _require_all_rows(inputs: Inputs, counted: Tally) -> None:
    """Compare with what the footers of files say, where all of them can be read.

    Raises:
        InfrastructureError: Rows were lost or doubled.
    """
    if not inputs.pieces or not all(piece.get("types") for piece in inputs.pieces):
        return
    if UNREADABLE in counted.refused:
        return
    rows = sum(piece["rows"] for piece in inputs.pieces)
    found = counted.rows_in + counted.left_out
    if found != rows:
        message = (
            f"The files hold {rows} rows and {found} were read; nothing is published. Run again; "
            "where it stays so, the files change while they are read."
        )
        raise InfrastructureError(message)


def _write_quarantine(job: Job, told: DataFrame, inputs: Inputs, out: RunFolder) -> None:
    names = dict(enumerate(inputs.names))
    write_table(quarantined(told, names).coalesce(1), QUARANTINE, out)
    _count(job, QUARANTINE, out)


def _write_checks(job: Job, session: SparkSession, counted: Tally, out: RunFolder) -> None:
    files = out.aside(QUARANTINE).rglob("*.parquet")
    kept = sum(sum(pq.read_table(file, columns=["n"])["n"].to_pylist()) for file in files)
    now = datetime.now(UTC).replace(tzinfo=None)
    judgement = checks(counted, {QUARANTINE.name: kept}, now, job.options.cluster)
    rows = session.createDataFrame(judgement, schema_of(DQ_RESULT)).coalesce(1)
    write_table(rows, DQ_RESULT, out)
    _count(job, DQ_RESULT, out)
    job.quarantined = counted.quarantined
    job.counts |= {
        "rows_in": counted.rows_in,
        "rows_used": sum(counted.used.values()),
        "used": counted.used,
        "quarantined_by_reason": counted.refused,
        "left_out": counted.left_out,
        "clusters": sorted({broker.cluster_id for broker in counted.brokers}),
        "dq_failed": [item.check for item in judgement if not item.passed],
    }


def _count(job: Job, table: Table, out: RunFolder) -> None:
    files = out.aside(table).rglob("*.parquet")
    rows: dict[str, int] = job.counts.setdefault("rows_out", {})
    rows[table.name] = sum(pq.read_metadata(file).num_rows for file in files)


def check_clusters(job: Job, counted: Tally) -> None:
    """Raise where one cluster id would hide several, and say where there is none.

    Raises:
        UsageError: ``--cluster`` names one cluster, and the input holds several.
    """
    named = sorted(counted.clusters - {""})
    if job.options.cluster and len(named) > 1:
        message = (
            f"--cluster {job.options.cluster}: the input holds the clusters {', '.join(named)}; "
            "leave the option out, or give the input of one."
        )
        raise UsageError(message)
    if "" in counted.clusters and not job.options.cluster:
        job.say(f"the input names no cluster: cluster_id is {UNNAMED!r}; name it with --cluster.")


def _replaced(job: Job, counted: Tally) -> Iterator[Partition]:
    """Yield the days of ``--from`` and ``--to``, for each cluster: empty if nothing is there."""
    since, until = job.period()
    if since is None or until is None:
        return
    clusters = {broker.cluster_id for broker in counted.brokers} | {job.options.cluster} - {None}
    last = until - timedelta(microseconds=1)
    for number in range(since.toordinal(), last.toordinal() + 1):
        day = date.fromordinal(number).isoformat()
        yield from ({"cluster_id": cluster, "dt": day} for cluster in sorted(clusters))
