"""Do everything from ingest to incidents in one Spark application, and publish it at once.

Takes the options of ``ingest``, ``resolve`` and ``incidents``. All tables go to one ``--out``; each
step reads what the step before has staged, so that nothing is computed twice and memory stays
free. The report tells of each step.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from app.pipeline.commands import incidents, ingest, resolve
from app.pipeline.commands.utilization import write_utilization
from app.pipeline.errors import UsageError
from app.pipeline.folders import Partition, RunFolder, has_table, local_folder
from app.pipeline.job import Job
from app.pipeline.plots.pictures import draw_if_asked
from app.pipeline.publish.postgres import publish
from app.pipeline.sources.buckets import Scope, partition_of
from app.pipeline.storage import read_table
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_HOUR,
    BUCKET_MINUTE,
    DIM_BUCKET,
    DQ_RESULT,
    OBSERVATION_MINUTE,
    QUARANTINE,
    QUOTA_VERSION,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    Table,
)

_WRITES = (
    *(OBSERVATION_MINUTE, QUARANTINE, DQ_RESULT, BUCKET_MINUTE, DIM_BUCKET),
    *(UTILIZATION_DAILY, UTILIZATION_HIST, BUCKET_HOUR, THROTTLE_INCIDENT),
)
_OBSERVATIONS = f"{OBSERVATION_MINUTE.name}/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every step."""
    for step in (ingest, resolve, incidents):
        step.add_arguments(parser)
    parser.epilog = (
        "--format and --input are those of ingest, --quotas those of resolve. A finding is a "
        "bucket's day over its limit on some broker, or an incident."
    )


def run(job: Job) -> None:
    """Write the tables of all steps.

    Raises:
        UsageError: An option is missing or wrong.
        InfrastructureError: Spark, a broker or Postgres fails.
    """
    quotas, source = _quotas(job), ingest.material_of(job)
    if job.options.dry_run:
        job.counts["would_read"] = [*source.inputs.names, str(quotas / QUOTA_VERSION.name)]
        job.counts["would_write"] = [f"{job.options.out}/{table.name}" for table in _WRITES]
        return
    out = job.output()
    try:
        with job.spark() as session:
            with _step(job, "ingest") as step:
                ingest.ingest(step, session, source, out)
            days = _Chain(job, session, out).from_observations(quotas)
            out.publish()
    finally:
        out.discard()
    lake = job.lake()
    publish(job, Scope.of(job).minutes(lake.read(BUCKET_MINUTE)), days)
    draw_if_asked(job, [lake])
    summarize(job, [lake])


@dataclass(frozen=True, slots=True)
class _Chain:
    job: Job
    session: SparkSession
    out: RunFolder

    def from_observations(self, quotas: Path) -> list[Partition]:
        """Do all steps after ingest, and return the days; each reads what is staged."""
        days = self._days()
        observations = self._read(OBSERVATION_MINUTE)
        with _step(self.job, "resolve") as step:
            versions = Scope.of(self.job).of_cluster(
                read_table(self.session, [quotas], QUOTA_VERSION)
            )
            resolve.write_buckets(step, observations, versions, self.out, days)
        minutes = self._read(BUCKET_MINUTE)
        with _step(self.job, "utilization") as step:
            write_utilization(step, minutes, self.out, days)
        with _step(self.job, "incidents") as step:
            inputs = incidents.Inputs(minutes, self._read(DIM_BUCKET), observations, days)
            incidents.write_incidents(step, inputs, self.out)
        return days

    def _read(self, table: Table) -> DataFrame:
        return read_table(self.session, [self._staging()], table)

    def _days(self) -> list[Partition]:
        """Return the days that ingest replaces, those that end empty too."""
        paths = [path for path in self.out.places if path.startswith(_OBSERVATIONS)]
        return [partition_of(path.removeprefix(_OBSERVATIONS)) for path in paths]

    def _staging(self) -> Path:
        return self.out.aside(OBSERVATION_MINUTE).parent


def _quotas(job: Job) -> Path:
    if not job.options.quotas:
        message = "--quotas is missing: name the folder that snapshot, history or synth wrote."
        raise UsageError(message)
    folder = local_folder(job.options.quotas)
    if not has_table(folder, QUOTA_VERSION):
        message = f"--quotas: there is no table {QUOTA_VERSION.name} in {folder}."
        raise UsageError(message)
    return folder


@contextmanager
def _step(job: Job, name: str) -> Iterator[Job]:
    """Give a step a report of its own, and add it to that of the run."""
    job.say(f"{name} ...")
    step = Job(name, job.options)
    begun = time.monotonic()
    yield step
    job.quarantined += step.quarantined
    job.findings += step.findings
    job.without_quotas += step.without_quotas
    job.with_quotas += step.with_quotas
    report = {"seconds": round(time.monotonic() - begun, 3), **step.counts}
    job.counts.setdefault("steps", {})[name] = report
    job.counts.setdefault("rows_out", {}).update(step.counts.get("rows_out", {}))
    job.counts.setdefault("rows_in", step.counts.get("rows_in"))
