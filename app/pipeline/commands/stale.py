"""Find stored values that do nothing, and who has none: ``stale_quota``, ``uncovered_client``.

Reads ``series``, ``series_limit``, ``dim_bucket`` and ``utilization_daily`` below each ``--input``,
of the newest days, and ``quota_version`` below ``--quotas``; replaces what it said of their
clusters. Nothing is removed: each row has the body that would do it.
"""

import argparse
from functools import partial
from typing import Final

from app.domain.right_sizes import SizingRules
from app.pipeline.advice.evidence import Evidence, rows_to_table, write_advice
from app.pipeline.advice.stale import read_inventory, stale_rows, uncovered_rows
from app.pipeline.commands.rightsize import days_option
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.options import whole_number
from app.pipeline.publishing import publish_advice
from app.pipeline.results import Scope, say_plan
from app.pipeline.tables import (
    DIM_BUCKET,
    QUOTA_VERSION,
    SERIES,
    SERIES_LIMIT,
    STALE_QUOTA,
    UNCOVERED_CLIENT,
    UTILIZATION_DAILY,
)

WRITES: Final = (STALE_QUOTA, UNCOVERED_CLIENT)
READS: Final = (SERIES, SERIES_LIMIT, DIM_BUCKET, UTILIZATION_DAILY)

DAYS: Final = 30
"""So many days are looked at, unless ``--days`` says otherwise."""

_TOP: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the quotas and the users are."""
    parser.add_argument("--quotas", metavar="DIR", help="the folder above quota_version")
    days_option(parser, DAYS)
    add_stale_options(parser)
    parser.epilog = "A finding is a stored value that does nothing."


def add_stale_options(parser: argparse.ArgumentParser) -> None:
    """Add who there is, and how many to list."""
    parser.add_argument(
        "--inventory",
        metavar="FILE",
        help="the users that there are: JSON, CSV with a column user, or a name on each line",
    )
    parser.add_argument(
        "--top",
        type=partial(whole_number, least=1, most=10_000),
        default=_TOP,
        metavar="N",
        help=f"list the N largest of each key without a value of their own; default {_TOP}",
    )


def run(job: Job) -> None:
    """Write both tables.

    Raises:
        UsageError: An option is missing, a folder lacks a table, or the inventory cannot be read.
    """
    job.require_options(quotas=True)
    inventory = read_inventory(job.options.inventory) if job.options.inventory else None
    with job.spark():
        quotas = job.quotas()
        if job.options.dry_run:
            say_plan(job, WRITES)
            job.counts["would_read"].append(quotas.address(QUOTA_VERSION))
            return
        lakes = job.lakes()
        for lake in lakes:
            for table in READS:
                lake.require(table)
        evidence = Evidence.of(lakes, Scope.of(job), job.options.days, SERIES)
        write_stale(job, evidence, quotas, job.options.days, inventory)
        ever = quotas.read(QUOTA_VERSION).select("cluster_id").distinct().collect()
        job.with_quotas = sorted(row.cluster_id for row in ever)
        job.without_quotas = sorted(set(evidence.newest) - set(job.with_quotas))
        reach = evidence.reach() if job.options.pg is not None else None
    publish_advice(job, WRITES, evidence.clusters, reach)


def write_stale(
    job: Job, evidence: Evidence, quotas: Lake, days: int, inventory: frozenset[str] | None
) -> None:
    """Write both tables about some hours, and count into the report."""
    evidence.say_if_empty(job)
    current = quotas.read(QUOTA_VERSION).where("valid_to is null")
    versions = Scope.of(job).of_cluster(current).toArrow()
    stale = list(stale_rows(evidence, versions, days, inventory))
    write_advice(job, STALE_QUOTA, rows_to_table(STALE_QUOTA, stale), evidence.clusters)
    uncovered = uncovered_rows(evidence, job.options.top, SizingRules())
    write_advice(
        job, UNCOVERED_CLIENT, rows_to_table(UNCOVERED_CLIENT, uncovered), evidence.clusters
    )
    job.counts["rows_in"] = versions.num_rows
    job.counts["days"] = dict(evidence.days)
    kinds = [row["kind"] for row in stale]
    job.counts["stale"] = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    job.findings += len(stale)
    if few := sorted(name for name, number in evidence.days.items() if number < 0.9 * days):
        names = ", ".join(map(repr, few))
        job.say(
            f"of {names} there are data of fewer than {days} days: who was not seen is not judged."
        )
