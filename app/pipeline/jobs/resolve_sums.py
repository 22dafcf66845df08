"""Members of buckets side by side, and their sums.

Sums are those of integers of 10^-6 units, so that no order of the rows shows in them, and sums of
sums are the same as sums of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.pipeline.errors import UsageError
from app.pipeline.sources.codes import Coded, Flags, Integers, begins, packed
from app.pipeline.sources.table_pieces import array_of

SUMMED: Final = ("rate_avg", "rate_max", "throttle_ms_avg", "bytes_est")
"""Rates and throttle times in 10^-6, null as 0."""

COUNTED: Final = ("throttled", "moved", "rows")
"""How many of the rows of a sum have a throttle time, and bytes; and how many rows there are."""

_DAY_MINUTES: Final = 1440
_MOST: Final = 2.0**63


@dataclass(frozen=True)
class Groups:
    """Members of the same bucket, broker and minute, side by side in the order of the table.

    Attributes:
        order: The members.
        starts: Where each group begins in that order.
        first: The first member of each group.
        days: For each group a number of its cluster and day.
        keys: Of the members.
    """

    order: Integers
    starts: Integers
    first: Integers
    days: Integers
    keys: Coded

    @classmethod
    def of(cls, members: pa.Table) -> "Groups":
        """Put members in order."""
        clusters, keys = Coded.of(members["cluster_id"]), Coded.of(members["key"])
        day, broker, bucket = (
            Coded.of_integers(array_of(members[name])) for name in ("day", "broker_id", "bucket_id")
        )
        place = packed([(clusters.codes, len(clusters)), (day.codes, len(day))])
        group = packed(
            [
                (place, len(clusters) * len(day)),
                *((item.codes, len(item)) for item in (keys, bucket, broker)),
                (array_of(members["minute"]), _DAY_MINUTES),
            ]
        )
        order = np.argsort(group)
        starts = np.flatnonzero(begins(group[order]))
        first = order[starts]
        return cls(order, starts, first, place[first], keys)

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum up values of the members, group by group.

        Raises:
            UsageError: Such a sum does not fit 64 bits.
        """
        ordered = values[self.order]
        if len(self.starts) == len(ordered):
            return ordered
        about = np.add.reduceat(np.abs(ordered.astype(np.float64)), self.starts)
        if about.max() >= _MOST:
            message = "The rates of a bucket's members are too large to be added up."
            raise UsageError(message)
        return np.asarray(np.add.reduceat(ordered, self.starts))

    def most(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the largest value of each group."""
        return np.asarray(np.maximum.reduceat(values[self.order], self.starts))

    def names(self, members: pa.Table) -> Integers:
        """Count the different names of each group."""
        users, clients = (Coded.of(members[name]) for name in ("user", "client_id"))
        number = np.zeros(members.num_rows, np.int64)
        number[self.starts] = 1
        number = np.cumsum(number) - 1
        names = packed([(users.codes, len(users)), (clients.codes, len(clients))])[self.order]
        order = np.lexsort((names, number))
        new: Flags = begins(names[order]) | begins(number[order])
        counts: Integers = np.add.reduceat(new.astype(np.int64), self.starts)
        return counts


def sums_of(members: pa.Table, groups: Groups) -> Mapping[str, npt.NDArray[Any]]:
    """Sum up the members of each group."""
    told = {name: groups.sums(array_of(members[name])) for name in (*SUMMED, *COUNTED)}
    return told | {"throttle_ms_max": groups.most(array_of(members["throttle_ms_max"]))}


def combined(members: pa.Table) -> pa.Table:
    """Return one member for all of the same bucket, broker and minute."""
    groups = Groups.of(members)
    sums = sums_of(members, groups)
    first = pa.array(groups.first)
    columns = {
        name: _as(sums[name], members[name].type) if name in sums else members[name].take(first)
        for name in members.column_names
    }
    return pa.table(columns)


def _as(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values).cast(kind)
