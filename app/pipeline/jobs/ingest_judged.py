"""Points put in order by their names and times: which of them count.

All points of a name on a day and broker must be at hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.domain.broker_metrics import RATE, THROTTLE
from app.pipeline.sources.codes import Coded, Flags, Integers, begins, in_order, packed
from app.pipeline.sources.raw_names import ATTRIBUTES

UNNAMED: Final = "unknown"
"""The cluster id of points that name no cluster, where ``--cluster`` names none either."""

DUPLICATE: Final = "duplicate"
MISSING_RATE: Final = "missing-rate"

MINUTE_US: Final = 60_000_000
DAY_MINUTES: Final = 1440

_RATE: Final = ATTRIBUTES.index(RATE)
_THROTTLE: Final = ATTRIBUTES.index(THROTTLE)
_TEXTS: Final = ("key", "user", "client_id")
_NAMES: Final = (*_TEXTS, "broker_id")


@dataclass(frozen=True)
class Judged:
    """Points in the order of their names and times.

    Attributes:
        names: Their columns ``cluster_id``, ``told`` (the cluster id that the input has), ``key``,
            ``user``, ``client_id``, ``broker_id``.
        ts: Microseconds of the epoch.
        attributes: Places in ``ATTRIBUTES``.
        values: NaN where an idle throttle time says nothing.
        rows: Where each stands in the table that was judged.
        begins: Whether a point is the first of its minute and names.
        duplicate: Whether it does not count, since another of the same names and time does.
        lonely: Whether it is a throttle time without a rate beside it in its minute.
    """

    names: Mapping[str, Coded]
    ts: Integers
    attributes: npt.NDArray[np.int8]
    values: npt.NDArray[np.float64]
    rows: Integers
    begins: Flags
    duplicate: Flags
    lonely: Flags

    @property
    def counts(self) -> Flags:
        """Whether each point counts."""
        counts: Flags = ~(self.duplicate | self.lonely)
        return counts

    @property
    def minutes(self) -> Integers:
        """The minute of each point, since the epoch."""
        return self.ts // MINUTE_US


def judged(points: pa.Table, cluster: str | None) -> Judged:
    """Say of each point whether it counts.

    Of points with the same names and time the first counts, in the order of the inputs. A throttle
    time counts beside a rate of its minute only: what was not measured is not said to be 0.

    Args:
        points: The columns of ``POINT_DDL``, without problems.
        cluster: The cluster id of all points; null leaves each its own.
    """
    names = _named(points, cluster)
    ts = _numbers(points["ts"].cast(pa.int64()))
    attribute = Coded.of(points["attribute"])
    places = np.array([ATTRIBUTES.index(value) for value in attribute.values.to_pylist()], np.int8)
    attributes = places[attribute.codes]
    values = points["value"].combine_chunks().to_numpy(zero_copy_only=False)
    group = _groups(names, ts)
    ties = (
        *(attributes, ts, _numbers(points["file"]), _numbers(points["line"])),
        np.where(np.isnan(values), -np.inf, values),
    )
    order = in_order(group, ties)
    sorted_ts, sorted_attributes = ts[order], attributes[order]
    first = begins(group[order])
    again = ~first & ~begins(sorted_ts) & ~begins(sorted_attributes.astype(np.int64))
    rates = _per_group(sorted_attributes == _RATE, first)
    return Judged(
        names={name: item.chosen(order) for name, item in names.items()},
        ts=sorted_ts,
        attributes=sorted_attributes,
        values=values[order],
        rows=order,
        begins=first,
        duplicate=again,
        lonely=~again & (sorted_attributes == _THROTTLE) & (rates == 0),
    )


def _named(points: pa.Table, cluster: str | None) -> Mapping[str, Coded]:
    names = {name: Coded.of(points[name]) for name in _TEXTS}
    brokers = Coded.of_integers(_numbers(points["broker_id"]))
    told = Coded.of(points["cluster_id"])
    named = told.mapped(lambda item: cluster or item or UNNAMED, pa.string())
    return {"cluster_id": named, "told": told, **names, "broker_id": brokers}


def _groups(names: Mapping[str, Coded], ts: Integers) -> Integers:
    """Return a number for names and minute that sorts as the files are to be sorted."""
    minutes = ts // MINUTE_US
    days = Coded.of_integers(minutes // DAY_MINUTES)
    columns = [(names["cluster_id"].codes, len(names["cluster_id"])), (days.codes, len(days))]
    columns += [(names[name].codes, len(names[name])) for name in _NAMES]
    return packed([*columns, (minutes % DAY_MINUTES, DAY_MINUTES)])


def _per_group(flags: Flags, first: Flags) -> Integers:
    """Count flags in each group, and give every row the count of its group."""
    starts = np.flatnonzero(first)
    if not len(starts):
        return np.zeros(0, np.int64)
    counts: Integers = np.add.reduceat(flags.astype(np.int64), starts)
    return np.repeat(counts, np.diff(np.append(starts, len(first))))


def _numbers(column: Any) -> Integers:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False)).astype(np.int64)
