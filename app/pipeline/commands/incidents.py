"""Find the stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Reads ``bucket_minute`` below each ``--input``, with ``dim_bucket`` and, for the first contributors,
``observation_minute`` where they are there too. Incidents that begin on a day of the input are
replaced, the others stay. A stretch across midnight is one incident if both days are read together.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.pipeline.job import Job
from app.pipeline.jobs.attribution import PAIR, with_contributors, with_quotas
from app.pipeline.jobs.incidents import find_stretches, last_minutes, with_brokers, with_status
from app.pipeline.lake import Lake, Partition, read_all
from app.pipeline.plots.pictures import draw_if_asked
from app.pipeline.publish.postgres import publish
from app.pipeline.sinks.result_tables import carry_names, say_plan, write_result
from app.pipeline.sources.buckets import Scope, days_of, read_minutes
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    OBSERVATION_MINUTE,
    THROTTLE_INCIDENT,
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What incidents are found in.

    Attributes:
        minutes: The columns of ``BUCKET_MINUTE``.
        buckets: The columns of ``DIM_BUCKET``; null where the names are unknown.
        observations: The columns of ``OBSERVATION_MINUTE``; null where there are none at hand.
        days: The partitions by day that the run is about.
    """

    minutes: DataFrame
    buckets: DataFrame | None
    observations: DataFrame | None
    days: Sequence[Partition]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how long a pause may be."""
    parser.add_argument(
        "--gap",
        type=_minutes,
        default=1,
        metavar="MINUTES",
        help="join violating minutes that start at most this far apart; default 1",
    )
    parser.epilog = "A finding is an incident."


def run(job: Job) -> None:
    """Write the incidents that begin on the days of the input.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has no ``bucket_minute``.
    """
    scope = Scope.of(job)
    job.require_options()
    with job.spark():
        if job.options.dry_run:
            reads = (BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE)
            say_plan(job, reads=reads, writes=(THROTTLE_INCIDENT, DIM_BUCKET))
            return
        lakes, out = job.lakes(), job.lake()
        minutes = read_minutes(lakes, scope)
        job.counts["rows_in"] = minutes.count()
        buckets = carry_names(job, lakes, out, scope)
        days = days_of(lakes, BUCKET_MINUTE, scope)
        observations = _read_observations(lakes, scope)
        write_incidents(job, Inputs(minutes, buckets, observations, days), out)
    publish(job, minutes, days)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_incidents(job: Job, inputs: Inputs, out: Lake) -> None:
    """Write the incidents, and count into the report.

    Args:
        job: Has ``--gap``; gets counts and findings.
        inputs: What to find them in.
        out: Where to; what begins on other days there stays.
    """
    stretches = find_stretches(inputs.minutes, job.options.gap).persist()
    found = with_brokers(stretches).persist()
    count = found.count()
    rows = with_quotas(found, inputs.buckets)
    pairs = _pairs(inputs.observations)
    rows = with_contributors(rows, inputs.minutes, inputs.buckets, pairs, count)
    if out.has(THROTTLE_INCIDENT):
        rows = rows.unionByName(_read_earlier(inputs, out).select(*rows.columns))
    rows = with_status(rows, last_minutes(inputs.minutes))
    clusters = [{"cluster_id": item} for item in sorted({day["cluster_id"] for day in inputs.days})]
    write_result(job, rows, THROTTLE_INCIDENT, out, clusters)
    for frame in (stretches, found):
        frame.unpersist()
    job.counts["incidents"] = count
    job.findings += count


def _read_earlier(inputs: Inputs, out: Lake) -> DataFrame:
    """Return the published incidents of these clusters that begin on other days."""
    session = inputs.minutes.sparkSession
    published = out.read(THROTTLE_INCIDENT)
    days = [(day["cluster_id"], day["dt"]) for day in inputs.days]
    replaced = session.createDataFrame(days, "cluster_id string, day string")
    clusters = sf.broadcast(replaced.select("cluster_id").distinct())
    begins = published.withColumn("day", sf.date_format("start", "yyyy-MM-dd"))
    return begins.join(clusters, "cluster_id", "left_semi").join(
        sf.broadcast(replaced), ["cluster_id", "day"], "left_anti"
    )


def _read_observations(lakes: Sequence[Lake], scope: Scope) -> DataFrame | None:
    having = [lake for lake in lakes if lake.has(OBSERVATION_MINUTE)]
    return scope.minutes(read_all(having, OBSERVATION_MINUTE)) if having else None


def _pairs(observations: DataFrame | None) -> DataFrame | None:
    """Return the observations that tell user and client-id apart; null without any."""
    if observations is None:
        return None
    pairs = observations.where(sf.col("grain") == PAIR)
    return None if pairs.isEmpty() else pairs


def _minutes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r} is not a whole number of minutes from 1 on"
        raise argparse.ArgumentTypeError(message)
    return int(text)
