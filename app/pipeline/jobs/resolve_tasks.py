"""What a task of ``resolve`` does: sum up the members of its buckets with numpy, and write them.

All members of a bucket on a day are in one task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.pipeline.exchange import gathered
from app.pipeline.jobs.resolve_sums import Groups, sums_of
from app.pipeline.sinks.sorted_files import write_day
from app.pipeline.sources.codes import begins
from app.pipeline.sources.table_pieces import WHOLE, array_of
from app.pipeline.tables import BUCKET_MINUTE

TOLD_DDL: Final = "minutes bigint, rows bigint"
"""Rows of ``BUCKET_MINUTE``, and rows that they sum up."""

_MICRO: Final = 1_000_000
_MINUTE_US: Final = 60_000_000
_DAY_MINUTES: Final = 1440


@dataclass(frozen=True)
class Task:
    """What tasks need to know.

    Attributes:
        place: The folder of the table.
    """

    place: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number, tables in gathered(batches):
            yield self.told(tables, number)

    def told(self, tables: Sequence[pa.Table], number: int) -> pa.RecordBatch:
        """Sum up members and write them, and tell the columns of ``TOLD_DDL``."""
        members = pa.concat_tables(tables).unify_dictionaries()
        groups = Groups.of(members)
        sums = sums_of(members, groups)
        self._write(members, groups, pa.table(_columns(members, groups, sums)), number)
        told = (len(groups.starts), int(sums["rows"].sum()))
        return pa.record_batch([pa.array([item]) for item in told], ["minutes", "rows"])

    def _write(self, members: pa.Table, groups: Groups, rows: pa.Table, number: int) -> None:
        cuts = np.flatnonzero(begins(groups.days))
        for begin, end in zip(cuts, np.append(cuts[1:], len(groups.days)), strict=True):
            one = int(groups.first[begin])
            day = (members["cluster_id"][one].as_py(), members["day"][one].as_py())
            some = rows.slice(begin, end - begin)
            write_day(some, BUCKET_MINUTE, self.place, day, number, marks={WHOLE: b"true"})


def _columns(members: pa.Table, groups: Groups, sums: Mapping[str, Any]) -> Mapping[str, pa.Array]:
    first = groups.first
    throttled, most = sums["throttled"], sums["throttle_ms_max"]
    minutes = array_of(members["day"])[first] * _DAY_MINUTES + array_of(members["minute"])[first]
    average = sums["throttle_ms_avg"] / np.maximum(throttled, 1) / _MICRO
    names = "user" in members.column_names
    return {
        "ts": pa.array(minutes * _MINUTE_US).cast(pa.timestamp("us", "UTC")),
        "broker_id": pa.array(array_of(members["broker_id"])[first]),
        "key": groups.keys.chosen(first).encoded(),
        "bucket_id": pa.array(array_of(members["bucket_id"])[first]),
        "rate_avg": pa.array(sums["rate_avg"] / _MICRO),
        "rate_max": pa.array(sums["rate_max"] / _MICRO),
        "throttle_ms_avg": pa.array(average, mask=throttled == 0),
        "throttle_ms_max": pa.array(most, mask=np.isneginf(most)),
        "bytes_est": pa.array(sums["bytes_est"], mask=sums["moved"] == 0),
        # All members of a bucket have the same limit at a time: it follows from the tags.
        "limit": members["limit"].take(pa.array(first)),
        "level": members["level"].take(pa.array(first)),
        "contributors": pa.array(groups.names(members) if names else sums["rows"]),
    }
