"""Read metrics of any shape into ``series`` and ``rate_minute``, one row a minute and broker.

Input that cannot be used goes to ``quarantine``, and ``dq_result`` judges the whole. The hours that
the input is about, or ``--from`` and ``--to``, are replaced, each as a whole.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import product
from typing import Final

import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.folder_writer import in_tasks
from app.pipeline.ingest.checks import (
    CLUSTER_NAMED,
    Tally,
    checks,
    without_brokers,
    without_files,
    without_quota_metrics,
)
from app.pipeline.ingest.files_at_hand import read_share, shares_of
from app.pipeline.ingest.hours import DETAILS, REPORTS, SURPLUS, sum_up
from app.pipeline.ingest.inputs import (
    FORMATS,
    KAFKA,
    PROMETHEUS,
    Choice,
    Inputs,
    file_inputs,
    of_newest_hour,
    of_period,
)
from app.pipeline.ingest.kafka_topic import offsets_of_file, settings_of_file, topic_inputs
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.minutes import HOUR_US
from app.pipeline.ingest.points import UNNAMED, UNREADABLE, Rules
from app.pipeline.ingest.prometheus import add_prometheus_options, server_inputs, server_of
from app.pipeline.ingest.read import read_points, without_broken_files
from app.pipeline.job import Job
from app.pipeline.lake import Lake, schema_of
from app.pipeline.options import read_file
from app.pipeline.partitions import Partition, days_of, in_order, is_within, without
from app.pipeline.results import Scope, explain
from app.pipeline.tables import DQ_RESULT, QUARANTINE, RATE_MINUTE, SERIES
from app.pipeline.task_tables import TaskTables


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
    metric_map = load_map(options.map)
    if FORMATS[kind].series is not None:
        metric_map.require_labels(kind)
    if not options.input:
        message = (
            "--input is missing: name the files to read, a folder of them, a topic, or a server."
        )
        raise UsageError(message)
    tags = FORMATS[kind].tags if metric_map.urlencoded is None else metric_map.urlencoded
    scope = Scope.of(job)
    since, until = (
        None if time is None else (time - _EPOCH) // timedelta.resolution
        for time in (scope.since, scope.until)
    )
    return Rules(metric_map, tags, since, until, options.cluster)


def load_map(file: str | None) -> MetricMap:
    """Read the file of ``--map``; without one nothing is mapped.

    Raises:
        UsageError: It is missing, no YAML, or says what nobody reads.
    """
    if file is None:
        return MetricMap()
    try:
        data = yaml.safe_load(read_file("--map", file))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = "" if mark is None else f" (line {mark.line + 1})"
        message = f"--map {file} is not YAML{line}."
        raise UsageError(message) from error
    return MetricMap.of({} if data is None else data, f"--map {file}")


def inputs_of(job: Job, rules: Rules, choose: Choice | None = None) -> Inputs:
    """Find what the options name; nothing is read but headers and offsets.

    Of files those are chosen that may have times of the period, unless ``choose`` says otherwise.

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
        inputs = file_inputs(job.session, uris, kind, rules.map, choose or of_period(rules))
    job.read["inputs"] = inputs.read
    return inputs


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

WRITES: Final = (SERIES, RATE_MINUTE, QUARANTINE, DQ_RESULT)


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
        "kafka://HOST:PORT[,HOST:PORT]/TOPIC, for prometheus the server's URL. Hours are replaced "
        "as a whole."
    )


def run(job: Job) -> None:
    """Write the tables.

    Raises:
        UsageError: An option is missing or wrong, or a file lacks a column.
        InfrastructureError: Spark or a broker fails.
    """
    rules = rules_of(job)
    inputs = inputs_of(job, rules)
    out = job.lake()
    if job.options.dry_run:
        job.counts["would_read"] = inputs.names
        job.counts["would_write"] = [out.address(table) for table in WRITES]
        return
    ingest(job, rules, inputs, out)


def newest_time(job: Job, rules: Rules) -> datetime | None:
    """Return the newest time of the input that is not in the future, UTC; null without any."""
    if job.options.format == PROMETHEUS:
        # It has the points of the last minute once they are scraped.
        return datetime.now(UTC) - timedelta(minutes=1)
    now = datetime.now(UTC)
    inputs = inputs_of(job, rules, of_newest_hour(now))
    until = int(now.timestamp() * 1_000_000)
    stated = [item.newest for item in inputs.row_groups]
    past = [time for time in stated if time is not None and time <= until]
    if past and len(past) == len(stated):
        return _EPOCH + timedelta(microseconds=max(past))

    def newest() -> int | None:
        times = read_points(job.session, inputs, rules).where(sf.col("ts") <= until)
        found: int | None = times.agg(sf.max("ts")).collect()[0][0]
        return found

    time = without_broken_files(job.session, inputs, newest)
    return None if time is None else _EPOCH + timedelta(microseconds=time)


def ingest(job: Job, rules: Rules, inputs: Inputs, out: Lake) -> list[Partition]:
    """Write the tables, and return the hours that were replaced.

    Raises:
        UsageError: ``--cluster`` names one cluster, and the input holds several; or two series
            have the same hash.
        InfrastructureError: Spark or a broker fails, or rows were lost or doubled.
    """
    job.counts |= {"format": inputs.kind, "inputs": len(inputs.names)}
    if inputs.kind == KAFKA:
        # `--offsets` takes them.
        job.counts["offsets"] = inputs.read
    rows_out = job.counts.setdefault("rows_out", {})
    with ExitStack() as opened:
        made = without_broken_files(
            job.session, inputs, lambda: _run_tasks(job, rules, inputs, out, opened)
        )
        explain(job, RATE_MINUTE, made.found)
        counted = Tally.of(made.reports, len(inputs.unreadable))
        _require_all(job, rules, inputs, counted)
        replaced = _hours_to_replace(job, inputs, counted, out)
        for table in (SERIES, RATE_MINUTE):
            rows_out[table.name] = made.put(table, replaced)
        surplus = made.rows(SURPLUS)
        hours = replaced or [_partition(job.options.cluster or UNNAMED, 0)]
        rows_out[QUARANTINE.name] = _write_quarantine(surplus, inputs, counted, out, hours)
        for sentence in (
            without_files(inputs),
            without_quota_metrics(counted),
            without_brokers(counted, surplus, inputs),
        ):
            if sentence:
                job.say(sentence)
    rows_out[DQ_RESULT.name] = _write_checks(job, counted, out, hours[0])
    return replaced


def _run_tasks(job: Job, rules: Rules, inputs: Inputs, out: Lake, opened: ExitStack) -> TaskTables:
    """Judge and sum up all points, in one reading."""
    made = TaskTables(out, (SERIES, RATE_MINUTE), REPORTS, opened, DETAILS)
    same = {"grain": rules.map.grain, "source": inputs.kind, "ingest_run_id": job.run_id}
    sum_all = partial(sum_up, sources=inputs.sources, same=same, packing=made.packing)
    shares = shares_of(job.session, inputs, rules)
    if shares is None:
        points = read_points(job.session, inputs, rules)
        by_hour = points.repartition(sf.expr(f"ts div {HOUR_US}"))
        found = by_hour.mapInArrow(sum_all, made.ddl)
    else:
        read = partial(read_share, rules=rules, ignores_broken=inputs.ignores_broken)
        each = in_tasks(job.session, shares, lambda share: sum_all(read(share)))
        found = each.rows(made.ddl)
    made.run(found)
    return made


def _require_all(job: Job, rules: Rules, inputs: Inputs, counted: Tally) -> None:
    """See that what was counted can be published."""
    if inputs.unreadable and counted.rows_in == len(inputs.unreadable):
        number, why = min(inputs.unreadable.items())
        message = f"No file of the input can be read. {inputs.names[number]}: {why}"
        raise InfrastructureError(message)
    if job.options.cluster and len(counted.named) > 1:
        message = (
            f"--cluster {job.options.cluster}: the input holds the clusters "
            f"{', '.join(counted.named)}; leave the option out, or give the input of one."
        )
        raise UsageError(message)
    if UNNAMED in counted.clusters and not job.options.cluster:
        job.say(f"the input names no cluster: cluster_id is {UNNAMED!r}; name it with --cluster.")
    found = counted.rows_in + counted.left_out - len(inputs.unreadable)
    if rules.has_period and inputs.rows is not None:
        # Rows of other times are not even read.
        counted.left_out += inputs.rows - found
    elif inputs.rows not in {None, found}:
        message = (
            f"The files hold {inputs.rows} rows and {found} were read; nothing is published. Run "
            "again; where it stays so, the files change while they are read."
        )
        raise InfrastructureError(message)


def _hours_to_replace(job: Job, inputs: Inputs, counted: Tally, out: Lake) -> list[Partition]:
    """Return the hours that have rates, and all of ``--from`` and ``--to``, where both are given.

    Left out are those whose rows retention has begun to remove from a topic.
    """
    hours = set(counted.hours)
    scope = Scope.of(job)
    if scope.since and scope.until:
        first, end = ((time - _EPOCH) // timedelta(hours=1) for time in (scope.since, scope.until))
        clusters = counted.clusters | ({job.options.cluster} - {None})
        hours |= set(product(clusters, range(first, end)))
    found = [_partition(*hour) for hour in hours]
    of_days = [hour for hour in found if inputs.cut_day and hour["dt"] <= f"{inputs.cut_day}"]
    cut = out.partitions(RATE_MINUTE, of_days) if of_days else []
    for day in days_of(cut):
        job.say(
            f"{day['dt']} of {day['cluster_id']} stays as it was: retention has removed messages "
            "of it from the topic."
        )
    return in_order(without(found, cut))


def _partition(cluster: str, hour_of_epoch: int) -> Partition:
    days, hour = divmod(hour_of_epoch, 24)
    day = date(1970, 1, 1) + timedelta(days)
    return {"cluster_id": cluster, "dt": f"{day}", "hour": f"{hour}"}


def _write_quarantine(
    surplus: DataFrame, inputs: Inputs, counted: Tally, out: Lake, hours: Sequence[Partition]
) -> int:
    """Replace what is refused in these hours; the first of them has what is of no hour."""
    if not counted.quarantined:
        out.empty(QUARANTINE, hours)
        return 0
    names = list(enumerate(inputs.names))
    sources = out.session.createDataFrame(names, "file int, source string")
    files = [(None, None, file, 0, why, UNREADABLE) for file, why in inputs.unreadable.items()]
    own = surplus.union(out.session.createDataFrame(files, DETAILS[SURPLUS]))
    own = own.selectExpr("*", f"cast(ts div {HOUR_US} as int) as number")
    own = own.selectExpr("*", "date_from_unix_date(number div 24) as dt", "number % 24 as hour")
    is_own = sf.coalesce(is_within(hours, QUARANTINE.partitions), sf.lit(False))
    own = own.withColumn("is_own", is_own)
    for name, kind in (("cluster_id", "string"), ("dt", "date"), ("hour", "int")):
        first = sf.lit(hours[0][name]).cast(kind)
        own = own.withColumn(name, sf.when(sf.col("is_own"), sf.col(name)).otherwise(first))
    named = own.join(sf.broadcast(sources), "file")
    same = named.groupBy(*QUARANTINE.partitions, "source", "line", "raw", "reason")
    rows = same.agg(sf.count(sf.lit(1)).alias("n")).coalesce(1).persist()
    try:
        counted.stored = rows.agg(sf.sum("n")).collect()[0][0] or 0
        return out.write(rows, QUARANTINE, hours)
    finally:
        rows.unpersist()


def _write_checks(job: Job, counted: Tally, out: Lake, hour: Partition) -> int:
    now = datetime.now(UTC).replace(tzinfo=None)
    judgement = list(checks(counted, now, job.options.cluster))
    where = {**hour, "dt": date.fromisoformat(hour["dt"]), "hour": int(hour["hour"])}
    found = [{**where, **item._asdict()} for item in judgement]
    rows = out.session.createDataFrame(found, schema_of(DQ_RESULT)).coalesce(1)
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
    return out.write(rows, DQ_RESULT, [hour])
