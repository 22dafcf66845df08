"""Do everything from ingest to incidents in one Spark application, and once a day the advice.

Takes the options of ``ingest``, ``resolve`` and ``incidents``. All tables go to one ``--out``. The
report has a section for each step. ``--last`` and ``--since-last`` choose hours by what the input
has. A run that has the last hour of a day ends with ``rightsize`` and ``stale``, and with
``overcommit`` where ``--capacity`` is given; one with ``--desired`` ends with ``drift``.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.pipeline.advice.capacity import read_capacity
from app.pipeline.advice.drift import read_desired
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.stale import read_inventory
from app.pipeline.commands import (
    drift,
    incidents,
    ingest,
    overcommit,
    resolve,
    rightsize,
    stale,
    utilization,
)
from app.pipeline.errors import UsageError
from app.pipeline.ingest.inputs import FORMATS, PROMETHEUS
from app.pipeline.ingest.points import Rules
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition, days_of
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish, publish_advice
from app.pipeline.resolve.callbacks import callback_model
from app.pipeline.resolve.versions import read_versions
from app.pipeline.results import Scope, end_of
from app.pipeline.summary import summarize
from app.pipeline.tables import (
    BROKER_COMMIT,
    DRIFT_FINDING,
    QUOTA_VERSION,
    RECOMMENDATION,
    SERIES,
    THROTTLE_INCIDENT,
)

_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_FILES: Final[Mapping[str, Callable[[str], Any]]] = {
    "capacity": read_capacity,
    "inventory": read_inventory,
    "desired": read_desired,
}
"""Options of advice that name a file, which is read before Spark is started."""

_WRITES = (*ingest.WRITES, *resolve.WRITES, *utilization.WRITES, THROTTLE_INCIDENT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every step."""
    for step in (ingest, resolve, incidents):
        step.add_arguments(parser)
    rightsize.add_sizing_options(parser)
    stale.add_stale_options(parser)
    overcommit.add_capacity_options(parser)
    drift.add_desired_option(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--last",
        type=_hours,
        metavar="HOURS",
        help="read only the newest whole hours of the input: 1h, 6h, 1d",
    )
    chosen.add_argument(
        "--since-last",
        action="store_true",
        help="read the whole hours of the input after the newest in --out; if there is none, all "
        "hours, or the newest of a server",
    )
    parser.epilog = (
        f"--format is one of {', '.join(FORMATS)}; what --input is, `quota-pipeline ingest --help` "
        "says. --quotas are those of resolve. A finding is a bucket's day over its limit on some "
        "broker, an incident, or advice."
    )


def run(job: Job) -> None:
    """Write the tables of all steps.

    Raises:
        UsageError: An option is missing or wrong.
        InfrastructureError: Spark, a broker or Postgres fails.
    """
    rules = ingest.rules_of(job)
    named = {name: getattr(job.options, name) for name in _FILES}
    files = {name: _FILES[name](file) for name, file in named.items() if file}
    callback_model(job.options.callback)
    quotas, out = job.quotas(), job.lake()
    if job.options.last or job.options.since_last:
        if not _choose_hours(job, rules, out):
            job.say("the input has no new whole hour.")
            return
        rules = ingest.rules_of(job)
    inputs = ingest.inputs_of(job, rules)
    if job.options.dry_run:
        job.counts["would_read"] = [*inputs.names, quotas.address(QUOTA_VERSION)]
        job.counts["would_write"] = [out.address(table) for table in _WRITES]
        return
    quotas.require(QUOTA_VERSION)
    with _step(job, "ingest") as step:
        hours = ingest.ingest(step, rules, inputs, out)
    with _step(job, "resolve") as step:
        versions = read_versions(quotas, job.options.cluster)
        resolve.write_limits(step, [out], hours, versions, out)
    with _step(job, "utilization") as step:
        utilization.write_utilization(step, [out], hours, out)
    with _step(job, "incidents") as step:
        days = incidents.write_incidents(step, [out], out, days_of(hours))
    publish(job, hours, days)
    _advise(job, files, quotas, out, hours)
    draw_if_asked(job, [out])
    summarize(job, [out], days)


_LAST_HOUR: Final = "23"


def _advise(
    job: Job, files: Mapping[str, Any], quotas: Lake, out: Lake, hours: Sequence[Partition]
) -> None:
    """Write and publish the advice, once for each day: that of an hour would be the same."""
    if any(hour["hour"] == _LAST_HOUR for hour in hours):
        scope = Scope(job.options.cluster)
        with _step(job, "rightsize") as step:
            evidence = Evidence.of([out], scope, rightsize.DAYS)
            rightsize.write_sizes(step, evidence)
        reach = evidence.reach() if job.options.pg is not None else None
        publish_advice(job, (RECOMMENDATION,), evidence.clusters, reach)
        with _step(job, "stale") as step:
            seen = Evidence.of([out], scope, stale.DAYS, SERIES)
            stale.write_stale(step, seen, quotas, stale.DAYS, files.get("inventory"))
        publish_advice(job, stale.WRITES, seen.clusters, reach)
        if "capacity" in files:
            with _step(job, "overcommit") as step:
                evidence = Evidence.of([out], scope, overcommit.DAYS)
                overcommit.write_commits(step, evidence, files["capacity"])
            publish_advice(job, (BROKER_COMMIT,), evidence.clusters, reach)
    if "desired" in files:
        with _step(job, "drift") as step:
            clusters, reach = drift.write_drift(step, quotas, files["desired"])
        publish_advice(job, (DRIFT_FINDING,), clusters, reach)


_UNITS: Final = {"h": 1, "d": 24}
_HOURS: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")


def _hours(text: str) -> int:
    found = _HOURS.fullmatch(text)
    if not found:
        message = f"{text!r} is not a number of hours or days such as 1h or 1d"
        raise argparse.ArgumentTypeError(message)
    return int(found[1]) * _UNITS[found[2]]


def _choose_hours(job: Job, rules: Rules, out: Lake) -> bool:
    """Set ``--from`` and ``--to`` to the hours of ``--last`` or ``--since-last``, if there are any.

    An hour is whole once the input has a time of its last minute. Times of the future are ignored,
    in the input and in the tables: the clock that made them is wrong.

    Returns:
        Whether there are any.

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
    ends = [(hour["cluster_id"], end_of(hour)) for hour in stored]
    of_cluster = {name: end for name, end in ends if end - _HOUR <= datetime.now(UTC)}
    options.since = min(of_cluster.values(), default=None)
    if not of_cluster and options.format == PROMETHEUS:
        # A server does not say where its points begin.
        options.since = options.until - _HOUR
    return options.since is None or options.since < options.until


@contextmanager
def _step(job: Job, name: str) -> Iterator[Job]:
    """Give a step a report of its own, and add it to that of the run."""
    job.say(f"{name} ...")
    step = Job(name, job.options, read=job.read)
    step.session = job.session
    begun = time.monotonic()
    yield step
    for count in ("quarantined", "failed_checks", "findings", "unlimited"):
        setattr(job, count, getattr(job, count) + getattr(step, count))
    report = {"seconds": round(time.monotonic() - begun, 3), **step.counts}
    job.counts.setdefault("steps", {})[name] = report
    job.counts.setdefault("rows_out", {}).update(step.counts.get("rows_out", {}))
    job.counts.setdefault("rows_in", step.counts.get("rows_in"))
