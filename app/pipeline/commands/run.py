"""Do everything from ingest to incidents in one Spark application.

Takes the options of ``ingest``, ``resolve`` and ``incidents``. All tables go to one ``--out``. The
report has a section for each step. ``--last`` and ``--since-last`` choose hours by what the input
has.
"""

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from app.pipeline.commands import incidents, ingest, resolve, utilization
from app.pipeline.errors import UsageError
from app.pipeline.ingest.inputs import PROMETHEUS
from app.pipeline.ingest.points import Rules
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, days_of
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import Scope
from app.pipeline.summary import summarize
from app.pipeline.tables import QUOTA_VERSION, RATE_MINUTE, SERIES, THROTTLE_INCIDENT
from app.pipeline.usage.facts import BROADCAST_MAX, Facts

_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_WRITES = (*ingest.WRITES, *resolve.WRITES, *utilization.WRITES, THROTTLE_INCIDENT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every step."""
    for step in (ingest, resolve, incidents):
        step.add_arguments(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--last",
        type=_hours,
        metavar="HOURS",
        help="the newest whole hours of the input alone: 1h, 6h, 1d",
    )
    chosen.add_argument(
        "--since-last",
        action="store_true",
        help="the whole hours of the input after the newest in --out; of a server the newest hour "
        "where --out has none",
    )
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
        if job.options.last or job.options.since_last:
            if not _choose_hours(job, rules, out):
                job.say("the input has no whole hour that is new.")
                return
            rules = ingest.rules_of(job)
        inputs = ingest.inputs_of(job, rules)
        if job.options.dry_run:
            job.counts["would_read"] = [*inputs.names, quotas.address(QUOTA_VERSION)]
            job.counts["would_write"] = [out.address(table) for table in _WRITES]
            return
        quotas.require(QUOTA_VERSION)
        with _step(job, "ingest") as step:
            ingested = ingest.ingest(step, rules, inputs, out)
        days = _from_series(job, quotas, out, ingested)
    publish(job, ingested.hours, days)
    draw_if_asked(job, [out])
    summarize(job, [out], days)


_UNITS: Final = {"h": 1, "d": 24}
_HOURS: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")


def _hours(text: str) -> int:
    found = _HOURS.fullmatch(text)
    if not found:
        message = f"{text!r} is not a number of hours or days such as 1h or 1d"
        raise argparse.ArgumentTypeError(message)
    return int(found[1]) * _UNITS[found[2]]


def _choose_hours(job: Job, rules: Rules, out: Lake) -> bool:
    """Set ``--from`` and ``--to`` to the hours that ``--last`` and ``--since-last`` mean.

    Return whether there are any.

    An hour is whole once the input has a time of its last minute. What is of the future is no time
    of a clock that is right.

    Raises:
        UsageError: ``--from`` or ``--to`` is given, too.
    """
    options = job.options
    if options.since or options.until:
        message = "--last and --since-last say which hours: leave out --from and --to."
        raise UsageError(message)
    newest = ingest.newest_time(job, rules)
    if newest is None:
        return False
    options.until = (newest + _MINUTE).replace(minute=0, second=0, microsecond=0)
    if options.last:
        options.since = options.until - _HOUR * options.last
        return True
    # It has a file an hour, the minutes have several.
    stored = Scope(options.cluster).hours([out], SERIES) if out.has(SERIES) else ()
    of_cluster = {hour["cluster_id"]: _begin(hour) for hour in stored}
    options.since = min(of_cluster.values()) + _HOUR if of_cluster else None
    if not of_cluster and options.format == PROMETHEUS:
        # A server does not say where its points begin.
        options.since = options.until - _HOUR
    return options.since is None or options.since < options.until


def _begin(hour: Partition) -> datetime:
    return datetime.fromisoformat(hour["dt"]).replace(hour=int(hour["hour"]), tzinfo=UTC)


def _from_series(
    job: Job, quotas: Lake, out: Lake, ingested: ingest.Ingested
) -> Sequence[Partition]:
    """Do all steps after ingest with its hours, and return the days of its incidents."""
    hours, filled = ingested.hours, ingested.filled
    with _step(job, "resolve") as step:
        versions = Scope.of(job).of_cluster(quotas.read(QUOTA_VERSION))
        decided = resolve.write_limits(
            step, ingested.series, versions, out, resolve.Hours(hours, filled)
        )
        broadcast = step.counts["rows_in"] <= BROADCAST_MAX
    with _step(job, "utilization") as step:
        rates = out.read_in(RATE_MINUTE, filled)
        facts = Facts(rates, decided, hours, filled, ingested.rows_of_hour, broadcast)
        utilization.write_utilization(step, facts, out)
    for frame in (ingested.series, decided):
        frame.unpersist()
    with _step(job, "incidents") as step:
        return incidents.write_incidents(step, [out], out, days_of(hours))


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
