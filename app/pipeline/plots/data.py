"""The rows behind the pictures: of the worst buckets alone, so that they fit in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset, partitioning

from app.pipeline.arrow_storage import arrow_schema, read_arrow
from app.pipeline.folders import has_table
from app.pipeline.plots.names import bucket_name, key_name, quota_name
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, UTILIZATION_DAILY, Table

_DAYS: Final = 7
_ORDER: Final = [
    ("util_p99", "descending"),
    *((name, "ascending") for name in ("cluster_id", "bucket_id", "dt", "broker_id")),
]

Row = Mapping[str, Any]
Identity = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Worst:
    """One of the buckets nearest to their limit, on its busiest broker and day.

    Attributes:
        label: Who spends, and of what.
        quota: The entity whose quota limits; '' if unknown.
        day: The row of ``UTILIZATION_DAILY``.
    """

    label: str
    quota: str
    day: Row

    @property
    def identity(self) -> Identity:
        """The cluster and the id of the bucket."""
        return self.day["cluster_id"], self.day["bucket_id"]


@dataclass(frozen=True, slots=True)
class Results:
    """The folders that are drawn, and what part of them.

    Attributes:
        folders: Where the tables are.
        cluster: Only this one; null is all.
        since: From then on.
        until: Until before then.
    """

    folders: Sequence[Path]
    cluster: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def worst(self, number: int) -> list[Worst]:
        """Return the buckets with the highest p99 beside their limit, the worst first."""
        first: dict[Identity, Row] = {}
        for row in self._days():
            first.setdefault((row["cluster_id"], row["bucket_id"]), row)
            if len(first) == number:
                break
        names = self._names([row["bucket_id"] for row in first.values()])
        several = len({cluster for cluster, _ in first}) > 1
        return [_worst(row, names, several=several) for row in first.values()]

    def minutes(self, buckets: Sequence[Worst]) -> pa.Table:
        """Return the rows of ``BUCKET_MINUTE`` of these buckets, of the last seven days at most."""
        ids = pa.array(sorted({bucket.day["bucket_id"] for bucket in buckets}), pa.int64())
        chosen = pc.field("bucket_id").isin(ids) & self._period(buckets)
        schema = arrow_schema(BUCKET_MINUTE)
        kinds = partitioning(
            pa.schema([("cluster_id", pa.string()), ("dt", pa.date32())]), flavor="hive"
        )
        parts = []
        for folder in self._having(BUCKET_MINUTE):
            rows = dataset(
                folder / BUCKET_MINUTE.name, schema=schema, format="parquet", partitioning=kinds
            )
            parts.append(rows.to_table(filter=chosen))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def has(self, table: Table) -> bool:
        """Tell whether any folder has the table."""
        return bool(self._having(table))

    def _having(self, table: Table) -> list[Path]:
        return [folder for folder in dict.fromkeys(self.folders) if has_table(folder, table)]

    def _period(self, buckets: Sequence[Worst]) -> pc.Expression:
        last = max((bucket.day["dt"] for bucket in buckets), default=date.max)
        chosen = pc.field("dt") > last - timedelta(days=_DAYS)
        if self.cluster is not None:
            chosen &= pc.field("cluster_id") == self.cluster
        if self.since:
            chosen &= pc.field("ts") >= pa.scalar(self.since, pa.timestamp("us", "UTC"))
        if self.until:
            chosen &= pc.field("ts") < pa.scalar(self.until, pa.timestamp("us", "UTC"))
        return chosen

    def _days(self) -> Iterator[Row]:
        """Yield the days of buckets with a limit by broker, nearest to the limit first."""
        parts = [
            read_arrow(folder, UTILIZATION_DAILY) for folder in self._having(UTILIZATION_DAILY)
        ]
        if not parts:
            return
        chosen = pc.field("util_p99").is_valid() & pc.field("broker_id").is_valid()
        if self.cluster is not None:
            chosen &= pc.field("cluster_id") == self.cluster
        if self.since:
            chosen &= pc.field("dt") >= self.since.date()
        if self.until:
            chosen &= pc.field("dt") <= self.until.date()
        rows = pa.concat_tables(parts).filter(chosen).sort_by(_ORDER)
        for batch in rows.to_batches(max_chunksize=1_000):
            yield from batch.to_pylist()

    def _names(self, ids: Sequence[int]) -> dict[tuple[str, int, int], Row]:
        wanted = pc.field("bucket_id").isin(pa.array(ids, pa.int64()))
        return {
            (row["cluster_id"], row["bucket_id"], row["level"]): row
            for folder in self._having(DIM_BUCKET)
            for row in read_arrow(folder, DIM_BUCKET).filter(wanted).to_pylist()
        }


def _worst(row: Row, names: Mapping[tuple[str, int, int], Row], *, several: bool) -> Worst:
    named = names.get((row["cluster_id"], row["bucket_id"], row["level"]), row)
    where = f"{row['cluster_id']}: " if several else ""
    label = f"{where}{bucket_name(named)} {key_name(row['key'])}"
    return Worst(label, quota_name(named), row)
