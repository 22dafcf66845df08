"""The rules of stale values: which do nothing, by the levels and by who was seen.

Rows of values, and of who was seen, have numbers for names: ``key``, ``user`` and ``client``; that
of an empty name, or of one that an entity lacks, is 0.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.idle_values import HIDING, HIDING_CLIENTS, covers
from app.domain.resolution_levels import PRECEDENCE, Slot
from app.domain.stale_quotas import HIDES_CLIENTS, MOST_WINNERS, Cause
from app.pipeline.resolve.levels import CLIENT_ID_SLOT, USER_SLOT
from app.pipeline.usage.measures import Numbers, begins_of

NEVER: Final = np.iinfo(np.int64).min
"""When a client was seen last that never was."""

CAUSES: Final = tuple(Cause)
_NUMBERS: Final = {cause: number for number, cause in enumerate(Cause)}
_NONE: Final = -1

_NAMES: Final = [(name, "i8") for name in ("key", "level", "user", "client")]
STORED: Final = np.dtype([*_NAMES, ("value", "f8")])
"""Values of one cluster."""

SEEN: Final = np.dtype([*_NAMES, ("is_pair", "?"), ("last", "i8")])
"""Users and client-ids that were seen with a key.

``level`` limited them, 0 where nothing did; ``last`` is when they were seen last. Without
``is_pair`` their names are the tags of a metric, and an empty one says nothing.
"""


class Unused(NamedTuple):
    """Values that do nothing.

    Attributes:
        row: Of the values, rising.
        cause: A number of ``CAUSES``.
        about: The row of the value that goes before it or has the same effect, where that is the
            cause; else its own.
        winners: Level, user and client of entities that go before values, and before these the row
            of the value. In order of the rows, then as ``ClientQuotaEntity.sort_key``.
        last: When a client of its names was seen last, ``NEVER`` where that is of no interest.
    """

    row: Numbers
    cause: Numbers
    about: Numbers
    winners: Numbers
    last: Numbers


def find_unused(
    stored: Numbers,
    seen: Numbers,
    sizes: tuple[int, int, int],
    is_absent: Numbers,
    may_be_silent: Numbers,
) -> Unused:
    """Return each value that does nothing once.

    Args:
        stored: Rows of ``STORED``.
        seen: Rows of ``SEEN``.
        sizes: How many keys, users and client-ids there are.
        is_absent: Of each value, whether the inventory lacks its user.
        may_be_silent: Of each value, whether the data are of enough days, and it is not younger:
            else only the levels and the inventory tell.
    """
    index = _Index(stored, sizes)
    hiding, same, is_hidden_for_clients = _by_level(stored, index)
    last, value, winner = _who_was_seen(len(stored), seen, index)
    is_silent = may_be_silent & ~_is_used(stored, seen, index)
    is_default = (USER_SLOT != Slot.NAMED) & (CLIENT_ID_SLOT != Slot.NAMED)
    rows = np.arange(len(stored))
    conditions = {
        Cause.GOES_BEFORE: hiding != _NONE,
        Cause.SAME_EFFECT: (same != _NONE) & ~is_hidden_for_clients,
        Cause.NOT_IN_INVENTORY: is_absent & ~np.isin(stored["user"], seen["user"]),
        Cause.NO_FALLBACK: is_silent & is_default[stored["level"]],
        Cause.NOT_SEEN: is_silent & (last == NEVER),
        Cause.OTHERS_FIRST: is_silent & np.isin(rows, value),
    }
    numbers = [_NUMBERS[cause] for cause in conditions]
    cause = np.select(list(conditions.values()), numbers, _NONE)
    row = np.flatnonzero(cause != _NONE)

    def is_of(*causes: Cause) -> Numbers:
        return np.isin(cause, [_NUMBERS[each] for each in causes])

    is_hidden = is_of(Cause.GOES_BEFORE)
    about = np.select([is_hidden, is_of(Cause.SAME_EFFECT)], [hiding, same], rows)
    is_won = is_of(Cause.NO_FALLBACK, Cause.OTHERS_FIRST)[value]
    hidden = rows[is_hidden]
    others = stored[hiding[hidden]]
    winners = np.concatenate(
        [
            _winners(seen[winner[is_won]], value[is_won]),
            [hidden, *(others[name] for name in ("level", "user", "client"))],
        ],
        axis=1,
    )
    winners = winners[:, np.argsort(winners[0], kind="stable")]
    is_dated = ~is_of(Cause.NOT_IN_INVENTORY, Cause.NOT_SEEN)
    return Unused(row, cause[row], about[row], winners, np.where(is_dated, last, NEVER)[row])


class _Index:
    """Finds values by a number for key, level, and the names that the level names."""

    def __init__(self, stored: Numbers, sizes: tuple[int, int, int]) -> None:
        self._stored = stored
        _, self._users, self._clients = sizes
        self._positions = pa.array(self._position(stored, stored["level"]))

    def _position(self, rows: Numbers, level: Numbers | int) -> Numbers:
        user = np.where((USER_SLOT == Slot.NAMED)[level], rows["user"], 0)
        client = np.where((CLIENT_ID_SLOT == Slot.NAMED)[level], rows["client"], 0)
        of_level = rows["key"] * (len(PRECEDENCE) + 1) + level
        position: Numbers = (of_level * self._users + user) * self._clients + client
        return position

    def rows_at(self, rows: Numbers, level: Numbers | int) -> Numbers:
        """Return the row of the value of a level for each of some names; -1 for none."""
        found = pc.index_in(pa.array(self._position(rows, level)), self._positions)
        numbers: Numbers = found.fill_null(_NONE).to_numpy().astype(np.int64)
        return numbers

    def at_level(self, rows: Numbers, level: int) -> Numbers:
        """Return the value of another level for the names of some values of one level."""
        row, own = PRECEDENCE[level - 1], PRECEDENCE[int(self._stored["level"][rows[0]]) - 1]
        # Nobody in particular has no value of his own.
        if (row.user is Slot.NAMED and own.user is not Slot.NAMED) or (
            row.client_id is Slot.NAMED and own.client_id is not Slot.NAMED
        ):
            return np.full(len(rows), _NONE)
        return self.rows_at(self._stored[rows], level)


def _by_level(stored: Numbers, index: _Index) -> tuple[Numbers, Numbers, Numbers]:
    """Judge values by the levels alone, as ``lint`` does.

    Return the rows of what goes before each for everybody and of what has the same effect, -1 for
    none, and whether something goes before it for all who have a client-id.
    """
    hiding, same = np.full((2, len(stored)), _NONE)
    for_clients = np.zeros(len(stored), bool)
    for row in PRECEDENCE:
        rows = np.flatnonzero(stored["level"] == row.level)
        if not len(rows):
            continue
        for level in HIDING.get(row.level, ()):
            found = index.at_level(rows, level)
            hiding[rows] = np.where(hiding[rows] == _NONE, found, hiding[rows])
        if row.level in HIDING_CLIENTS:
            for_clients[rows] = index.at_level(rows, HIDING_CLIENTS[row.level]) != _NONE
        same[rows] = _same_effect(stored, index, rows)
    return hiding, same, for_clients


def _same_effect(stored: Numbers, index: _Index, rows: Numbers) -> Numbers:
    """Return the next value for all the same connections, where it has the same effect.

    The rows are of one level.
    """
    row = PRECEDENCE[int(stored["level"][rows[0]]) - 1]
    same, is_open = np.full(len(rows), _NONE), np.ones(len(rows), bool)
    for following in PRECEDENCE[row.level :]:
        if not covers(following, row):
            keys = stored["key"][stored["level"] == following.level]
            is_open &= ~np.isin(stored["key"][rows], keys)
            continue
        found = index.at_level(rows, following.level)
        is_next = is_open & (found != _NONE)
        is_same = is_next & (stored["value"][found] == stored["value"][rows])
        if following.bucket is row.bucket:
            same[is_same] = found[is_same]
        is_open &= ~is_next
    return same


def _is_used(stored: Numbers, seen: Numbers, index: _Index) -> Numbers:
    """Tell of each value whether it limited anybody, or may limit who was seen without a name."""
    limited = seen[seen["level"] > 0]
    used = np.isin(np.arange(len(stored)), index.rows_at(limited, limited["level"]))
    # A client-id of its names may be in a user's bucket.
    hidden = seen["key"][~seen["is_pair"] & (seen["client"] == 0)]
    return used | (np.isin(stored["level"], HIDES_CLIENTS) & np.isin(stored["key"], hidden))


def _who_was_seen(number: int, seen: Numbers, index: _Index) -> tuple[Numbers, Numbers, Numbers]:
    """Return when a client of the names of each value was seen last.

    And the rows of values with the rows of who was seen of their names, but limited by others.
    """
    last, won = np.full(number, NEVER), []
    for row in PRECEDENCE:
        may_name = (row.user is Slot.ABSENT) | (seen["user"] != 0)
        may_name &= (row.client_id is Slot.ABSENT) | (seen["client"] != 0)
        found = index.rows_at(seen, row.level)
        at = np.flatnonzero(may_name & (found != _NONE))
        np.maximum.at(last, found[at], seen["last"][at])
        at = at[(seen["level"][at] > 0) & (seen["level"][at] < row.level)]
        won.append(np.stack([found[at], at]))
    value, winner = np.concatenate(won, axis=1)
    return last, value, winner


def _winners(seen: Numbers, value: Numbers) -> Numbers:
    """Return the entities that limited those who were seen, the first ``MOST_WINNERS`` of a value.

    Rows of values come with who was seen.
    """
    level = seen["level"]
    # As ``sort_key``: absent before the default before names.
    ranks = [
        slot + np.where(slot == Slot.NAMED, seen[name], 0)
        for slot, name in ((USER_SLOT[level], "user"), (CLIENT_ID_SLOT[level], "client"))
    ]
    columns = np.stack([value, level, *ranks])[:, np.lexsort((ranks[1], ranks[0], value))]
    columns = columns[:, begins_of(columns[0], *columns[2:])]
    begins = begins_of(columns[0])
    first = np.repeat(begins, np.diff(begins, append=len(columns[0])))
    columns = columns[:, np.arange(len(columns[0])) - first < MOST_WINNERS]
    columns[2:] = np.maximum(columns[2:] - Slot.NAMED, 0)
    return columns
