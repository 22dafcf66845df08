"""Find where the desired document, the log and the live quotas differ: ``drift_finding``.

Reads ``quota_version``, ``quota_snapshot``, ``quota_conflict`` and ``quota_failed`` below
``--quotas``: take a ``snapshot``, then ``history``, which finds what the log does not explain.
Without a snapshot what the log says counts as live. Nothing is
changed: each row has the body that would restore the document or the log.
"""

import argparse
from collections.abc import Mapping, Sequence

from app.domain.quota_drift import Quota
from app.pipeline.advice.drift import drift_rows, read_desired, read_sources
from app.pipeline.advice.output import rows_to_table, write_advice
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition
from app.pipeline.publishing import publish_advice
from app.pipeline.results import Reach
from app.pipeline.tables import DRIFT_FINDING, QUOTA_SNAPSHOT, QUOTA_VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the quotas and the document are."""
    parser.add_argument("--quotas", metavar="DIR", help="the folder above quota_version")
    add_desired_option(parser)
    parser.epilog = "A finding is a difference."


def add_desired_option(parser: argparse.ArgumentParser) -> None:
    """Add where the document is."""
    parser.add_argument(
        "--desired", metavar="FILE", help="a document of all quotas: YAML, JSON or CSV"
    )


def run(job: Job) -> None:
    """Write the differences.

    Raises:
        UsageError: An option is missing, the folder has no quotas, or the document cannot be read.
    """
    if job.options.dry_run:
        job.say_plan((DRIFT_FINDING,))
        return
    desired = read_desired(job.options.desired) if job.options.desired else None
    clusters, reach = write_drift(job, job.quotas(), desired)
    publish_advice(job, (DRIFT_FINDING,), clusters, reach)


def write_drift(
    job: Job, quotas: Lake, desired: Mapping[Quota, float | None] | None
) -> tuple[Sequence[Partition], Reach]:
    """Write the differences of all clusters; return these, and when the newest was described."""
    if not (quotas.has(QUOTA_VERSION) or quotas.has(QUOTA_SNAPSHOT)):
        message = (
            f"There are no quotas in {quotas.name}: name the folder that `snapshot` or `history` "
            "wrote."
        )
        raise UsageError(message)
    sources = read_sources(job, quotas)
    if desired is not None and len(sources) > 1:
        names = ", ".join(map(repr, sources))
        message = f"--desired is about one cluster, and there are {names}: name it by --cluster."
        raise UsageError(message)
    rows = list(drift_rows(sources, desired))
    clusters = [{"cluster_id": name} for name in sources]
    write_advice(job, DRIFT_FINDING, rows_to_table(DRIFT_FINDING, rows), clusters)
    if without := [name for name, source in sources.items() if not source.taken]:
        names = ", ".join(map(repr, without))
        job.say(f"of {names} there is no snapshot, so that the log counts as live.")
    kinds = [row["kind"] for row in rows]
    job.counts["rows_in"] = sum(len(source.versions) for source in sources.values())
    job.counts["drift"] = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    job.findings += len(rows)
    times = [source.taken[-1] for source in sources.values() if source.taken]
    return clusters, Reach(max(times, default=None), None)
