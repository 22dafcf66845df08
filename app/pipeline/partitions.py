"""Partitions of tables by the values of their columns: cluster, day and hour."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from app.pipeline.tables import Table

Partition = Mapping[str, str]
"""The values of a table's partition columns, as text."""

_HOURS: Final = 24


def in_order(partitions: Iterable[Partition]) -> list[Partition]:
    """Return partitions by cluster, day and hour."""
    return sorted(
        partitions,
        key=lambda item: [
            (int(value), "") if name == "hour" else (0, value) for name, value in item.items()
        ],
    )


def without(partitions: Iterable[Partition], others: Iterable[Partition]) -> list[Partition]:
    """Return those that are not among the others, in their order."""
    left_out = {tuple(item.items()) for item in others}
    return [item for item in partitions if tuple(item.items()) not in left_out]


def among(partitions: Iterable[Partition] | None, table: Table) -> Callable[[Partition], bool]:
    """Return what tells whether values are of one of the partitions, as far as it names columns.

    Args:
        partitions: Null are all.
    """
    if partitions is None:
        return lambda _: True
    wanted = {
        tuple((name, value) for name, value in item.items() if name in table.partitions)
        for item in partitions
    }

    def is_wanted(item: Partition) -> bool:
        values = tuple(item.items())
        return any(
            values[first:end] in wanted for first in (0, 1) for end in range(len(values) + 1)
        )

    return is_wanted


def is_within(partitions: Iterable[Partition], columns: Sequence[str] = ()) -> Column:
    """Tell whether a row is of one of the partitions, as far as they name these columns."""
    of_cluster: dict[str | None, dict[str, set[int]]] = {}
    for item in partitions:
        of_day = of_cluster.setdefault(item.get("cluster_id"), {})
        if "dt" in item and "dt" in columns:
            hours = of_day.setdefault(item["dt"], set())
            if "hour" in item and "hour" in columns:
                hours.add(int(item["hour"]))
    return reduce(or_, (_is_of(*item) for item in of_cluster.items()), sf.lit(False))


def _is_of(cluster: str | None, days: Mapping[str, set[int]]) -> Column:
    """Tell whether a row is of a cluster's days; days with the same hours are one condition."""
    same = sf.lit(True) if cluster is None else sf.col("cluster_id") == cluster
    of_hours: dict[tuple[int, ...], list[date]] = {}
    for day, hours in sorted(days.items()):
        of_hours.setdefault(tuple(sorted(hours)), []).append(date.fromisoformat(day))
    claims = []
    for chosen, dates in of_hours.items():
        claim = sf.col("dt").isin(dates)
        if chosen and len(chosen) < _HOURS:
            claim &= sf.col("hour").isin(list(chosen))
        claims.append(claim)
    return same & reduce(or_, claims) if claims else same


def days_of(hours: Iterable[Partition]) -> list[Partition]:
    """Return the days that hours are of, each once, in order."""
    days = {(item["cluster_id"], item["dt"]) for item in hours}
    return [{"cluster_id": cluster, "dt": day} for cluster, day in sorted(days)]
