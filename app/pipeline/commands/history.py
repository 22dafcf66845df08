"""Fold the audit log into what held when: ``quota_version``.

Reads the log as of one time, and ``quota_snapshot`` below each ``--input``, or else below
``--out``: snapshots fill the gaps of the log. The clusters that are found there are replaced.
Where log and snapshots do not fit together, or an alteration found other values than the log
explains, that is a finding, in ``quota_conflict``: a change from elsewhere.
"""

import argparse
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.clusters import add_clusters_option, cluster_id_of
from app.pipeline.job import Job
from app.pipeline.lake import arrow_schema
from app.pipeline.quota_history import (
    AuditEntry,
    QuotaHistory,
    entity_of_columns,
    read_audit_log,
    snapshots_of,
)
from app.pipeline.run_records import database_of
from app.pipeline.tables import QUOTA_CONFLICT, QUOTA_FAILED, QUOTA_SNAPSHOT, QUOTA_VERSION

_REPORTED: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options, and the file of clusters."""
    add_clusters_option(parser)
    parser.epilog = "--input names folders with a quota_snapshot; it may be left out."


def run(job: Job) -> None:
    """Write the versions of all clusters of the log and the snapshots.

    Raises:
        UsageError: The database is not named, ``--out`` is missing, or an input has no
            ``quota_snapshot``.
        InfrastructureError: The log cannot be read.
    """
    url = database_of(job)
    job.options.cluster = cluster_id_of(job.options)
    if job.options.dry_run:
        folders = [f"{uri}/{QUOTA_SNAPSHOT.name}" for uri in job.options.input or ()]
        job.counts["would_read"] = ["audit_event", *folders]
        job.counts["would_write"] = [
            f"{job.options.out}/{table.name}"
            for table in (QUOTA_VERSION, QUOTA_CONFLICT, QUOTA_FAILED)
        ]
        return
    job.counts["rows_in"] = 0
    log = _counted(job, read_audit_log(url, job.options.cluster))
    history = QuotaHistory(log, snapshots_of(_snapshots(job)))
    written = {
        QUOTA_VERSION: history.rows(),
        QUOTA_CONFLICT: history.conflicts(),
        QUOTA_FAILED: history.failed(),
    }
    found = sorted({row["cluster_id"] for row in written[QUOTA_VERSION]})
    clusters = [{"cluster_id": name} for name in found]
    for table, rows in written.items():
        columns = pa.Table.from_pylist(rows, arrow_schema(table.ddl))
        job.lake().write(columns, table, clusters)
    job.counts["rows_out"] = {table.name: len(rows) for table, rows in written.items()}
    _report(job, written[QUOTA_CONFLICT])


def _counted(job: Job, entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
    digest = hashlib.sha256()
    for number, entry in enumerate(entries, 1):
        job.counts["rows_in"] = number
        # An outcome that was unknown may be concluded later.
        digest.update(f"{entry.alteration_id} {entry.outcome}\n".encode())
        yield entry
    job.read["audit_log"] = digest.hexdigest()


def _snapshots(job: Job) -> Sequence[Mapping[str, Any]]:
    """Return the rows of ``quota_snapshot``; their times are aware.

    Raises:
        UsageError: An input has no such table.
    """
    lakes = job.lakes() if job.options.input else [job.lake()]
    for lake in lakes if job.options.input else ():
        lake.require(QUOTA_SNAPSHOT)
    cluster = job.options.cluster
    within = None if cluster is None else [{"cluster_id": cluster}]
    rows = columns_of(lakes, Columns(QUOTA_SNAPSHOT, QUOTA_SNAPSHOT.columns), within)
    job.read["snapshots"] = sorted(rows["snapshot_id"].unique().to_pylist())
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def _report(job: Job, conflicts: list[dict[str, Any]]) -> None:
    job.findings = len(conflicts)
    job.counts["conflicts"] = []
    for row in conflicts[:_REPORTED]:
        entity, at = entity_of_columns(row), row["at"]
        item = {"entity": entity.as_dict(), "at": at.isoformat(timespec="milliseconds")}
        named = {name: row[name] for name in ("cluster_id", "conflict")}
        job.counts["conflicts"].append({**named, **item})
        job.say(f"{at:%Y-%m-%d %H:%M:%S} {entity}: {row['conflict']}")
