"""What is stored for the names of callers, as sorted numbers that tasks search.

A pair of names with its cluster and key is one number, and so is a row of such names at a time.
What is stored at a level is found by binary search, at any time: today's quotas are a history
without a change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.resolve.levels import (
    BUCKET_TYPES,
    LEVELS,
    LEVELS_BY_NAMES,
    NO_LEVEL,
    NO_NAMES,
    SEVERAL_TYPES,
    TYPE_OF_LEVEL,
    Names,
)
from app.pipeline.resolve.versions import ALWAYS_US, FOREVER_US, Texts, Versions
from app.pipeline.usage.measures import Numbers, begins_of

Rows = Mapping[Names, Numbers]
"""By what is named the row of each caller in a look-up, or -1."""

_NOTHING: Final = -1
NAMES: Final = ("cluster_id", "key", "user", "client_id")
"""What is looked up of a caller."""


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a level: from when to when each holds, as rows at a time, in order."""

    begins: Numbers
    ends: Numbers
    values: Numbers

    def find(self, points: Numbers) -> tuple[Numbers, Numbers]:
        """Return what holds at rows at a time, and whether anything does."""
        last = np.searchsorted(self.begins, points, "right") - 1
        # Of another row it has ended; before the first there is the last one, which has not begun.
        is_held = (self.begins[last] <= points) & (points < self.ends[last])
        return self.values[last], is_held

    def changes(self) -> Numbers:
        """Return the rows at a time where the value changes, unordered."""
        values = self.values
        goes_on = np.append(self.ends[:-1] == self.begins[1:], False)
        is_same = (values[:-1] == values[1:]) | (np.isnan(values[:-1]) & np.isnan(values[1:]))
        is_new = np.append(True, ~(goes_on[:-1] & is_same))
        return np.concatenate((self.begins[is_new], self.ends[~goes_on]))


@dataclass(frozen=True, slots=True)
class LookUp:
    """What is stored for each pair of names, and when.

    Attributes:
        texts: What the names are numbers of.
        times: At which any version begins or ends, in microseconds, in order.
        names: Those that have a row, in order: of each entity, and none for each cluster and key.
        levels: The values of each level, and at ``NO_LEVEL`` the only type that the rules of a
            cluster and key have.
        changes: Rows at a time where anything changes that is found, in order.
    """

    texts: Texts
    times: Numbers
    names: pa.Array
    levels: Mapping[int, _Values]
    changes: Numbers

    @classmethod
    def of(cls, versions: Versions, types: "_Types | None" = None) -> Self:
        """Arrange versions, or a share of them with the types of all; null where these are all."""
        texts = versions.texts
        times, group, time, single = types or _types_of(versions)
        without = texts.number(group, texts.no_user, texts.no_client_id)
        names = _distinct(versions.names, without)
        row = np.searchsorted(names, versions.names) * len(times)
        begins, ends = (
            row + np.searchsorted(times, time) for time in (versions.since, versions.until)
        )
        points = np.searchsorted(names, without) * len(times) + time
        values = {NO_LEVEL: _Values(points, np.append(points[1:], points[-1:]), single)}
        for level in LEVELS:
            at = np.flatnonzero(versions.level == level)
            values[level] = _Values(begins[at], ends[at], versions.value[at])
        levels = {level: each for level, each in values.items() if len(each.begins)}
        changes = _distinct(*(each.changes() for each in levels.values()), points[:0])
        number = changes % len(times)
        is_within = (number > 0) & (number < len(times) - 1)
        return cls(texts, times, pa.array(names), levels, changes[is_within])

    @classmethod
    def shares(cls, versions: Versions, most: int) -> list[Self]:
        """Divide versions by a hash of their users into look-ups of about so many.

        Versions without a user are in each.
        """
        number = max(1, -(-len(versions.names) // max(most, 1)))
        types = _types_of(versions)
        return [cls.of(each, types) for each in versions.divided(number)]

    def rows_of(self, callers: pa.Table) -> Rows:
        """Find the rows of callers, which have the columns ``NAMES``."""
        numbers = []
        for name, texts in zip(NAMES, self.texts, strict=True):
            column = callers[name].combine_chunks().dictionary_encode()
            found = _indices(column.dictionary, texts)
            numbers.append(found[column.indices.to_numpy()])
        cluster, key, user, client_id = numbers
        group = np.where((cluster < 0) | (key < 0), _NOTHING, cluster * len(self.texts.keys) + key)
        rows = {}
        for by_user, by_client_id in LEVELS_BY_NAMES:
            own = (group >= 0) & (~by_user | (user >= 0)) & (~by_client_id | (client_id >= 0))
            at = np.flatnonzero(own)
            names = self.texts.number(
                group[at],
                user[at] if by_user else self.texts.no_user,
                client_id[at] if by_client_id else self.texts.no_client_id,
            )
            of_names = rows[by_user, by_client_id] = np.full(len(group), _NOTHING)
            of_names[at] = _indices(pa.array(names), self.names)
        return rows

    def changes_within(self, rows: Rows, begins: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
        """Return which callers have a change between two times, and when; maybe twice."""
        callers, times = [np.empty(0, int)], [np.empty(0, int)]
        first, last = self.numbers_of(begins), np.searchsorted(self.times, ends)
        for found in rows.values() if len(self.changes) else ():
            at = np.flatnonzero(found >= 0)
            low, high = (found[at] * len(self.times) + time[at] for time in (first, last))
            begin = np.searchsorted(self.changes, low, "right")
            counts = np.maximum(np.searchsorted(self.changes, high) - begin, 0)
            offsets = np.cumsum(counts) - counts
            numbers = np.arange(counts.sum()) + np.repeat(begin - offsets, counts)
            callers.append(np.repeat(at, counts))
            times.append(self.times[self.changes[numbers] % len(self.times)])
        return np.concatenate(callers), np.concatenate(times)

    def find(self, rows: Rows, time: Numbers) -> tuple[Numbers, Numbers]:
        """Return what callers find at each of ``levels`` (rows), and whether anything is stored.

        ``time`` has the number of a time for each caller.
        """
        values = np.zeros((len(LEVELS) + 1, len(time)))
        has_value = np.zeros(values.shape, bool)
        for names, levels in LEVELS_BY_NAMES.items():
            at = np.flatnonzero(rows[names] >= 0)
            # What is in order is found sooner.
            at = at[np.argsort(rows[names][at])]
            points = rows[names][at] * len(self.times) + time[at]
            for level in (*levels, NO_LEVEL) if names == NO_NAMES else levels:
                if level in self.levels:
                    values[level, at], has_value[level, at] = self.levels[level].find(points)
        return values, has_value

    def numbers_of(self, times: Numbers) -> Numbers:
        """Return the numbers of times, between which nothing changes."""
        return np.searchsorted(self.times, times, "right") - 1


_Types = tuple[Numbers, Numbers, Numbers, Numbers]


def _types_of(versions: Versions) -> _Types:
    """Return all times, and of which type the rules of each cluster and key are, and when.

    The latter are the group, the number of a time at which the number of its rules changes, and the
    only type that they have from there on, or ``SEVERAL_TYPES``; in order.
    """
    times = _distinct(versions.since, versions.until, np.array((ALWAYS_US, FOREVER_US)))
    group = versions.texts.group_of(versions.names) * len(times)
    begins, ends = (
        group + np.searchsorted(times, time) for time in (versions.since, versions.until)
    )
    points = _distinct(begins, ends)
    steps = np.zeros((len(BUCKET_TYPES) + 1, len(points)), int)
    types = TYPE_OF_LEVEL[versions.level]
    np.add.at(steps, (types, np.searchsorted(points, begins)), 1)
    np.add.at(steps, (types, np.searchsorted(points, ends)), -1)
    is_there = np.cumsum(steps, axis=1) > 0
    single = np.where(is_there.sum(axis=0) == 1, is_there.argmax(axis=0), SEVERAL_TYPES)
    return times, points // len(times), points % len(times), single.astype(float)


def _indices(values: pa.Array, among: pa.Array) -> Numbers:
    """Return the index of each value in an array, or -1."""
    found = pc.index_in(values, value_set=among).fill_null(_NOTHING)
    indices: Numbers = found.to_numpy().astype(np.int64)
    return indices


def _distinct(*columns: Numbers) -> Numbers:
    """Return the different values of columns, in order; ``np.unique`` takes longer, by hashes."""
    values = np.sort(np.concatenate(columns))
    distinct: Numbers = values[begins_of(values)]
    return distinct
