"""``drift_finding``: the desired document, the fold of the log and the newest snapshot."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from app.documents.faults import UnreadableDocumentError
from app.documents.quotas import read_yaml
from app.documents.tables import is_csv, read_csv
from app.domain.alterations import exact_float
from app.domain.quota_drift import Failed, Quota, States, drifts
from app.pipeline.advice.output import quota_columns
from app.pipeline.advice.use import grouped
from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.options import read_file
from app.pipeline.partitions import Partition
from app.pipeline.quota_history import SETTLING, SNAPSHOT, entity_of_columns
from app.pipeline.tables import QUOTA_CONFLICT, QUOTA_FAILED, QUOTA_SNAPSHOT, QUOTA_VERSION, Table

_TYPES: Final = frozenset({"user", "client-id"})

Row = Mapping[str, Any]


def read_desired(file: str) -> dict[Quota, float | None]:
    """Read the document of desired quotas: YAML, JSON or CSV; addresses are left out.

    Raises:
        UsageError: It cannot be read; the sentence names line and fault.
    """
    text = read_file("--desired", file)
    try:
        document = read_csv(text) if is_csv(text) else read_yaml(text)
    except UnreadableDocumentError as error:
        message = f"The file of --desired is no document of quotas: {error}."
        raise UsageError(message) from error
    desired: dict[Quota, float | None] = {}
    for item in document.quotas:
        if item.entity.types <= _TYPES:
            for key, value in item.values.items():
                number = exact_float(value) if isinstance(value, Decimal) else value
                desired[Quota(item.entity, key)] = number
    return desired


@dataclass(frozen=True, slots=True)
class Sources:
    """Rows of what is stored of one cluster: of snapshots the newest, and when each was taken."""

    versions: Sequence[Row]
    snapshot: Sequence[Row]
    taken: Sequence[datetime]
    failed: Sequence[Row]
    conflicts: Sequence[Row]


def read_sources(job: Job, quotas: Lake) -> dict[str, Sources]:
    """Read what is stored of each cluster."""
    cluster = job.options.cluster
    of_cluster = [{"cluster_id": cluster}] if cluster else None

    def read(
        table: Table, names: Sequence[str] = (), within: Sequence[Partition] | None = of_cluster
    ) -> pa.Table:
        columns = Columns(table, names or table.columns)
        if not quotas.has(table):
            return columns.schema.empty_table()
        return columns_of([quotas], columns, within)

    tables = (QUOTA_VERSION, QUOTA_FAILED, QUOTA_CONFLICT)
    versions, failed, conflicts = (_by_cluster(read(table)) for table in tables)
    times = read(QUOTA_SNAPSHOT, ("cluster_id", "taken_at"))
    in_order = _by_cluster(grouped(times, times.column_names, {}).sort_by("taken_at"))
    taken = {name: [row["taken_at"] for row in rows] for name, rows in in_order.items()}
    newest = [{"cluster_id": name, "dt": f"{at[-1]:%Y-%m-%d}"} for name, at in taken.items()]
    snapshots = _by_cluster(read(QUOTA_SNAPSHOT, within=newest))
    return {
        name: Sources(
            versions[name],
            [row for row in snapshots[name] if row["taken_at"] == max(taken[name])],
            taken.get(name, []),
            failed[name],
            conflicts[name],
        )
        for name in sorted({*versions, *taken})
    }


def _by_cluster(rows: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows.to_pylist():
        found[row["cluster_id"]].append(row)
    return found


def drift_rows(
    sources: Mapping[str, Sources], desired: Mapping[Quota, float | None] | None
) -> Iterator[dict[str, Any]]:
    """Yield rows of ``DRIFT_FINDING``, by cluster."""
    for cluster, source in sources.items():
        at = source.taken[-1] if source.taken else None
        for drift in drifts(states_of(source, desired)):
            yield {
                "cluster_id": cluster,
                "kind": drift.kind.value,
                "key": drift.quota.key,
                **quota_columns(drift.quota.entity),
                "desired": drift.desired,
                "logged": drift.logged,
                "live": drift.live,
                "at": at,
                "reason": drift.reason,
                "alteration_id": drift.alteration_id,
                "body": json.dumps(drift.body(), ensure_ascii=False),
            }


def states_of(source: Sources, desired: Mapping[Quota, float | None] | None) -> States:
    """Return what the sources say of one cluster."""
    logged = _logged(source)
    if not source.taken:
        current = {_quota(row): row["value"] for row in source.versions if row["valid_to"] is None}
        return States(desired, current, None, {})
    settled = source.taken[-1] - SETTLING
    failed = {
        _quota(row): Failed(row["value"], row["alteration_id"])
        for row in source.failed
        if row["at"] <= settled
    }
    live = {_quota(row): row["value"] for row in source.snapshot}
    return States(desired, logged, live, failed)


def _quota(row: Row) -> Quota:
    return Quota(entity_of_columns(row), row["key"])


def _logged(source: Sources) -> dict[Quota, float | None]:
    """Return what the log says at the time of the newest snapshot, whatever snapshots show.

    A version that a snapshot ended goes on for the log, if ``history`` has found the conflict: else
    it has not read the log since, which may explain it. Of what a later snapshot alone has, the log
    says that it is not set; of what the first one has, the log says nothing.
    """
    if not source.taken:
        return {}
    conflicts = {(entity_of_columns(row), row["at"]) for row in source.conflicts}
    versions: dict[Quota, list[Row]] = defaultdict(list)
    for row in source.versions:
        versions[_quota(row)].append(row)
    logged: dict[Quota, float | None] = {}
    for quota, rows in versions.items():
        own = [row for row in rows if row["origin"] != SNAPSHOT]
        last = max(own, key=lambda row: row["valid_from"], default=None)
        changed = _changed_by_snapshots(rows, last, source)
        if not all((quota.entity, at) in conflicts for at in changed):
            continue
        if last is None:
            if changed:
                logged[quota] = None
            continue
        ended = None if last["valid_to"] in source.taken else last["valid_to"]
        if max(last["valid_from"], ended or last["valid_from"]) <= source.taken[-1] - SETTLING:
            # Later a snapshot may still show what held before.
            logged[quota] = None if ended else last["value"]
    return logged


def _changed_by_snapshots(rows: Sequence[Row], last: Row | None, source: Sources) -> set[datetime]:
    """Return when snapshots changed what the log said last; without it what the first showed."""
    since = source.taken[0] if last is None else last["valid_from"]
    times = {row["valid_from"] for row in rows if row["origin"] == SNAPSHOT}
    times |= {row["valid_to"] for row in rows if row["valid_to"] in source.taken}
    return {at for at in times if at > since}
