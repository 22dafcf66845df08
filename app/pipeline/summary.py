"""What people came for: the buckets nearest to their limits, and the incidents that are open."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.documents.text import pad, width_of
from app.domain.entities import show_entity
from app.domain.quantities import value_in_words
from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake, read_all, read_first
from app.pipeline.partitions import Partition
from app.pipeline.results import Scope
from app.pipeline.tables import DIM_BUCKET, THROTTLE_INCIDENT, UTILIZATION_DAILY, Table

LONGEST_NAME: Final = 44
"""Characters of an entity in a table or a picture; the JSON has all of it."""

_LISTED: Final = 10
_KEYS: Final = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "fetch",
    "request_percentage": "request",
    "controller_mutation_rate": "mutation",
}

Row = Mapping[str, Any]
Entity = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Results:
    """The tables that results are read from, and which of their rows.

    Attributes:
        lakes: Where the tables are; one may be in several, or in none.
        days: Of the results; null is all of them.
    """

    lakes: Sequence[Lake]
    scope: Scope
    days: Sequence[Partition] | None = None

    def lakes_with(self, table: Table) -> list[Lake]:
        """Return the lakes that have a table, each once."""
        lakes = {lake.name: lake for lake in self.lakes}
        return [lake for lake in lakes.values() if lake.has(table)]

    def read(self, table: Table) -> DataFrame:
        """Return the rows of the cluster; there are none where no lake has the table."""
        lakes = self.lakes_with(table)
        if not lakes:
            return self.lakes[0].nothing(table)
        rows = read_all(lakes, table) if self.days is None else read_first(lakes, table, self.days)
        return self.scope.of_cluster(rows) if "cluster_id" in rows.columns else rows

    def nearest(self, number: int = _LISTED) -> list["NearLimit"]:
        """Return the buckets with the highest p99 beside their limit, the nearest first.

        Each is listed with its worst day and its busiest broker: the latest of equal ones.
        """
        days = self.scope.of_days(self.read(UTILIZATION_DAILY))
        limited = days.where("util_p99 < double('Infinity') and broker_id is not null")
        worst = limited.groupBy("cluster_id", "bucket_id").agg(
            sf.max_by(sf.struct("*"), sf.struct("util_p99", "dt", "broker_id")).alias("day")
        )
        rows = worst.select("day.*").sort(sf.desc("util_p99"), "cluster_id", "bucket_id")
        found = rows.limit(number).toArrow().to_pylist()
        names = self._names(found, [row["dt"] for row in found])
        several = len({row["cluster_id"] for row in found}) > 1
        return [NearLimit(row, names.get(_position(row), row), several) for row in found]

    def open_incidents(self) -> tuple[list[Row], int | None]:
        """Return the open incidents that are furthest over their limit, and how many are open.

        How many is null where no lake has the table: ``incidents`` has not run.
        """
        lakes = self.lakes_with(THROTTLE_INCIDENT)
        if not lakes:
            return [], None
        cluster = self.scope.cluster
        within = [{"cluster_id": cluster}] if cluster and self.days is None else self.days
        columns = Columns(THROTTLE_INCIDENT, THROTTLE_INCIDENT.columns)
        rows = columns_of(lakes, columns, within).filter(pc.field("status") == "open")
        by = [("peak_ratio", "descending"), ("start", "ascending"), ("incident_id", "ascending")]
        found = rows.sort_by(by).slice(0, _LISTED).to_pylist()
        names = self._names(found, [(row["end"] - timedelta.resolution).date() for row in found])
        return [{**names.get(_position(row), {}), **row} for row in found], len(rows)

    def _names(self, rows: Sequence[Row], days: Sequence[date]) -> Mapping[Any, Row]:
        """Return the rows of ``DIM_BUCKET`` of rows' days by cluster, bucket and level."""
        clusters = (row["cluster_id"] for row in rows)
        both = zip(clusters, days, strict=True)
        of_days = [{"cluster_id": cluster, "dt": f"{day}"} for cluster, day in both]
        lakes = self.lakes_with(DIM_BUCKET)
        if not (lakes and rows):
            return {}
        named = columns_of(lakes, Columns(DIM_BUCKET, DIM_BUCKET.columns), of_days)
        own = named.filter(pc.field("bucket_id").isin([row["bucket_id"] for row in rows]))
        return {_position(row): row for row in own.to_pylist()}


@dataclass(frozen=True, slots=True)
class NearLimit:
    """A bucket near its limit.

    Attributes:
        day: Its worst row of ``UTILIZATION_DAILY``.
        names: Its row of ``DIM_BUCKET``; the day where its names are missing.
        of_several: Whether the others are of other clusters.
    """

    day: Row
    names: Row
    of_several: bool

    @property
    def identity(self) -> tuple[str, int]:
        """The cluster and the id of the bucket."""
        return self.day["cluster_id"], self.day["bucket_id"]

    @property
    def label(self) -> str:
        """Who spends, and of what."""
        cluster = f"{self.day['cluster_id']}: " if self.of_several else ""
        return f"{cluster}{bucket_name(self.names)} {key_name(self.day['key'])}"

    def as_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it; ``util_p99`` 1 is the limit."""
        figures = ("broker_id", "limit", "p99", "peak", "util_p99", "throttled_minutes")
        of_day = {name: self.day[name] for name in figures}
        return _bucket_json(self.day, self.names) | {"dt": self.day["dt"].isoformat()} | of_day


def summarize(job: Job, lakes: Sequence[Lake], days: Sequence[Partition] | None = None) -> None:
    """End a job's report with the buckets nearest to their limits and the open incidents."""
    results = Results(lakes, Scope.of(job), days)
    nearest = retried(results.nearest) if results.lakes_with(UTILIZATION_DAILY) else None
    worst, count = retried(results.open_incidents)
    job.summary = list(_lines(nearest, worst, count))
    job.counts["summary"] = {
        "nearest_to_limit": nearest and [item.as_json() for item in nearest],
        "open_incidents": count,
        "worst_open_incidents": [_incident_json(row) for row in worst],
    }


def _lines(
    nearest: Sequence[NearLimit] | None, worst: Sequence[Row], count: int | None
) -> Iterator[str]:
    """Yield what people read; what is null is unknown."""
    yield ""
    if nearest is None:
        yield "Nearest to their limits: unknown until `utilization` has run"
    else:
        yield "Nearest to their limits:" if nearest else "No bucket with a limit has minutes here."
    yield from columns(
        ("p99", "bucket", "limited by", "limit", "day", "broker", "throttled"),
        [
            (
                f"{item.day['util_p99']:,.0%}",
                item.label,
                entity_name(item.names),
                value_in_words(item.day["key"], item.day["limit"]),
                f"{item.day['dt']}",
                f"{item.day['broker_id']}",
                f"{item.day['throttled_minutes'] or 0} min",
            )
            for item in nearest or ()
        ],
    )
    yield ""
    unknown = "unknown until `incidents` has run"
    yield f"Open incidents: {unknown if count is None else count or 'none'}"
    yield from columns(
        ("peak", "bucket", "limited by", "since", "broker", "minutes"),
        [
            (
                f"{row['peak_ratio']:,.0%}" if row["peak_ratio"] is not None else "-",
                f"{bucket_name(row)} {key_name(row['key'])}",
                entity_name(row),
                f"{row['start']:%Y-%m-%d %H:%M}",
                f"{row['broker_id']}",
                f"{row['minutes']}",
            )
            for row in worst
        ],
    )


def bucket_of(row: Row) -> Entity | None:
    """Return who spends: the tags of the bucket that are not empty; null where unknown."""
    if row.get("bucket_user") is None and row.get("bucket_client") is None:
        return None
    tags = {"user": row["bucket_user"], "client-id": row["bucket_client"]}
    return {kind: name for kind, name in tags.items() if name}


def entity_of(row: Row) -> Entity | None:
    """Return the entity whose quota limits, null for a default; null where unknown or none."""
    entity: dict[str, str | None] = {}
    for kind, column in (("user", "quota_user"), ("client-id", "quota_client_id")):
        if row.get(f"{column.removesuffix('_id')}_default"):
            entity[kind] = None
        elif row.get(column):
            entity[kind] = row[column]
    return entity or None


def bucket_name(row: Row) -> str:
    """Return who spends, as ``{user=alice, client-id=etl}``; the id where the names are missing."""
    bucket = bucket_of(row)
    return f"bucket {row['bucket_id']}" if bucket is None else _shorten(show_entity(bucket))


def entity_name(row: Row) -> str:
    """Return the entity of a limit, as ``{user=<default>}``; '' where unknown."""
    entity = entity_of(row)
    return "" if entity is None else _shorten(show_entity(entity))


def key_name(key: str) -> str:
    """Return the short name of a quota key."""
    return _KEYS.get(key, key)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _position(row: Row) -> tuple[str, int, int]:
    return row["cluster_id"], row["bucket_id"], row["level"]


def _incident_json(row: Row) -> dict[str, Any]:
    times = {name: row[name].isoformat() for name in ("start", "end")}
    figures = ("incident_id", "broker_id", "minutes", "peak_ratio")
    return _bucket_json(row, row) | times | {name: row[name] for name in figures}


def _bucket_json(row: Row, names: Row) -> dict[str, Any]:
    named = {"bucket": bucket_of(names), "key": row["key"], "entity": entity_of(names)}
    return {"cluster_id": row["cluster_id"], "bucket_id": str(row["bucket_id"]), **named}


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table in columns; nothing without rows."""
    if rows:
        cells = [header, *rows]
        widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            yield f"  {'  '.join(map(pad, row, widths)).rstrip()}"
