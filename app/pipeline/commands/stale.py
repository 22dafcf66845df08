"""Find stored values that do nothing, and who has none: ``stale_quota``, ``uncovered_client``.

Reads ``series``, ``series_limit``, ``dim_bucket`` and ``utilization_daily`` below each ``--input``,
of the newest days, and ``quota_version`` below ``--quotas``; replaces what it said of their
clusters. Nothing is removed: each row has the body that would do it.
"""

import argparse
from typing import Final

import pyarrow.compute as pc

from app.domain.right_sizes import SizingRules
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.output import advise, rows_to_table, write_advice
from app.pipeline.advice.stale import LONG_ENOUGH, read_inventory, stale_values
from app.pipeline.advice.uncovered import uncovered_rows
from app.pipeline.commands.rightsize import days_option
from app.pipeline.job import Job, without_quotas
from app.pipeline.lake import Lake
from app.pipeline.options import number_option
from app.pipeline.resolve.versions import read_versions
from app.pipeline.tables import STALE_QUOTA, UNCOVERED_CLIENT

WRITES: Final = (STALE_QUOTA, UNCOVERED_CLIENT)

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
        type=number_option(1, 10_000, int),
        default=_TOP,
        metavar="N",
        help=f"list the N largest of each key without a value of their own; default {_TOP}",
    )


def run(job: Job) -> None:
    """Write both tables.

    Raises:
        UsageError: An option is missing, a folder lacks a table, or the inventory cannot be read.
    """
    inventory = read_inventory(job.options.inventory) if job.options.inventory else None

    def write(evidence: Evidence) -> None:
        limited = write_stale(job, evidence, job.quotas(), job.options.days, inventory)
        job.unlimited = without_quotas(evidence.of_clusters, limited)

    advise(job, write)


def write_stale(
    job: Job, evidence: Evidence, quotas: Lake, days: int, inventory: frozenset[str] | None
) -> list[str]:
    """Write both tables about some hours, and count into the report.

    Returns:
        The clusters that ever had quotas.
    """
    ever = read_versions(quotas)
    is_current = pc.field("valid_to").is_null()
    if job.options.cluster is not None:
        is_current &= pc.field("cluster_id") == job.options.cluster
    versions = ever.filter(is_current)
    stale = stale_values(evidence, versions, days, inventory)
    write_advice(job, STALE_QUOTA, stale, evidence.clusters)
    uncovered = uncovered_rows(evidence, job.options.top, SizingRules())
    write_advice(
        job, UNCOVERED_CLIENT, rows_to_table(UNCOVERED_CLIENT, uncovered), evidence.clusters
    )
    job.counts["rows_in"] = versions.num_rows
    job.counts["days"] = evidence.days
    kinds = stale["kind"].value_counts().to_pylist()
    job.counts["stale"] = dict(sorted((each["values"], each["counts"]) for each in kinds))
    job.findings += stale.num_rows
    if few := [name for name, number in evidence.days.items() if number < LONG_ENOUGH * days]:
        names = ", ".join(map(repr, few))
        job.say(
            f"of {names} there are data of fewer than {days} days: who was not seen is not judged."
        )
    return sorted(ever["cluster_id"].unique().to_pylist())
