"""Store the live quotas of a service as ``quota_snapshot`` and ``quota_version``.

Earlier snapshots and versions stay: a version ends where the snapshot does not show it any more,
and what it shows first is a version of origin ``snapshot``, valid from the time of the service's
answer on. Quotas of addresses are left out and counted.
"""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.entities import ClientQuotaEntity
from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.clusters import add_clusters_option, cluster_named
from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.job import Job
from app.pipeline.lake import Lake, arrow_schema
from app.pipeline.options import read_file
from app.pipeline.partitions import Partition
from app.pipeline.quota_history import entity_columns, join_versions
from app.pipeline.tables import QUOTA_SNAPSHOT, QUOTA_VERSION, Table

_TIMEOUT_S: Final = 60.0

Quota = Mapping[str, Any]
"""One quota object of ``GET /quotas``: ``entity`` and ``values``."""


def describe_live(
    server: str, token_file: str, cluster: str | None
) -> tuple[str, datetime, list[Quota]]:
    """Ask a service for the cluster's id, the time of its answer (UTC), and all quotas.

    They are in one answer so that all are of one time. A cluster of null is the service's default.

    Raises:
        UsageError: The token cannot be read or is not good enough, or the address is none.
        InfrastructureError: The service cannot be reached or has no answer.
    """
    headers = {"Authorization": f"Bearer {_token(token_file)}"}
    try:
        with httpx.Client(base_url=server, headers=headers, timeout=_TIMEOUT_S) as client:
            answer = client.get(_path(cluster))
        if answer.status_code != httpx.codes.OK:
            raise _refusal(answer, server)
        document = answer.json()
        as_of = datetime.fromisoformat(document["as_of"])
        return document["cluster_id"], as_of, list(document["quotas"])
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        message = "--server is no address: write it as in http://localhost:8080."
        raise UsageError(message) from error
    except httpx.HTTPError as error:
        message = f"{server} cannot be reached ({error}): is it the address of the service?"
        raise InfrastructureError(message) from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"{server} answers something else than quotas: is it the address of the service?"
        raise InfrastructureError(message) from error


def _path(cluster: str | None) -> str:
    return "/quotas" if cluster is None else f"/clusters/{cluster}/quotas"


def _token(file: str) -> str:
    token = read_file("--token-file", file).strip()
    if not token or not token.isascii() or not token.isprintable():
        message = "The file of --token-file holds no token: it is one line of text."
        raise UsageError(message)
    return token


_REFUSALS: Final = {
    httpx.codes.UNAUTHORIZED: "{} does not accept the token of --token-file: {}",
    httpx.codes.FORBIDDEN: "The principal of --token-file may not describe quotas on {}: {}",
}


def _refusal(answer: httpx.Response, server: str) -> PipelineError:
    detail = answer.reason_phrase
    with suppress(ValueError, AttributeError):
        problem = answer.json()
        detail = problem.get("detail") or problem.get("title") or detail
    if answer.status_code in _REFUSALS:
        return UsageError(_REFUSALS[httpx.codes(answer.status_code)].format(server, detail))
    return InfrastructureError(f"{server} answers with status {answer.status_code}: {detail}")


_TYPES: Final = {"user", "client-id"}
"""Of entities that are stored: the others are addresses."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the service is, and who asks."""
    parser.add_argument(
        "--server", metavar="URL", help="the service, such as http://localhost:8080"
    )
    parser.add_argument("--token-file", metavar="F", help="holds a token that may describe quotas")
    add_clusters_option(parser)


def run(job: Job) -> None:
    """Ask the service and write both tables.

    Raises:
        UsageError: An option is missing, or its token may not describe quotas.
        InfrastructureError: The service cannot be reached, or the tables cannot be written.
    """
    for option in ("server", "token_file"):
        if not getattr(job.options, option):
            name = f"--{option.replace('_', '-')}"
            message = f"{name} is missing: name the service and a file with a token for it."
            raise UsageError(message)
    named = cluster_named(job.options)
    below = None if named is None else named[0]
    if below is not None:
        job.options.cluster = None  # the service says Kafka's id of it
    if job.options.dry_run:
        job.counts["would_ask"] = f"{job.options.server}{_path(below)}"
        job.counts["would_write"] = [QUOTA_SNAPSHOT.name, QUOTA_VERSION.name]
        return
    server, token_file = job.options.server, job.options.token_file
    cluster_id, taken_at, quotas = describe_live(server, token_file, below)
    cluster = job.options.cluster or cluster_id
    job.read["taken_at"] = taken_at.isoformat()
    digest = hashlib.sha256(f"{cluster_id} {taken_at.isoformat()}".encode()).hexdigest()[:16]
    snapshot = {"dt": taken_at.date(), "snapshot_id": digest, "taken_at": taken_at}
    ours = [quota for quota in quotas if quota["entity"].keys() <= _TYPES]
    columns = (entity_columns(ClientQuotaEntity.of(quota["entity"])) for quota in ours)
    rows = [
        {"cluster_id": cluster, **entity, "key": key, "value": float(value)}
        for entity, quota in zip(columns, ours, strict=True)
        for key, value in quota["values"].items()
    ]
    taken = [snapshot | row for row in rows]
    held = [{"valid_from": taken_at, "origin": "snapshot", **row} for row in rows]
    lake, day = job.lake(), {"cluster_id": cluster, "dt": f"{taken_at.date()}"}
    others = _stored(lake, QUOTA_SNAPSHOT, day).filter(pc.field("snapshot_id") != digest)
    lake.write(pa.concat_tables([others, _table(QUOTA_SNAPSHOT, taken)]), QUOTA_SNAPSHOT)
    stored = _stored(lake, QUOTA_VERSION, {"cluster_id": cluster})
    versions = join_versions(stored, _table(QUOTA_VERSION, held), taken_at)
    lake.write(versions, QUOTA_VERSION, [{"cluster_id": cluster}])
    job.counts |= {
        "cluster_id": cluster,
        "taken_at": taken_at.isoformat(),
        "rows_in": len(quotas),
        "entities": len(ours),
        "ip_entities_left_out": len(quotas) - len(ours),
        "rows_out": len(rows),
    }


def _stored(lake: Lake, table: Table, partition: Partition) -> pa.Table:
    return columns_of([lake], Columns(table, table.columns), [partition])


def _table(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, arrow_schema(table.ddl))
