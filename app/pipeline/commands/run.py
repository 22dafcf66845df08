"""Do everything from ingest to incidents in one Spark application.

Takes the options of ``ingest``, ``resolve`` and ``incidents``. All tables go to one ``--out``; each
step reads what the step before wrote, so that nothing is computed twice and memory stays free. The
report has a section for each step.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.pipeline.commands import incidents, ingest, resolve, utilization
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, is_of_days
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import Scope
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    OBSERVATION_MINUTE,
    QUOTA_VERSION,
    THROTTLE_INCIDENT,
)

_WRITES = (*ingest.WRITES, BUCKET_MINUTE, DIM_BUCKET, *utilization.WRITES, THROTTLE_INCIDENT)


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
    rules = ingest.rules_of(job)
    job.require_options(quotas=True)
    with job.spark():
        quotas, out = job.quotas(), job.lake()
        inputs = ingest.inputs_of(job, rules)
        if job.options.dry_run:
            job.counts["would_read"] = [*inputs.names, quotas.address(QUOTA_VERSION)]
            job.counts["would_write"] = [out.address(table) for table in _WRITES]
            return
        quotas.require(QUOTA_VERSION)
        with _step(job, "ingest") as step:
            days = ingest.ingest(step, rules, inputs, out)
        _from_observations(job, quotas, out, days)
    publish(job, Scope.of(job).minutes(out.read(BUCKET_MINUTE)), days)
    draw_if_asked(job, [out])
    summarize(job, [out])


def _from_observations(job: Job, quotas: Lake, out: Lake, days: Sequence[Partition]) -> None:
    """Do all steps after ingest with its days; each reads what the step before wrote."""
    observations = out.read(OBSERVATION_MINUTE).where(is_of_days(days))
    with _step(job, "resolve") as step:
        versions = Scope.of(job).of_cluster(quotas.read(QUOTA_VERSION))
        resolve.write_buckets(step, observations, versions, out, days)
    minutes = out.read(BUCKET_MINUTE).where(is_of_days(days))
    with _step(job, "utilization") as step:
        utilization.write_utilization(step, minutes, out, days)
    with _step(job, "incidents") as step:
        buckets = out.read(DIM_BUCKET)
        incidents.write_incidents(step, minutes, days, buckets=buckets, observations=observations)


@contextmanager
def _step(job: Job, name: str) -> Iterator[Job]:
    """Give a step a report of its own, and add it to that of the run."""
    job.say(f"{name} ...")
    step = Job(name, job.options, read=job.read)
    step.session = job.session
    begun = time.monotonic()
    yield step
    for count in ("quarantined", "failed_checks", "findings", "without_quotas", "with_quotas"):
        setattr(job, count, getattr(job, count) + getattr(step, count))
    report = {"seconds": round(time.monotonic() - begun, 3), **step.counts}
    job.counts.setdefault("steps", {})[name] = report
    job.counts.setdefault("rows_out", {}).update(step.counts.get("rows_out", {}))
    job.counts.setdefault("rows_in", step.counts.get("rows_in"))
