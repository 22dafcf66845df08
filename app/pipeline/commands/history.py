"""Fold the audit log into what held when: ``quota_version``.

Reads the log of ``--pg`` as of one moment, and ``quota_snapshot`` below each ``--input``: snapshots
fill the gaps of the log. The clusters that are found there are replaced in ``--out``. Where log and
snapshots do not fit together, or an alteration found other values than the log explains, that is
a finding: somebody else made a change.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from app.pipeline.arrow_storage import arrow_schema, write_arrow
from app.pipeline.errors import UsageError
from app.pipeline.folders import has_table, local_folder
from app.pipeline.job import Job
from app.pipeline.publish.runs import database_of
from app.pipeline.quotas.audit_log import read_audit_log
from app.pipeline.quotas.history import Conflict, QuotaHistory
from app.pipeline.quotas.snapshots import snapshots_of
from app.pipeline.tables import QUOTA_SNAPSHOT, QUOTA_VERSION

_CONFLICTS_SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "--input names folders with a quota_snapshot; it may be left out."


def run(job: Job) -> None:
    """Write the versions of all clusters of the log and the snapshots.

    Raises:
        UsageError: ``--pg`` or ``--out`` is missing, or an input has no ``quota_snapshot``.
        InfrastructureError: The log cannot be read.
    """
    url = database_of(job)
    if url is None:
        message = "--pg is missing: give the address of the database that holds the audit log."
        raise UsageError(message)
    folders = _snapshot_folders(job)
    if job.options.dry_run:
        places = [str(folder / QUOTA_SNAPSHOT.name) for folder in folders]
        job.counts["would_read"] = ["audit_event", *places]
        job.counts["would_write"] = [f"{job.options.out}/{QUOTA_VERSION.name}"]
        return
    out = job.output()
    history = QuotaHistory()
    for cluster_id, entity, seen in snapshots_of(_snapshots(folders, job.options.cluster)):
        history.expect(cluster_id, entity, seen)
    entries = 0
    for entry in read_audit_log(url, job.options.cluster):
        history.add(entry)
        entries += 1
    history.finish()
    rows = list(history.rows())
    try:
        write_arrow(
            pa.Table.from_pylist(rows, schema=arrow_schema(QUOTA_VERSION)), QUOTA_VERSION, out
        )
        out.publish()
    finally:
        out.discard()
    job.counts |= {"rows_in": entries, "rows_out": {QUOTA_VERSION.name: len(rows)}}
    _report(job, list(history.conflicts()))


def _snapshot_folders(job: Job) -> list[Path]:
    folders = [local_folder(uri) for uri in job.options.input or ()]
    missing = [str(folder) for folder in folders if not has_table(folder, QUOTA_SNAPSHOT)]
    if missing:
        message = (
            f"There is no table {QUOTA_SNAPSHOT.name} in {', '.join(missing)}: name folders that "
            "`quota-pipeline snapshot` wrote."
        )
        raise UsageError(message)
    return folders


def _snapshots(folders: Iterable[Path], cluster: str | None) -> Iterator[Mapping[str, Any]]:
    for folder in folders:
        schema = arrow_schema(QUOTA_SNAPSHOT)
        layout = ds.partitioning(pa.schema([schema.field("cluster_id")]), flavor="hive")
        place = str(folder / QUOTA_SNAPSHOT.name)
        table = ds.dataset(place, schema=schema, format="parquet", partitioning=layout)
        wanted = None if cluster is None else ds.field("cluster_id") == cluster
        for batch in table.to_batches(filter=wanted):
            yield from batch.to_pylist()


def _report(job: Job, conflicts: list[Conflict]) -> None:
    job.findings = len(conflicts)
    told = [
        {
            "cluster_id": conflict.cluster_id,
            "entity": conflict.entity.as_dict(),
            "at": conflict.at.isoformat(timespec="milliseconds"),
            "conflict": conflict.told,
        }
        for conflict in conflicts[:_CONFLICTS_SHOWN]
    ]
    job.counts["conflicts"] = told
    for item in told:
        job.say(f"{item['at']} {item['entity']}: {item['conflict']}")
