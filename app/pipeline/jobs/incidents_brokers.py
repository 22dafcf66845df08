"""On how many brokers a bucket had an incident at a time."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StructType

from app.pipeline.sources.codes import Coded, Integers, packed
from app.pipeline.sources.table_pieces import array_of, micros_of

_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_BROKERS: Final = "brokers_affected"
_MINUTE_US: Final = 60_000_000
_ROWS_OF_BATCH: Final = 20_000


def with_brokers(found: DataFrame) -> DataFrame:
    """Add ``brokers_affected``: the brokers with an incident of the bucket at the same time.

    Args:
        found: Incidents: ``cluster_id``, ``key``, ``bucket_id``, ``broker_id``, ``start`` and
            ``end`` in whole minutes; those of a bucket on a broker share no minute.
    """
    schema = StructType([*found.schema.fields]).add(_BROKERS, IntegerType())
    return found.repartition(*_BUCKET).mapInArrow(_told, schema)


def _told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    given = list(batches)
    if not given:
        return
    rows = pa.Table.from_batches(given)
    told = rows.append_column(_BROKERS, pa.array(_affected(rows).astype(np.int32)))
    yield from told.combine_chunks().to_batches(max_chunksize=_ROWS_OF_BATCH)


def _affected(rows: pa.Table) -> Integers:
    """Count for each incident the brokers that have one which shares a minute with it.

    A broker's incidents that began before the end, less those that ended by the start, are those
    at the same time. Times are numbered bucket after bucket, so that what happened in the buckets
    before counts as begun and as ended.
    """
    cluster, key = (Coded.of(rows[name]) for name in _BUCKET[:2])
    ids = Coded.of_integers(array_of(rows["bucket_id"]))
    names = packed([(item.codes, len(item)) for item in (cluster, key, ids)])
    bucket = np.unique(names, return_inverse=True)[1]
    start, end = (micros_of(rows[name]) // _MINUTE_US for name in ("start", "end"))
    least, most = int(start.min()), int(end.max())
    begun, ended = (bucket * (most - least + 1) + at - least for at in (start, end))
    brokers = Coded.of_integers(array_of(rows["broker_id"]))
    counts = np.zeros(rows.num_rows, np.int64)
    for broker in np.unique(brokers.codes):
        own = brokers.codes == broker
        has_any = np.zeros(int(bucket.max()) + 1, np.bool_)
        has_any[bucket[own]] = True
        others = np.flatnonzero(has_any[bucket])
        before = np.searchsorted(np.sort(begun[own]), ended[others], side="left")
        over = np.searchsorted(np.sort(ended[own]), begun[others], side="right")
        counts[others] += before > over
    return counts
