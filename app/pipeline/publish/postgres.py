"""Publish results to Postgres, where the service serves them from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import psycopg
from psycopg import sql

from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import RunFolder
from app.pipeline.job import Job
from app.pipeline.publish.coverage import (
    Place,
    clusters_of,
    covered_places,
    place_of,
    reach_of,
)
from app.pipeline.publish.runs import Publication, connected, database_of, recorded
from app.pipeline.publish.staging import clear_staging, columns_of, stage, staged
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    TABLES,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    Table,
)

SERVED: Final[Mapping[str, Sequence[Table]]] = {
    "resolve": (BUCKET_MINUTE, DIM_BUCKET),
    "utilization": (DIM_BUCKET, UTILIZATION_DAILY),
    "incidents": (DIM_BUCKET, THROTTLE_INCIDENT),
    "run": (BUCKET_MINUTE, DIM_BUCKET, UTILIZATION_DAILY, THROTTLE_INCIDENT),
}
"""The tables with a twin in Postgres that a job writes."""

_TURN: Final = "select pg_advisory_xact_lock(hashtext('quota-pipeline publish'))"

_SCOPE: Final = "delete from {table} using unnest(%s::text[], %s::date[]) as scope (c, d) where "
_OF_DAYS: Final = sql.SQL(_SCOPE + "cluster_id = c and dt = d")
_BEGUN_ON_DAYS: Final = sql.SQL(_SCOPE + "cluster_id = c and (start at time zone 'UTC')::date = d")
_SAME: Final = sql.SQL(
    "delete from {table} using {staged} as new where new.run = %s "
    "and {table}.cluster_id = new.cluster_id and {table}.incident_id = new.incident_id"
)
_MOVE: Final = "insert into {table} ({columns}) select {columns} from {staged} where run = %s"
_REPLACE: Final = sql.SQL(_MOVE)
_MERGE: Final = sql.SQL(
    _MOVE + " on conflict (cluster_id, bucket_id, level, coalesce(quota_user, ''), "
    "coalesce(quota_user_default, false), coalesce(quota_client_id, ''), "
    "coalesce(quota_client_default, false)) do update set "
    "first_seen = least({table}.first_seen, excluded.first_seen), "
    "last_seen = greatest({table}.last_seen, excluded.last_seen)"
)
_FORGET: Final = sql.SQL("delete from {staged} where run = %s")


def publish(job: Job, run: RunFolder, tables: Sequence[Table] | None = None) -> None:
    """Publish what the run wrote to Postgres as well, where ``--pg`` was given; else do nothing.

    Call it once, right after ``run.publish()``; ``run`` knows which partitions were written. In
    one transaction the rows of those clusters and days are replaced, and the run is recorded as
    succeeded with the time that its data reaches to and its coverage; a run that is killed before
    leaves the former results. Incidents are replaced where they begin on a day that the run read;
    ``dim_bucket`` grows, since other days need its rows. ``tables`` default to those that the job
    writes, and those without a twin are passed over; one without any row ends empty for the days.
    ``job.counts["published"]`` tells how many rows each table got.

    Raises:
        UsageError: ``--pg`` has no value and QUOTAS_DATABASE_URL is not set, or is no address.
        InfrastructureError: Postgres cannot be reached, was not migrated, or refuses; or the
            queued run was cancelled.
    """
    url = database_of(job)
    if url is None:
        return
    wanted = [table for table in tables or SERVED[job.name] if table in SERVED["run"]]
    places = [place_of(run.folder, path) for path in run.places]
    covered = covered_places(job, run)
    with recorded(job) as record, connected(url) as connection:
        job.say("publishing to Postgres ...")
        clear_staging(connection, SERVED["run"])
        counts = dict.fromkeys((table.name for table in wanted), 0)
        written = [place for place in places if place.table in counts]
        for place in written:
            counts[place.table] += stage(connection, record.seq, place)
        clusters = clusters_of(written)
        publication = Publication(
            cluster_id=clusters[0] if len(clusters) == 1 else None,
            reach=reach_of(covered, job.period()),
            tables=tuple(counts),
            rows_in=_number(job.counts.get("rows_in")),
            rows_out=sum(counts.values()),
        )
        with connection.transaction():
            connection.execute(_TURN)
            for name, number in counts.items():
                days = [place for place in written if place.table == name and place.day] or covered
                _replace(connection, _Replacement.of(name, days, record.seq, number))
            record.publish(connection, publication)
    job.counts["published"] = counts


@dataclass(frozen=True, slots=True)
class _Replacement:
    """The rows of a table that take the place of those of some clusters and days."""

    table: Table
    clusters: list[str]
    days: list[date]
    seq: int
    number: int

    @classmethod
    def of(cls, name: str, days: Iterable[Place], seq: int, number: int) -> "_Replacement":
        dated = [(place.cluster_id, place.day) for place in days if place.day is not None]
        return cls(
            TABLES[name], [item for item, _ in dated], [day for _, day in dated], seq, number
        )


def _replace(connection: psycopg.Connection[Any], new: _Replacement) -> None:
    names: Mapping[str, sql.Composable] = {
        "table": sql.Identifier(new.table.name),
        "staged": staged(new.table),
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns_of(new.table))),
    }
    if new.table is not DIM_BUCKET:
        delete = _BEGUN_ON_DAYS if new.table is THROTTLE_INCIDENT else _OF_DAYS
        connection.execute(delete.format(**names), [new.clusters, new.days])
    if new.table is THROTTLE_INCIDENT:
        # The folder holds those of other days too, which may have been published before.
        connection.execute(_SAME.format(**names), [new.seq])
    move = _MERGE if new.table is DIM_BUCKET else _REPLACE
    moved = connection.execute(move.format(**names), [new.seq]).rowcount
    if moved != new.number:
        message = (
            f"Of {new.number} rows of {new.table.name} Postgres kept {moved}: it was restarted "
            "meanwhile. Run the job again."
        )
        raise InfrastructureError(message)
    connection.execute(_FORGET.format(**names), [new.seq])


def _number(counted: object) -> int | None:
    if isinstance(counted, Mapping):
        return sum(item for item in counted.values() if isinstance(item, int))
    return counted if isinstance(counted, int) else None
