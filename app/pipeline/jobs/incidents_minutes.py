"""The few minutes that incidents are made of, found by whole columns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from app.pipeline.exchange import for_each, numbers_of
from app.pipeline.jobs.utilization_minutes import BucketMinutes
from app.pipeline.sources.codes import Flags
from app.pipeline.sources.table_pieces import array_of, micros_of, read_columns
from app.pipeline.tables import BUCKET_MINUTE

_DDL: Final = """
    ts timestamp, broker_id int, key string, bucket_id bigint, rate_avg double, rate_max double,
    throttle_ms_avg double, throttle_ms_max double, limit double, level tinyint,
    cluster_id string"""
_COLUMNS: Final = (
    *("ts", "broker_id", "key", "bucket_id", "rate_avg", "rate_max", "throttle_ms_avg"),
    *("throttle_ms_max", "limit", "level"),
)


def notable_minutes(session: SparkSession, minutes: BucketMinutes) -> DataFrame:
    """Return the violating minutes, and a last minute of each file: all that ``incidents`` needs.

    A minute violates where it was throttled, or its highest rate was above the limit.

    Args:
        session: Reads.
        minutes: All of them.
    """
    return for_each(session, len(minutes.pieces), _Notable(minutes), _DDL)


@dataclass(frozen=True)
class _Notable:
    minutes: BucketMinutes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number in numbers_of(batches):
            piece = self.minutes.pieces[number]
            rows = read_columns(piece, BUCKET_MINUTE, _COLUMNS, self.minutes.scope)
            if not rows.num_rows:
                continue
            chosen = _violates(rows)
            chosen[np.argmax(micros_of(rows["ts"]))] = True
            some = rows.filter(pa.array(chosen))
            key = some["key"].cast(pa.string())
            told = some.set_column(some.column_names.index("key"), "key", key)
            cluster = pa.array([piece.cluster] * some.num_rows, pa.string())
            yield from told.append_column("cluster_id", cluster).combine_chunks().to_batches(20_000)


def _violates(rows: pa.Table) -> Flags:
    """Tell which minutes ``bucket_rules`` finds throttled or over; what is missing is neither."""
    longest = np.fmax(array_of(rows["throttle_ms_avg"]), array_of(rows["throttle_ms_max"]))
    over: Flags = (longest > 0) | (array_of(rows["rate_max"]) > array_of(rows["limit"]))
    return over
