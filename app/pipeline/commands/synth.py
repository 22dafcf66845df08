"""Make up observations and quotas: realistic ones, the same for the same seed.

``observation_minute``, the same as ``series`` and ``rate_minute``, and ``quota_version`` are
written to ``--out``; with ``--shape`` the same observations are in ``OUT/SHAPE`` as well, as other
tools would have saved them: a scrape a minute, 30 s into it. ``--from`` names the first day.
"""

import argparse
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame

from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.options import number_option
from app.pipeline.results import explain
from app.pipeline.synth.formats import SHAPES, write_shape
from app.pipeline.synth.tables import Plan, observations, quotas, rates_of, series_of
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION, RATE_MINUTE, SERIES, Table

_CLUSTER: Final = "synth"
_FIRST_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ALL: Final = "all"
_LARGE_METHODS: Final = "spark.sql.codegen.hugeMethodLimit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sizes and the shapes."""
    for name, least, default, text in (
        ("--seed", -(2**63), 1, "the same seed gives the same rows; default: 1"),
        ("--observations", 1, 100_000, "rows of observation_minute; default: 100000"),
        ("--entities", 1, 1_000, "entities with quotas; default: 1000"),
    ):
        number = number_option(least, kind=int)
        parser.add_argument(name, type=number, default=default, metavar="N", help=text)
    parser.add_argument(
        "--shape",
        action="append",
        choices=(*SHAPES, _ALL),
        default=[],
        help="write the observations in this shape too; may be repeated",
    )


def run(job: Job) -> None:
    """Write the tables, replacing those of ``--out`` as a whole, then each shape.

    Raises:
        UsageError: An option is missing or wrong.
        InfrastructureError: Spark fails.
    """
    wanted = set(job.options.shape)
    if wanted and not job.options.out:
        message = "--shape writes files: name their folder with --out."
        raise UsageError(message)
    shapes = [shape for shape in SHAPES if wanted & {shape, _ALL}]
    plan = _plan(job)
    job.counts |= {"cluster_id": plan.cluster, "brokers": plan.brokers, "days": plan.days}
    job.counts |= {"observation_minute": plan.observations, "entities": plan.entities}
    if job.options.dry_run:
        tables = (OBSERVATION_MINUTE, SERIES, RATE_MINUTE, QUOTA_VERSION)
        job.counts["would_write"] = [*(table.name for table in tables), *shapes]
        return
    session = job.session
    out = job.lake()
    # HotSpot does not compile methods above 8000 bytes; smaller ones are made instead.
    session.conf.set(_LARGE_METHODS, "8000")
    job.counts["quota_version"] = _write(job, quotas(session, plan), QUOTA_VERSION, out)
    _write(job, observations(session, plan), OBSERVATION_MINUTE, out)
    for table, facts in ((SERIES, series_of), (RATE_MINUTE, rates_of)):
        _write(job, facts(out.read(OBSERVATION_MINUTE)), table, out)
    session.conf.unset(_LARGE_METHODS)
    for shape in shapes:
        job.say(f"writing the shape {shape} ...")
        write_shape(shape, out.read(OBSERVATION_MINUTE), job.options.out)


def _write(job: Job, rows: DataFrame, table: Table, out: Lake) -> int:
    explain(job, table, rows)
    return out.write(rows, table, out.partitions(table) if out.has(table) else ())


def _plan(job: Job) -> Plan:
    options = job.options
    start = options.since or _FIRST_DAY
    return Plan(
        seed=options.seed,
        observations=options.observations,
        entities=options.entities,
        cluster=options.cluster or _CLUSTER,
        start=start.replace(hour=0, minute=0, second=0, microsecond=0),
    )
