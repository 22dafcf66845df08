"""What a task of an ingest does: sum up its share of the points, write minutes, tell the rest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.domain.broker_metrics import UP
from app.pipeline.exchange import gathered
from app.pipeline.jobs.ingest_judged import (
    DUPLICATE,
    MINUTE_US,
    MISSING_RATE,
    Judged,
    judged,
)
from app.pipeline.jobs.ingest_minutes import minutes
from app.pipeline.sinks.sorted_files import write_day
from app.pipeline.sources.codes import begins, packed
from app.pipeline.sources.raw_names import ATTRIBUTES
from app.pipeline.tables import OBSERVATION_MINUTE

TOLD_DDL: Final = """
    kind string, file int, line bigint, cluster_id string, told string, ts timestamp,
    broker_id int, key string, attribute string, user string, client_id string, value double,
    reason string, raw string, n bigint, first timestamp, last timestamp, failed bigint"""
"""What a task tells, by ``kind``: a point that is ``refused``; how many of an attribute and input
cluster are ``used``; and of a broker's ``minute`` (``ts``) the points, the first and last, and how
many scrapes failed."""

REFUSED: Final = "refused"
USED: Final = "used"
MINUTE: Final = "minute"

_TIME: Final = pa.timestamp("us", "UTC")
_TOLD: Final = pa.schema(
    [
        *(("kind", pa.string()), ("file", pa.int32()), ("line", pa.int64())),
        *(("cluster_id", pa.string()), ("told", pa.string()), ("ts", _TIME)),
        *(("broker_id", pa.int32()), ("key", pa.string()), ("attribute", pa.string())),
        *(("user", pa.string()), ("client_id", pa.string()), ("value", pa.float64())),
        *(("reason", pa.string()), ("raw", pa.string()), ("n", pa.int64())),
        *(("first", _TIME), ("last", _TIME), ("failed", pa.int64())),
    ]
)
_UP: Final = ATTRIBUTES.index(UP)


@dataclass(frozen=True)
class Task:
    """What tasks need to know.

    Attributes:
        place: The folder of the table of minutes.
        cluster: The cluster id of all points; null leaves each its own.
        constants: Columns of ``OBSERVATION_MINUTE`` that are the same everywhere.
    """

    place: str
    cluster: str | None
    constants: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number, tables in gathered(batches):
            refused = [item for item in tables if "problem" in item.column_names]
            for table in refused:
                yield from _refused(table)
            fine = [item for item in tables if "problem" not in item.column_names]
            if fine:
                yield from self._counted(pa.concat_tables(fine).unify_dictionaries(), number)

    def _counted(self, points: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
        known = judged(points, self.cluster)
        for cluster, day, rows in minutes(known):
            write_day(
                self._with_constants(rows), OBSERVATION_MINUTE, self.place, (cluster, day), number
            )
        yield from _uncounted(known, points)
        yield from _counts(known)

    def _with_constants(self, rows: pa.Table) -> pa.Table:
        same = pa.array(np.zeros(rows.num_rows, np.int32))
        for name, value in self.constants.items():
            rows = rows.append_column(name, pa.DictionaryArray.from_arrays(same, pa.array([value])))
        return rows


def _refused(points: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from _told(
        REFUSED,
        points.num_rows,
        {name: points[name] for name in ("file", "line", "raw", "n")}
        | {"reason": points["problem"]},
    )


def _uncounted(known: Judged, points: pa.Table) -> Iterator[pa.RecordBatch]:
    """Tell the points that were fine but for others."""
    rows = np.flatnonzero(~known.counts)
    reasons = np.where(known.duplicate[rows], DUPLICATE, MISSING_RATE)
    taken = points.take(pa.array(known.rows[rows]))
    columns = {
        name: taken[name]
        for name in ("file", "line", "ts", "broker_id", "key", "attribute", "user", "client_id")
    }
    columns |= {name: known.names[name].chosen(rows).encoded() for name in ("cluster_id", "told")}
    columns |= {"value": taken["value"], "n": pa.array(np.ones(len(rows), np.int64))}
    columns |= {"reason": pa.array(reasons, pa.string())}
    yield from _told(REFUSED, len(rows), columns)


def _counts(known: Judged) -> Iterator[pa.RecordBatch]:
    yield from _used(known)
    rows = np.flatnonzero(known.counts)
    clusters, brokers = known.names["cluster_id"], known.names["broker_id"]
    at = known.minutes[rows]
    if not len(rows):
        return
    least = int(at.min())
    minute = packed(
        [
            (clusters.codes[rows], len(clusters)),
            (brokers.codes[rows], len(brokers)),
            (at - least, int(at.max()) - least + 1),
        ]
    )
    order = np.argsort(minute, kind="stable")
    starts = np.flatnonzero(begins(minute[order]))
    ordered = rows[order]
    down = (known.attributes[ordered] == _UP) & (known.values[ordered] == 0)
    of_minute = ordered[starts]
    columns = {
        "cluster_id": clusters.chosen(of_minute).encoded(),
        "broker_id": brokers.chosen(of_minute).encoded().cast(pa.int32()),
        "ts": pa.array(known.minutes[of_minute] * MINUTE_US).cast(_TIME),
        "n": pa.array(np.add.reduceat((~down).astype(np.int64), starts)),
        "first": pa.array(np.minimum.reduceat(known.ts[ordered], starts)).cast(_TIME),
        "last": pa.array(np.maximum.reduceat(known.ts[ordered], starts)).cast(_TIME),
        "failed": pa.array(np.add.reduceat(down.astype(np.int64), starts)),
    }
    yield from _told(MINUTE, len(starts), columns)


def _used(known: Judged) -> Iterator[pa.RecordBatch]:
    """Count the points that count, by attribute and by the cluster that the input names."""
    told = known.names["told"]
    codes = (known.attributes.astype(np.int64) * len(told) + told.codes)[known.counts]
    found, counts = np.unique(codes, return_counts=True)
    columns = {
        "attribute": pa.array([ATTRIBUTES[item // len(told)] for item in found.tolist()]),
        "told": pa.array([told.values[item % len(told)].as_py() for item in found.tolist()]),
        "n": pa.array(counts),
    }
    yield from _told(USED, len(found), columns)


def _told(kind: str, n: int, columns: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    if not n:
        return
    told = {**columns, "kind": pa.array([kind] * n)}
    arrays = [told.get(item.name, pa.nulls(n, item.type)) for item in _TOLD]
    table = pa.table(arrays, _TOLD.names)
    yield from table.cast(_TOLD).to_batches(max_chunksize=20_000)
