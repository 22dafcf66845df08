"""Find the stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Reads ``bucket_minute`` below each ``--input``, with ``dim_bucket`` and, for the first contributors,
``observation_minute`` where they are there too. Incidents that begin on a day of the input are
replaced, the others stay. A stretch across midnight is one incident if both days are read together.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.pipeline.folders import Partition, RunFolder, has_table
from app.pipeline.job import Job
from app.pipeline.jobs.incidents import incidents
from app.pipeline.jobs.incidents_minutes import notable_minutes
from app.pipeline.jobs.incidents_names import PAIR, with_contributors, with_quotas
from app.pipeline.jobs.utilization_minutes import BucketMinutes
from app.pipeline.plots.drawing import draw_if_asked
from app.pipeline.publish.postgres import publish
from app.pipeline.sinks.result_tables import carry_names, say_plan, write_result
from app.pipeline.sources.buckets import Scope, days_of, read_minutes
from app.pipeline.sources.table_pieces import TablePiece, pieces_of, same_in_all
from app.pipeline.spark import TASKS_IN_PYTHON
from app.pipeline.storage import read_table, require_table
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    OBSERVATION_MINUTE,
    THROTTLE_INCIDENT,
)


@dataclass(frozen=True, slots=True)
class Material:
    """What incidents are found in.

    Attributes:
        minutes: Of ``BUCKET_MINUTE``, as tasks read them.
        frame: The same, as Spark reads them.
        buckets: The columns of ``DIM_BUCKET``; null where the names are unknown.
        pairs: The columns of ``OBSERVATION_MINUTE``; null where there are none at hand.
        days: The partitions by day that the run is about.
    """

    minutes: BucketMinutes
    frame: DataFrame
    buckets: DataFrame | None
    pairs: DataFrame | None
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
    folders, scope = job.inputs(), Scope.of(job)
    if job.options.dry_run:
        reads = (BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE)
        say_plan(job, reads=reads, writes=(THROTTLE_INCIDENT, DIM_BUCKET))
        return
    out = job.output()
    try:
        require_table(folders, BUCKET_MINUTE)
        with job.spark(TASKS_IN_PYTHON) as session:
            minutes = read_minutes(session, folders, scope)
            job.counts["rows_in"] = minutes.count()
            names = carry_names(job, session, out, scope)
            pieces = pieces_of(folders, BUCKET_MINUTE, scope, files=True)
            pairs = _read_pairs(session, folders, scope)
            days = days_of(folders, BUCKET_MINUTE, scope)
            material = Material(BucketMinutes(pieces, scope), minutes, names, pairs, days)
            write_incidents(job, material, out)
            out.publish()
    finally:
        out.discard()
    publish(job, out)
    draw_if_asked(job, [*folders, out.folder])


def write_incidents(job: Job, material: Material, out: RunFolder) -> None:
    """Write the incidents aside, and count into the report.

    Args:
        job: Has ``--gap``; gets counts and findings.
        material: What to find them in.
        out: Where to; what begins on other days there is kept.
    """
    session = material.frame.sparkSession
    notable = notable_minutes(session, material.minutes).cache()
    found = incidents(notable, job.options.gap).cache()
    named = with_quotas(found, material.buckets)
    told = with_contributors(named, material.frame, material.buckets, material.pairs)
    kept = _kept(material, out)
    kept_rows = 0
    if kept is not None:
        kept_rows = kept.count()
        told = told.select(*kept.columns).unionByName(kept)
    clusters = [
        {"cluster_id": item} for item in sorted({day["cluster_id"] for day in material.days})
    ]
    rows = write_result(job, told, THROTTLE_INCIDENT, out, clusters)
    for frame in (notable, found):
        frame.unpersist()
    job.counts["incidents"] = rows - kept_rows
    job.findings += rows - kept_rows


def _kept(material: Material, out: RunFolder) -> DataFrame | None:
    """Return the published incidents of these clusters that begin on other days."""
    if not has_table(out.folder, THROTTLE_INCIDENT) or not material.days:
        return None
    session = material.frame.sparkSession
    published = read_table(session, [out.folder], THROTTLE_INCIDENT)
    days = [(day["cluster_id"], day["dt"]) for day in material.days]
    read = session.createDataFrame(days, "cluster_id string, day string")
    mine = published.join(
        sf.broadcast(read.select("cluster_id").distinct()), "cluster_id", "left_semi"
    )
    begins = mine.withColumn("day", sf.date_format("start", "yyyy-MM-dd"))
    return begins.join(sf.broadcast(read), ["cluster_id", "day"], "left_anti").drop("day")


def _read_pairs(session: SparkSession, folders: Sequence[Path], scope: Scope) -> DataFrame | None:
    having = [folder for folder in folders if has_table(folder, OBSERVATION_MINUTE)]
    if not having or tell_no_pairs(pieces_of(having, OBSERVATION_MINUTE, scope)):
        return None
    return scope.minutes(read_table(session, having, OBSERVATION_MINUTE))


def tell_no_pairs(pieces: Sequence[TablePiece]) -> bool:
    """Tell whether the footers of observations say that none has the grain ``pair``."""
    grain = same_in_all(pieces, "grain")
    return grain is not None and grain != PAIR


def _minutes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r} is not a whole number of minutes from 1 on"
        raise argparse.ArgumentTypeError(message)
    return int(text)
