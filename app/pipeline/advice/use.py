"""What each bucket used in its hours, on each broker."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.pipeline.usage.measures import Numbers, begins_of, ranks_of

_BIN_BITS: Final = 20
_AGE_BITS: Final = 10
MOST_DAYS: Final = 1_000
"""So many days are looked at, at most."""

_OFFSET: Final = 2 ** (_BIN_BITS - 1)
"""Makes bins positive; 0 is left for a rate of zero."""

_LN_RATIO: Final = math.log(BIN_RATIO)
_HALF: Final = 0.5
_HOURS_OF_DAY: Final = 24


def hours_of_epoch(hours: pa.Table) -> Numbers:
    """Return the number of each hour since the epoch."""
    days: Numbers = hours["dt"].cast(pa.int32()).to_numpy().astype(np.int64)
    times: Numbers = days * _HOURS_OF_DAY + hours["hour"].to_numpy()
    return times


def grouped(
    rows: pa.Table, by: Sequence[str], how: Mapping[str, str], same: Sequence[str] = ()
) -> pa.Table:
    """Return each group of rows once, with a value of each column.

    Args:
        how: By column, Arrow's function of the values: ``max``, ``sum``.
        same: Columns whose values are the same in a group.
    """
    functions = [(_ROW, "one"), *how.items()]
    numbered = rows.select([*by, *how]).append_column(_ROW, pa.array(np.arange(len(rows))))
    found = numbered.group_by(by).aggregate(functions)
    # Of texts, rows are looked up in half of the time that the values would take.
    columns = rows.select([*by, *same]).take(found[f"{_ROW}_one"])
    for name, function in how.items():
        columns = columns.append_column(name, found[f"{name}_{function}"])
    return columns


_ROW: Final = "row"


_DECIMAL: Final = pa.decimal128(38, 0)
_MOST: Final = 10**30


def exact_decimals(numbers: Numbers) -> pa.Array:
    """Return whole numbers as Arrow and Spark add them up without an error, at most 10^30 each."""
    if numbers.dtype != object:
        return pa.array(numbers).cast(_DECIMAL)
    return pa.array([Decimal(min(each, _MOST)) for each in numbers.tolist()], _DECIMAL)


def exact_numbers(decimals: pa.ChunkedArray) -> Numbers:
    """Return whole numbers: of 64 bits where all fit, else Python's."""
    try:
        fitting: Numbers = decimals.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return np.array([int(each) for each in decimals.to_pylist()], object)
    return fitting


def groups_of(rows: pa.Table, by: Sequence[str]) -> tuple[Numbers, Numbers]:
    """Return the number of the group of each row, and the first row of each group."""
    numbers = np.zeros(rows.num_rows, np.int64)
    for name in by:
        encoded = rows[name].combine_chunks().dictionary_encode()
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, firsts, groups = np.unique(numbers, return_index=True, return_inverse=True)
    return groups, firsts


def ends_of(begins: Numbers, number: int) -> Numbers:
    """Return the last row of each run of a number of rows."""
    found: Numbers = np.append(begins[1:], number)[: len(begins)] - 1
    return found


def reported_minutes(hours: pa.Table) -> pa.Table:
    """Return the bits of the minutes in which brokers reported anything."""
    of_broker = ["cluster_id", "dt", "hour", "broker_id"]
    groups, firsts = groups_of(hours, of_broker)
    present = np.zeros(len(firsts), np.int64)
    np.bitwise_or.at(present, groups, hours["present"].to_numpy())
    return hours.select(of_broker).take(firsts).append_column("present", pa.array(present))


def with_reported(hours: pa.Table, reported: pa.Table, newest: Mapping[str, date]) -> pa.Table:
    """Add ``age`` and ``reported`` to hours, as ``Evidence.map_buckets`` says.

    What was reported are the ``reported_minutes`` of all hours.
    """
    clusters = pa.array(newest, pa.string())
    last = np.array([*newest.values()], "datetime64[D]").astype(np.int64)
    of_cluster = pc.index_in(hours["cluster_id"], clusters).to_numpy()
    age = last[of_cluster] - hours["dt"].cast(pa.int32()).to_numpy()
    at = pc.index_in(*(_broker_hours(rows, clusters) for rows in (hours, reported)))
    minutes = np.bitwise_count(reported["present"].to_numpy()).astype(np.int64)[at.to_numpy()]
    added = hours.append_column("age", pa.array(age))
    return added.append_column("reported", pa.array(minutes))


def _broker_hours(rows: pa.Table, clusters: pa.Array) -> pa.Array:
    """Return a number for the cluster, hour and broker of each row."""
    of_cluster = pc.index_in(rows["cluster_id"], clusters).to_numpy().astype(np.int64)
    times = (of_cluster << 54) + (hours_of_epoch(rows) << 32)
    return pa.array(times + rows["broker_id"].to_numpy())


@dataclass(frozen=True, slots=True)
class UseOnBrokers:
    """What buckets used on each broker, in order of key, bucket and broker.

    Attributes:
        hours: In that order, then by time.
        begins: Where the hours of a bucket on a broker begin.
        key: The number of each hour's key.
    """

    hours: pa.Table
    begins: Numbers
    key: Numbers

    @classmethod
    def of(cls, hours: pa.Table) -> "UseOnBrokers":
        """Put hours in order."""
        key = ranks_of(hours["key"])
        columns = [_numbers(hours, name) for name in ("hour", "age", "broker_id", "bucket_id")]
        columns[1] = -columns[1]
        order = np.lexsort([*columns, key])
        ordered = hours.take(order).combine_chunks()
        begins = begins_of(
            key[order], _numbers(ordered, "bucket_id"), _numbers(ordered, "broker_id")
        )
        return cls(ordered, begins, key[order])

    def table(self, percent: int, weights: Sequence[int]) -> pa.Table:
        """Return what each bucket used on each broker.

        Returns:
            ``cluster_id, key, bucket_id, broker_id``; ``level`` and ``limit`` of the last hour;
            ``minutes``, ``expected`` (that the broker reported in the hours of the bucket) and
            ``throttled``; ``p95`` and ``rate`` (at the percentile), the middle of their bins;
            ``peak``.
        """
        begins = self.begins
        ends = ends_of(begins, self.hours.num_rows)
        peak = np.maximum.reduceat(_numbers(self.hours, "rate_max"), begins)
        p95, rate = self._rates((95, percent), np.array(weights, np.int64), peak)
        last = self.hours.select(["cluster_id", "key", "bucket_id", "broker_id", "level", "limit"])
        sums = {
            name: np.add.reduceat(_numbers(self.hours, column).astype(np.int64), begins)
            for name, column in (
                ("minutes", "minutes"),
                ("expected", "reported"),
                ("throttled", "throttled_minutes"),
            )
        }
        taken = last.take(ends)
        columns = {name: taken[name] for name in taken.column_names}
        return pa.table({**columns, **sums, "p95": p95, "rate": rate, "peak": peak})

    def _rates(self, percents: Sequence[int], weights: Numbers, peak: Numbers) -> list[Numbers]:
        """Return the rates at percentiles: the first bin whose weighted count reaches the rank."""
        bins: Any = self.hours["bins"].combine_chunks()
        counts = np.diff(bins.offsets.to_numpy())
        values = bins.flatten().to_numpy().astype(np.int64)
        codes = np.where(values == ZERO_BIN, 0, values + _OFFSET)
        run = np.cumsum(np.isin(np.arange(len(counts)), self.begins)) - 1
        upper = (run << (_BIN_BITS + _AGE_BITS)) + _numbers(self.hours, "age")
        packed = np.sort(np.repeat(upper, counts) + (codes << _AGE_BITS))
        reached = np.cumsum(weights[packed & 2**_AGE_BITS - 1])
        ends = np.searchsorted(packed, (np.arange(len(self.begins)) + 1) << (_BIN_BITS + _AGE_BITS))
        totals = reached[ends - 1]
        before = np.append(0, totals[:-1])
        found = []
        for percent in percents:
            rank = before + (percent * (totals - before) + 99) // 100
            at = packed[np.searchsorted(reached, rank)] >> _AGE_BITS & 2**_BIN_BITS - 1
            middles = pa.array(np.where(at == 0, ZERO_BIN, at - _OFFSET))
            found.append(np.minimum(rates_of_bins(middles), peak))
        return found


def _numbers(table: pa.Table, name: str) -> Numbers:
    column: Numbers = table[name].to_numpy()
    return column


def rates_of_bins(bins: pa.Array) -> Numbers:
    """Return the rates that stand for bins: Python's own exponential, the same on all machines."""
    encoded = bins.dictionary_encode()
    rates = [
        0.0 if number == ZERO_BIN else math.exp((number + _HALF) * _LN_RATIO)
        for number in encoded.dictionary.to_pylist()
    ]
    found: Numbers = np.array(rates, float)[encoded.indices.to_numpy()]
    return found
