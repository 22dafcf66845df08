"""Say what brokers have promised beside what they can do: ``broker_commit``.

Reads ``bucket_hour`` below each ``--input``, of the newest days, and replaces the rows of their
clusters.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.pipeline.advice.capacity import DEFAULT_BROKER, Capacity, read_capacity
from app.pipeline.advice.commits import commit_rows
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.output import advise, rows_to_table, write_advice
from app.pipeline.commands.rightsize import days_option
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.options import number_option
from app.pipeline.summary import columns
from app.pipeline.tables import BROKER_COMMIT

DAYS: Final = 7
"""So many days are looked at, unless ``--days`` says otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what brokers can do."""
    add_capacity_options(parser)
    days_option(parser, DAYS)
    parser.epilog = "A finding is a broker whose limits are above its capacity."


def add_capacity_options(parser: argparse.ArgumentParser) -> None:
    """Add where the capacity is."""
    parser.add_argument(
        "--capacity",
        metavar="FILE",
        help="capacity.json of Cruise Control, or CSV: broker_id, nic_in_bps, nic_out_bps, "
        "threads, replication_factor_avg; broker -1 is all others",
    )
    parser.add_argument(
        "--replication-factor",
        type=number_option(1, 100),
        default=1.0,
        metavar="N",
        help="replicas of a partition, where the capacity does not say; default 1: no replication "
        "is reckoned with",
    )


def run(job: Job) -> None:
    """Write the promises.

    Raises:
        UsageError: An option is missing, an input lacks the table, or the capacity is wrong.
    """
    if not job.options.capacity:
        message = "--capacity is missing: name a capacity.json of Cruise Control, or a CSV."
        raise UsageError(message)
    capacities = read_capacity(job.options.capacity)
    advise(job, lambda evidence: write_commits(job, evidence, capacities))


def write_commits(job: Job, evidence: Evidence, capacities: Mapping[int, Capacity]) -> None:
    """Write the promises of the brokers of some hours, and count them into the report."""
    rows = list(commit_rows(evidence, capacities, job.options.replication_factor))
    write_advice(job, BROKER_COMMIT, rows_to_table(BROKER_COMMIT, rows), evidence.clusters)
    job.counts["rows_in"] = sum(row["buckets"] for row in rows)
    job.counts["brokers"] = len({(row["cluster_id"], row["broker_id"]) for row in rows})
    job.counts["over"] = sum(1 for row in rows if row["over"])
    job.findings += job.counts["over"]
    job.summary = list(summary_of(rows))
    brokers = {row["broker_id"] for row in rows}
    if DEFAULT_BROKER not in capacities and (unlisted := sorted(brokers - set(capacities))):
        job.say(f"--capacity says nothing of the brokers {', '.join(map(str, unlisted))}.")


_LISTED: Final = 10
_NOTHING: Final = "No broker's limits are above its capacity, as far as that is there."


def summary_of(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the brokers that have promised most beyond what they can do."""
    over = sorted((row for row in rows if row["over"]), key=lambda row: -row["limits_ratio"])
    yield ""
    yield "Over their capacity:" if over else _NOTHING
    yield from columns(
        ("cluster", "broker", "direction", "limits", "needed at once"),
        [
            (
                row["cluster_id"],
                f"{row['broker_id']}",
                row["direction"],
                f"{row['limits_ratio']:,.0%}",
                f"{row['p99_of_sums_ratio']:,.0%}",
            )
            for row in over[:_LISTED]
        ],
    )
