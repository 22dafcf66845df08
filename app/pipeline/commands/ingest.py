"""Read metrics of any shape into ``observation_minute``, one row a minute, broker and name.

Input that cannot be used goes to ``quarantine``, and ``dq_result`` judges the whole. The clusters
and days that the input is about are replaced, each as a whole: give it whole days.
"""

import argparse
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.ingest.checks import CLUSTER_NAMED, Tally, checks, counts_of_used, tally
from app.pipeline.ingest.hints import without_brokers, without_quota_metrics
from app.pipeline.ingest.inputs import (
    FORMATS,
    KAFKA,
    PROMETHEUS,
    Inputs,
    file_inputs,
    server_inputs,
    topic_inputs,
)
from app.pipeline.ingest.kafka_topic import offsets_of_file, settings_of_file
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.minutes import (
    idle_minutes,
    points_that_count,
    quarantine,
    refused_points,
    sum_minutes,
)
from app.pipeline.ingest.points import UNNAMED, Rules
from app.pipeline.ingest.prometheus import add_prometheus_options, server_of
from app.pipeline.ingest.read import broken_files, read_points, unreadable_points
from app.pipeline.ingest.rows import UNREADABLE
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, is_of_days, schema_of
from app.pipeline.results import Scope, explain
from app.pipeline.tables import DQ_RESULT, OBSERVATION_MINUTE, QUARANTINE


def rules_of(job: Job) -> Rules:
    """Read how points are judged from the options; no input is looked at.

    Raises:
        UsageError: An option is missing or wrong.
    """
    options = job.options
    kind = options.format
    if kind not in FORMATS:
        fault = "is unknown" if kind else "is missing"
        message = f"--format {fault}: it is one of {', '.join(FORMATS)}."
        raise UsageError(message)
    metric_map = MetricMap.load(options.map)
    if FORMATS[kind].labelled:
        metric_map.require_labels(kind)
    if not options.input:
        message = (
            "--input is missing: name the files to read, a folder of them, a topic, or a server."
        )
        raise UsageError(message)
    tags = FORMATS[kind].tags if metric_map.urlencoded is None else metric_map.urlencoded
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    scope = Scope.of(job)
    since, until = (
        None if time is None else (time - epoch) // timedelta.resolution
        for time in (scope.since, scope.until)
    )
    return Rules(metric_map, tags, since, until, options.cluster)


def inputs_of(job: Job, rules: Rules) -> Inputs:
    """Find what the options name; nothing is read but headers and offsets.

    Raises:
        UsageError: There is no such input, or a file lacks a column.
        InfrastructureError: The brokers of a topic, or a server, do not answer.
    """
    uris, kind = job.options.input, job.options.format
    if kind == KAFKA:
        offsets = offsets_of_file(job.options.offsets) if job.options.offsets else None
        inputs = topic_inputs(uris, settings_of_file(job.options.kafka_config), offsets)
    elif kind == PROMETHEUS:
        servers = [server_of(uri, job.options) for uri in uris]
        inputs = server_inputs(servers, rules, job.options.step)
    else:
        inputs = file_inputs(job.session, uris, kind, rules.map)
    job.read["inputs"] = inputs.read
    return inputs


ROWS_OF_FILE: Final = 1_500_000
"""About so many points of a day are summed up for one file."""

WRITES: Final = (OBSERVATION_MINUTE, QUARANTINE, DQ_RESULT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how the input is to be understood."""
    parser.add_argument(
        "--map",
        metavar="FILE",
        help="YAML: `columns` (ts, broker_id, metric, resource, user, client_id, value, cluster_id "
        "to headers, or to the labels of series in JSON), `instances` (values of an instance's "
        "label to broker ids), `none` (values that mean no name), `urlencoded`, `grain`",
    )
    parser.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="lines of NAME=VALUE for the Kafka client, in librdkafka's names",
    )
    parser.add_argument(
        "--offsets",
        metavar="FILE",
        help="JSON of an earlier report: read the same offsets of a topic again",
    )
    add_prometheus_options(parser)
    parser.epilog = (
        f"--format is one of {', '.join(FORMATS)}. --input is a file, a folder or a pattern (* ? "
        "[] {}) of files below the folder in front of it; for kafka-json "
        "kafka://HOST:PORT[,HOST:PORT]/TOPIC, for prometheus the server's URL. Days are replaced "
        "as a whole."
    )


def run(job: Job) -> None:
    """Write the tables.

    Raises:
        UsageError: An option is missing or wrong, or a file lacks a column.
        InfrastructureError: Spark or a broker fails.
    """
    rules = rules_of(job)
    job.require_options()
    with job.spark():
        inputs = inputs_of(job, rules)
        out = job.lake()
        if job.options.dry_run:
            job.counts["would_read"] = inputs.names
            job.counts["would_write"] = [out.address(table) for table in WRITES]
            return
        ingest(job, rules, inputs, out)


def ingest(job: Job, rules: Rules, inputs: Inputs, out: Lake) -> list[Partition]:
    """Write the tables, count into the report, and return the days that were replaced.

    Raises:
        UsageError: ``--cluster`` names one cluster, and the input holds several.
        InfrastructureError: Spark or a broker fails.
    """
    job.counts |= {"format": inputs.kind, "inputs": len(inputs.names)}
    if inputs.ranges:
        # `--offsets` takes them.
        job.counts["offsets"] = inputs.read
    points = read_points(out.session, inputs, rules)
    if not FORMATS[inputs.kind].parquet:
        # Python parses text, which takes longer than all that follows.
        points = points.persist(StorageLevel.DISK_ONLY)
    try:
        return _ingest(job, points, rules, inputs, out)
    finally:
        points.unpersist()


def _ingest(
    job: Job, points: DataFrame, rules: Rules, inputs: Inputs, out: Lake
) -> list[Partition]:
    counted = tally(points)
    _require_one_cluster(job, points, counted)
    if UNNAMED in counted.clusters and not job.options.cluster:
        job.say(f"the input names no cluster: cluster_id is {UNNAMED!r}; name it with --cluster.")
    points = _with_broken_files(points, inputs, counted)
    days = _days(job, counted)
    cut = _cut_days(job, inputs, out, days)
    days = [day for day in days if day not in cut]
    shares = -(-max(counted.days.values(), default=1) // ROWS_OF_FILE)
    counting, used = points_that_count(points, inputs.firsts, shares), Observation()
    rows = sum_minutes(counting.observe(used, *counts_of_used()))
    if counted.has_ups:
        rows = rows.unionByName(idle_minutes(sum_minutes(counting), counting))
    constants = {"grain": rules.map.grain, "source": inputs.kind, "ingest_run_id": job.run_id}
    rows = rows.withColumns({name: sf.lit(value) for name, value in constants.items()})
    if cut:
        rows = rows.where(~is_of_days(cut))
    explain(job, OBSERVATION_MINUTE, rows)
    rows_out = job.counts.setdefault("rows_out", {})
    rows_out[OBSERVATION_MINUTE.name] = out.write(rows, OBSERVATION_MINUTE, days)
    counted.add_used(used.get)
    _write_quarantine(job, points, inputs, counted, out)
    for sentence in (without_quota_metrics(counted), without_brokers(counted, points, inputs)):
        if sentence:
            job.say(sentence)
    _write_checks(job, counted, out)
    return days


def _cut_days(job: Job, inputs: Inputs, out: Lake, days: list[Partition]) -> list[Partition]:
    """Return the days that are not replaced: those whose rows retention has begun to remove."""
    if inputs.cut_day is None or not out.has(OBSERVATION_MINUTE):
        return []
    stored = out.partitions(OBSERVATION_MINUTE)
    cut = [day for day in days if day["dt"] <= f"{inputs.cut_day}" and day in stored]
    for day in cut:
        job.say(
            f"{day['dt']} of {day['cluster_id']} stays as it was: retention has removed messages "
            "of it from the topic."
        )
    return cut


def _with_broken_files(points: DataFrame, inputs: Inputs, counted: Tally) -> DataFrame:
    """Add what is broken within a file, where fewer rows were read than the footers count.

    Raises:
        InfrastructureError: Rows were lost or doubled.
    """
    found = counted.rows_in + counted.left_out - len(inputs.unreadable)
    if inputs.rows in {None, found}:
        return points
    broken = broken_files(points, inputs)
    if not broken:
        message = (
            f"The files hold {inputs.rows} rows and {found} were read; nothing is published. Run "
            "again; where it stays so, the files change while they are read."
        )
        raise InfrastructureError(message)
    inputs.unreadable |= broken
    counted.refused[UNREADABLE] = len(inputs.unreadable)
    return points.unionByName(unreadable_points(points.sparkSession, broken))


def _write_quarantine(
    job: Job, points: DataFrame, inputs: Inputs, counted: Tally, out: Lake
) -> None:
    rows = out.session.createDataFrame([], schema_of(QUARANTINE))
    if counted.quarantined:
        rows = quarantine(refused_points(points, inputs.firsts), dict(enumerate(inputs.names)))
    job.counts["rows_out"][QUARANTINE.name] = out.write(rows.coalesce(1), QUARANTINE)


def _write_checks(job: Job, counted: Tally, out: Lake) -> None:
    written = out.read(QUARANTINE).agg(sf.sum("n")).collect()[0][0] or 0
    now = datetime.now(UTC).replace(tzinfo=None)
    judgement = checks(counted, written, now, job.options.cluster)
    rows = out.session.createDataFrame(judgement, schema_of(DQ_RESULT)).coalesce(1)
    job.counts["rows_out"][DQ_RESULT.name] = out.write(rows, DQ_RESULT)
    job.quarantined = counted.quarantined
    failed = [item.check for item in judgement if not item.passed]
    # No number is wrong for want of a name.
    job.failed_checks = [name for name in failed if name != CLUSTER_NAMED]
    job.counts |= {
        "rows_in": counted.rows_in,
        "rows_used": sum(counted.used.values()),
        "used": counted.used,
        "quarantined_by_reason": counted.refused,
        "left_out": counted.left_out,
        "clusters": sorted(counted.clusters),
        "dq_failed": failed,
    }


def _require_one_cluster(job: Job, points: DataFrame, counted: Tally) -> None:
    """Raise where one cluster id would hide several.

    Raises:
        UsageError: ``--cluster`` names one cluster, and the input holds several.
    """
    if not (job.options.cluster and counted.is_mixed):
        return
    clusters = points.where("problem is null and cluster != ''").select("cluster").distinct()
    names = ", ".join(sorted(row.cluster for row in clusters.collect()))
    message = (
        f"--cluster {job.options.cluster}: the input holds the clusters {names}; leave the option "
        "out, or give the input of one."
    )
    raise UsageError(message)


def _days(job: Job, counted: Tally) -> list[Partition]:
    """Return the days that have rows, and those of ``--from`` and ``--to`` for each cluster."""
    since, until = job.options.since, job.options.until
    numbers = range(0)
    if since and until:
        numbers = range(since.toordinal(), (until - timedelta.resolution).toordinal() + 1)
    clusters = counted.clusters | ({job.options.cluster} - {None})
    period = {(name, date.fromordinal(day).isoformat()) for name in clusters for day in numbers}
    return [
        {"cluster_id": cluster, "dt": day} for cluster, day in sorted(counted.days.keys() | period)
    ]
