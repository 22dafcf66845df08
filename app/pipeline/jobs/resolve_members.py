"""What a task does with the resolved names of its piece: bring the answers to the rows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.exchange import Shares, blobs_of
from app.pipeline.jobs.resolve_names import NAME_COLUMNS, Named, Observations, names_in
from app.pipeline.jobs.resolve_sums import combined
from app.pipeline.sources.codes import Integers
from app.pipeline.sources.table_pieces import TablePiece, array_of, micros_of, read_columns
from app.pipeline.tables import OBSERVATION_MINUTE

_MICRO: Final = 1_000_000
_MINUTE_US: Final = 60_000_000
_DAY_MINUTES: Final = 1440
_MOST: Final = 2.0**63
_FEWER: Final = 2
_COLUMNS: Final = (
    *(*NAME_COLUMNS, "ts", "broker_id", "rate_avg", "rate_max", "throttle_ms_avg"),
    *("throttle_ms_max", "bytes_est"),
)


@dataclass(frozen=True)
class Members:
    """Hands the rows of pieces to those who sum up their buckets.

    Attributes:
        observations: Whose names were resolved.
        moments: As for ``observed_names``.
        shares: Who gets what.
        one_source: Whether no name has two rows a minute: then contributors are rows, and nobody
            needs to tell names apart.
    """

    observations: Observations
    moments: Integers
    shares: Shares
    one_source: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task: ``piece``, ``code``, ``level``, ``limit`` and ``bucket_id``."""
        for members, place in self.of_pieces(batches):
            buckets = array_of(members["bucket_id"]).astype(np.uint64)
            parts = self.shares.parts_of([place], np.zeros(len(buckets), np.int64), buckets)
            yield from blobs_of(members, parts)

    def of_pieces(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.Table, tuple[str, int]]]:
        """Yield the members of each piece that has answers, with their cluster and day."""
        given = list(batches)
        if not given:
            return
        told = pa.Table.from_batches(given)
        numbers = array_of(told["piece"])
        for number in np.unique(numbers).tolist():
            answers = told.filter(pa.array(numbers == number)).sort_by("code")
            yield self._members(self.observations.pieces[number], answers)

    def _members(self, piece: TablePiece, answers: pa.Table) -> tuple[pa.Table, tuple[str, int]]:
        rows = read_columns(piece, OBSERVATION_MINUTE, _COLUMNS, self.observations.scope)
        names, times = names_in(rows), micros_of(rows["ts"])
        named = Named.of(names, times, self.moments)
        if not np.array_equal(array_of(answers["code"]), np.arange(len(named.starts))):
            message = f"{piece.path} changes while it is read; nothing is published. Run again."
            raise InfrastructureError(message)
        buckets, codes = array_of(answers["bucket_id"]), named.codes()
        columns = _measures(rows) | {
            "minute": pa.array((times // _MINUTE_US - piece.day * _DAY_MINUTES).astype(np.int32)),
            "key": names[0].encoded(),
            "bucket_id": pa.array(buckets[codes]),
            "limit": answers["limit"].take(pa.array(codes)),
            "level": pa.array(array_of(answers["level"]).astype(np.int8)[codes]),
            "day": pa.array(np.full(rows.num_rows, piece.day, np.int32)),
            "cluster_id": _same(piece.cluster, rows.num_rows),
        }
        if not self.one_source:
            columns |= {"user": names[1].encoded(), "client_id": names[2].encoded()}
        members = pa.table(columns)
        if self.one_source and len(np.unique(buckets)) * _FEWER <= len(buckets):
            members = combined(members)
        return members, piece.place


def _measures(rows: pa.Table) -> dict[str, pa.Array]:
    n = rows.num_rows
    throttled, moved = rows["throttle_ms_avg"].is_valid(), rows["bytes_est"].is_valid()
    return {
        "broker_id": pa.array(array_of(rows["broker_id"]).astype(np.int32)),
        "rate_avg": pa.array(_micros(array_of(rows["rate_avg"]))),
        "rate_max": pa.array(_micros(array_of(rows["rate_max"]))),
        "throttle_ms_avg": pa.array(_micros(array_of(rows["throttle_ms_avg"].fill_null(0.0)))),
        "throttled": pa.array(array_of(throttled).astype(np.int32)),
        "throttle_ms_max": pa.array(array_of(rows["throttle_ms_max"].fill_null(-np.inf))),
        "bytes_est": pa.array(array_of(rows["bytes_est"].fill_null(0))),
        "moved": pa.array(array_of(moved).astype(np.int32)),
        "rows": pa.array(np.ones(n, np.int32)),
    }


def _micros(values: npt.NDArray[Any]) -> Integers:
    scaled = np.rint(values * _MICRO)
    if not np.all(np.abs(scaled) < _MOST):
        message = "observation_minute holds a rate or a throttle time that is no usable number."
        raise UsageError(message)
    micros: Integers = scaled.astype(np.int64)
    return micros


def _same(text: str, rows: int) -> Mapping[str, Any] | pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
