"""The names of observations, each resolved once however many minutes have it.

What limits a caller follows from the names, and in a history from the time: between two moments at
which no quota changes, all minutes of a name have one answer. A piece of observations has far fewer
names than rows, so Spark looks up names, and tasks bring the answers to the rows by numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.pipeline.exchange import for_each, numbers_of
from app.pipeline.jobs.resolve_tables import LookUp
from app.pipeline.sources.buckets import Scope
from app.pipeline.sources.codes import Coded, Integers, begins, packed
from app.pipeline.sources.table_pieces import TablePiece, micros_of, read_columns
from app.pipeline.tables import OBSERVATION_MINUTE

NAMES_DDL: Final = """
    piece int, code int, cluster_id string, key string, user string, client_id string,
    ts timestamp, last timestamp, rows bigint"""
"""A name of a piece between two changes of quotas: its number there, its first and last minute, and
how many rows it has."""

NAME_COLUMNS: Final = ("key", "user", "client_id")

_TIME: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Observations:
    """Observations in files.

    Attributes:
        pieces: Of ``OBSERVATION_MINUTE``.
        scope: Rows outside of its period are left out.
    """

    pieces: Sequence[TablePiece]
    scope: Scope


def observed_names(
    session: SparkSession, observations: Observations, moments: Sequence[int] = ()
) -> DataFrame:
    """Return the columns of ``NAMES_DDL``.

    Args:
        session: Reads.
        observations: Whose.
        moments: At which quotas change, in microseconds of the epoch, ascending.
    """
    task = _Names(observations, np.array(moments, np.int64))
    return for_each(session, len(observations.pieces), task, NAMES_DDL)


def moments_of(look_ups: Iterable[LookUp]) -> Sequence[int]:
    """Return when look-ups change; nothing where they hold for ever."""
    frames = [
        lookup.frame.select("since") for lookup in look_ups if "since" in lookup.frame.columns
    ]
    if not frames:
        return ()
    first, *others = frames
    for another in others:
        first = first.unionByName(another)
    micros = first.distinct().select(sf.unix_micros("since").alias("at"))
    return sorted(row["at"] for row in micros.collect())


@dataclass(frozen=True)
class Named:
    """Rows of a piece by name.

    Attributes:
        order: Rows with the same name side by side; a slice of all where they are so already.
        starts: Where each name begins in that order.
        rows: How many there are.
    """

    order: Integers | slice
    starts: Integers
    rows: int

    @classmethod
    def of(cls, names: Sequence[Coded], times: Integers, moments: Integers) -> "Named":
        """Number the names, in their order; the same rows always get the same numbers."""
        columns = [(item.codes, len(item)) for item in names]
        if len(moments):
            since = np.searchsorted(moments, times, side="right")
            columns.append((since, len(moments) + 1))
        name = packed(columns)
        in_turn = bool(np.all(name[1:] >= name[:-1]))
        order = slice(None) if in_turn else np.argsort(name, kind="stable")
        return cls(order, np.flatnonzero(begins(name[order])), len(name))

    @property
    def counts(self) -> Integers:
        """How many rows each name has."""
        counts: Integers = np.diff(np.append(self.starts, self.rows))
        return counts

    @property
    def firsts(self) -> Integers:
        """A row of each name."""
        return self.starts if isinstance(self.order, slice) else self.order[self.starts]

    def codes(self) -> Integers:
        """Return for each row the number of its name."""
        codes = np.empty(self.rows, np.int64)
        codes[self.order] = np.repeat(np.arange(len(self.starts)), self.counts)
        return codes


def names_in(rows: pa.Table) -> Sequence[Coded]:
    """Return the columns of names; null counts as ''."""
    return [Coded.of_names(rows[name]).mapped(bytes.decode, pa.string()) for name in NAME_COLUMNS]


@dataclass(frozen=True)
class _Names:
    observations: Observations
    moments: Integers

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task."""
        for number in numbers_of(batches):
            piece = self.observations.pieces[number]
            scope = self.observations.scope
            rows = read_columns(piece, OBSERVATION_MINUTE, (*NAME_COLUMNS, "ts"), scope)
            if rows.num_rows:
                yield from self._told(number, piece, rows)

    def _told(self, number: int, piece: TablePiece, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        names, times = names_in(rows), micros_of(rows["ts"])
        named = Named.of(names, times, self.moments)
        count = len(named.starts)
        ordered = times[named.order]
        columns = {
            "piece": pa.array(np.full(count, number, np.int32)),
            "code": pa.array(np.arange(count, dtype=np.int32)),
            "cluster_id": pa.array([piece.cluster] * count),
            **{
                name: column.chosen(named.firsts).encoded().cast(pa.string())
                for name, column in zip(NAME_COLUMNS, names, strict=True)
            },
            "ts": pa.array(np.minimum.reduceat(ordered, named.starts)).cast(_TIME),
            "last": pa.array(np.maximum.reduceat(ordered, named.starts)).cast(_TIME),
            "rows": pa.array(named.counts),
        }
        yield from pa.table(columns).to_batches(max_chunksize=50_000)
