"""Keep the live quotas of a service as ``quota_snapshot`` and ``quota_version``; without Spark.

Both replace what ``--out`` holds of the cluster. Every version is of origin ``snapshot``, valid
from the time of the service's answer on. Quotas of addresses are left out and counted.
"""

import argparse
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from app.pipeline.arrow_storage import arrow_schema, write_arrow
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.quotas.live import LiveQuotas, Quota, describe_live
from app.pipeline.tables import QUOTA_SNAPSHOT, QUOTA_VERSION, Table

_ORIGIN: Final = "snapshot"
_TYPES: Final = {"user", "client-id"}

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the service is, and who asks."""
    parser.add_argument(
        "--server", metavar="URL", help="the service, such as http://localhost:8080"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="F", help="holds a token that may describe quotas"
    )


def run(job: Job) -> None:
    """Ask the service and write both tables.

    Raises:
        UsageError: An option is missing, or its token may not describe quotas.
        InfrastructureError: The service cannot be reached, or the folder cannot be written.
    """
    for option, value in (("--server", job.options.server), ("--token-file", _file(job))):
        if not value:
            message = f"{option} is missing: name the service and a file with a token for it."
            raise UsageError(message)
    if job.options.dry_run:
        job.counts["would_ask"] = f"{job.options.server}/quotas"
        job.counts["would_write"] = [QUOTA_SNAPSHOT.name, QUOTA_VERSION.name]
        return
    out = job.output()
    live = describe_live(job.options.server, job.options.token_file)
    cluster = job.options.cluster or live.cluster_id
    rows = list(_rows(live.quotas))
    partition = {"cluster_id": cluster}
    for table, more in ((QUOTA_SNAPSHOT, _taken(live)), (QUOTA_VERSION, _valid(live))):
        write_arrow(_arrow(table, rows, {**partition, **more}), table, out, replaces=[partition])
    out.publish()
    ours = [quota for quota in live.quotas if quota["entity"].keys() <= _TYPES]
    job.counts |= {
        "cluster_id": cluster,
        "taken_at": live.as_of.isoformat(),
        "rows_in": len(live.quotas),
        "entities": len(ours),
        "ip_entities_left_out": len(live.quotas) - len(ours),
        "rows_out": len(rows),
    }


def _file(job: Job) -> Path | None:
    file: Path | None = job.options.token_file
    return file


def _rows(quotas: Iterable[Quota]) -> Iterator[Row]:
    """Give each value of each entity of users and client-ids."""
    for quota in quotas:
        entity = quota["entity"]
        if not entity.keys() <= _TYPES:
            continue
        columns = {
            "user": entity.get("user") or "",
            "user_default": entity.get("user", "") is None,
            "client_id": entity.get("client-id") or "",
            "client_default": entity.get("client-id", "") is None,
        }
        for key, value in quota["values"].items():
            yield {**columns, "key": key, "value": float(value)}


def _taken(live: LiveQuotas) -> Mapping[str, Any]:
    told = f"{live.cluster_id} {live.as_of.isoformat()}"
    return {
        "snapshot_id": hashlib.sha256(told.encode()).hexdigest()[:16],
        "taken_at": live.as_of,
    }


def _valid(live: LiveQuotas) -> Mapping[str, Any]:
    return {"valid_from": live.as_of, "valid_to": None, "origin": _ORIGIN, "audit_seq": None}


def _arrow(table: Table, rows: Iterable[Row], same: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**row, **same} for row in rows], schema=arrow_schema(table))
