"""The rules of stale values: which do nothing, by the levels and by who was seen.

A position is a number that stands for a key, a level and the names that the level names. What goes
before a value, and who was seen with its names, is at positions that follow from its own.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.idle_values import HIDING, HIDING_CLIENTS, covers
from app.domain.resolution_levels import PRECEDENCE, Slot
from app.domain.stale_quotas import HIDES_CLIENTS, MOST_WINNERS, Cause
from app.pipeline.resolve.levels import CLIENT_ID_SLOT, USER_SLOT
from app.pipeline.usage.measures import Numbers, begins_of

_LEVELS: Final = len(PRECEDENCE) + 1
NEVER: Final = np.iinfo(np.int64).min
"""When somebody was seen who was not."""

CAUSES: Final = tuple(Cause)
_NUMBERS: Final = {cause: number for number, cause in enumerate(Cause)}
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """Values of one cluster; names that an entity lacks are 0."""

    key: Numbers
    level: Numbers
    user: Numbers
    client: Numbers
    value: Numbers


@dataclass(frozen=True, slots=True)
class SeenColumns:
    """Users and client-ids that were seen with a key, and the level that limited each.

    Attributes:
        is_pair: Whether both names are real; else they are the tags of a metric, and an empty one
            says nothing.
        level: 0 where nothing limited it.
        last: When it was seen last, a number.
    """

    key: Numbers
    user: Numbers
    client: Numbers
    is_pair: Numbers
    level: Numbers
    last: Numbers


class Winners(NamedTuple):
    """Entities that go before values: the row of each value, the level and names of the entity."""

    row: Numbers
    level: Numbers
    user: Numbers
    client: Numbers


class Unused(NamedTuple):
    """Values that do nothing.

    Attributes:
        row: Of the values, rising.
        cause: A number of ``CAUSES``.
        about: The row of the value that goes before it or has the same effect, where that is the
            cause; else its own.
        winners: In order of the rows, then as ``ClientQuotaEntity.sort_key``.
        last: When a client of its names was seen last, ``NEVER`` where that is of no interest.
    """

    row: Numbers
    cause: Numbers
    about: Numbers
    winners: Winners
    last: Numbers


def find_unused(
    stored: StoredColumns,
    seen: SeenColumns,
    sizes: tuple[int, int, int],
    is_absent: Numbers,
    may_be_silent: Numbers,
) -> Unused:
    """Return each value that does nothing once.

    Args:
        sizes: How many keys, users and client-ids there are.
        is_absent: Of each value, whether the inventory lacks its user.
        may_be_silent: Of each value, whether the data are of enough days, and it is not younger:
            else only the levels and the inventory tell.
    """
    index = _Index(stored, sizes)
    hiding, same, is_hidden_for_clients = _by_level(stored, index)
    traffic = _traffic(stored, seen, index)
    is_silent = may_be_silent & ~traffic.is_effective & ~traffic.is_hidden
    is_default = (USER_SLOT != Slot.NAMED) & (CLIENT_ID_SLOT != Slot.NAMED)
    conditions = {
        Cause.GOES_BEFORE: hiding != _NONE,
        Cause.SAME_EFFECT: (same != _NONE) & ~is_hidden_for_clients,
        Cause.NOT_IN_INVENTORY: is_absent & ~traffic.has_user,
        Cause.NO_FALLBACK: is_silent & is_default[stored.level],
        Cause.NOT_SEEN: is_silent & (traffic.last == NEVER),
        Cause.OTHERS_FIRST: is_silent & traffic.has_winners,
    }
    numbers = [_NUMBERS[cause] for cause in conditions]
    cause = np.select(list(conditions.values()), numbers, _NONE)
    row = np.flatnonzero(cause != _NONE)
    is_hidden, is_same = (
        cause == _NUMBERS[each] for each in (Cause.GOES_BEFORE, Cause.SAME_EFFECT)
    )
    about = np.select([is_hidden, is_same], [hiding, same], np.arange(len(cause)))
    by_traffic = np.isin(cause, [_NUMBERS[Cause.NO_FALLBACK], _NUMBERS[Cause.OTHERS_FIRST]])
    winners = _winners(seen, *traffic.won[:, by_traffic[traffic.won[0]]])
    hidden = np.flatnonzero(is_hidden)
    columns = (stored.level, stored.user, stored.client)
    others = Winners(hidden, *(column[hiding[hidden]] for column in columns))
    both = [np.concatenate(pair) for pair in zip(winners, others, strict=True)]
    order = np.argsort(both[0], kind="stable")
    is_dated = ~np.isin(cause, [_NUMBERS[Cause.NOT_IN_INVENTORY], _NUMBERS[Cause.NOT_SEEN]])
    last = np.where(is_dated, traffic.last, NEVER)
    ordered = Winners(*(column[order] for column in both))
    return Unused(row, cause[row], about[row], ordered, last[row])


class _Index:
    """The values by position; of names 0 stands for an empty or absent name."""

    def __init__(self, stored: StoredColumns, sizes: tuple[int, int, int]) -> None:
        self.keys, self.users, self._clients = sizes
        self._stored = stored
        self._positions = pa.array(
            self.positions(stored.key, stored.level, stored.user, stored.client)
        )

    def positions(self, key: Numbers, level: Numbers, user: Numbers, client: Numbers) -> Numbers:
        """Return the positions of names at levels; a name that the level does not name is 0."""
        named_user = np.where((USER_SLOT == Slot.NAMED)[level], user, 0)
        named_client = np.where((CLIENT_ID_SLOT == Slot.NAMED)[level], client, 0)
        of_level = key * _LEVELS + level
        found: Numbers = (of_level * self.users + named_user) * self._clients + named_client
        return found

    def rows_at(self, positions: Numbers) -> Numbers:
        """Return the row of the value at each position; -1 for none."""
        rows = pc.index_in(pa.array(positions), self._positions)
        found: Numbers = rows.fill_null(_NONE).to_numpy().astype(np.int64)
        return found

    def at_level(self, rows: Numbers, level: int) -> Numbers:
        """Return the value of another level for the names of some values of one level."""
        stored, row = self._stored, PRECEDENCE[level - 1]
        own = PRECEDENCE[int(stored.level[rows[0]]) - 1]
        # Nobody in particular has no value of his own.
        if (row.user is Slot.NAMED and own.user is not Slot.NAMED) or (
            row.client_id is Slot.NAMED and own.client_id is not Slot.NAMED
        ):
            return np.full(len(rows), _NONE)
        levels = np.full(len(rows), level)
        user, client = stored.user[rows], stored.client[rows]
        return self.rows_at(self.positions(stored.key[rows], levels, user, client))


def _by_level(stored: StoredColumns, index: _Index) -> tuple[Numbers, Numbers, Numbers]:
    """Judge values by the levels alone, as ``lint`` does.

    Return the rows of what goes before each for everybody and of what has the same effect, -1 for
    none, and whether something goes before it for all who have a client-id.
    """
    count = len(stored.level)
    hiding, same = np.full(count, _NONE), np.full(count, _NONE)
    for_clients = np.zeros(count, bool)
    is_taken = np.zeros((index.keys, _LEVELS), bool)
    is_taken[stored.key, stored.level] = True
    for row in PRECEDENCE:
        rows = np.flatnonzero(stored.level == row.level)
        if not len(rows):
            continue
        for level in HIDING.get(row.level, ()):
            found = index.at_level(rows, level)
            hiding[rows] = np.where(hiding[rows] == _NONE, found, hiding[rows])
        if row.level in HIDING_CLIENTS:
            for_clients[rows] = index.at_level(rows, HIDING_CLIENTS[row.level]) != _NONE
        same[rows] = _same_effect(stored, index, rows, is_taken)
    return hiding, same, for_clients


def _same_effect(stored: StoredColumns, index: _Index, rows: Numbers, is_taken: Numbers) -> Numbers:
    """Return the next value for all the same connections, where it has the same effect.

    The rows are of one level; ``is_taken`` says by key and level whether there is a value.
    """
    row = PRECEDENCE[int(stored.level[rows[0]]) - 1]
    same, is_open = np.full(len(rows), _NONE), np.ones(len(rows), bool)
    for following in PRECEDENCE[row.level :]:
        has_level = is_open & is_taken[stored.key[rows], following.level]
        if not covers(following, row):
            is_open &= ~has_level
            continue
        found = index.at_level(rows, following.level)
        is_there = has_level & (found != _NONE)
        is_same = is_there & (stored.value[found] == stored.value[rows])
        if following.bucket is row.bucket:
            same[is_same] = found[is_same]
        is_open &= ~is_there
    return same


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Who was seen, of each value.

    Attributes:
        last: When somebody of its names was seen last.
        is_effective: Whether it limited anybody.
        is_hidden: Whether a client-id of its names may be in a user's bucket.
        has_user: Whether its user was seen.
        has_winners: Whether other entities limited those of its names.
        won: Of each of these the value, and the row of who was seen.
    """

    last: Numbers
    is_effective: Numbers
    is_hidden: Numbers
    has_user: Numbers
    has_winners: Numbers
    won: Numbers


def _traffic(stored: StoredColumns, seen: SeenColumns, index: _Index) -> _Traffic:
    count = len(stored.level)
    last = np.full(count, NEVER)
    pairs = []
    for row in PRECEDENCE:
        may_name = (row.user is Slot.ABSENT) | (seen.user != 0)
        may_name &= (row.client_id is Slot.ABSENT) | (seen.client != 0)
        levels = np.full(len(seen.key), row.level)
        found = index.rows_at(index.positions(seen.key, levels, seen.user, seen.client))
        at = np.flatnonzero(may_name & (found != _NONE))
        np.maximum.at(last, found[at], seen.last[at])
        won = at[(seen.level[at] > 0) & (seen.level[at] < row.level)]
        pairs.append(np.stack([found[won], won]))
    effective = np.zeros(count, bool)
    limited = np.flatnonzero(seen.level > 0)
    positions = index.positions(seen.key, seen.level, seen.user, seen.client)
    rows = index.rows_at(positions[limited])
    effective[rows[rows != _NONE]] = True
    hidden = np.zeros(index.keys, bool)
    hidden[seen.key[~seen.is_pair & (seen.client == 0)]] = True
    users = np.zeros(index.users, bool)
    users[seen.user[seen.user != 0]] = True
    won = np.concatenate(pairs, axis=1)
    has_winners = np.zeros(count, bool)
    has_winners[won[0]] = True
    may_be_hidden = np.isin(stored.level, HIDES_CLIENTS) & hidden[stored.key]
    return _Traffic(last, effective, may_be_hidden, users[stored.user], has_winners, won)


def _winners(seen: SeenColumns, value: Numbers, won: Numbers) -> Winners:
    """Return the entities that limited those who were seen, the first ``MOST_WINNERS`` of a value.

    Rows of values come with the rows of who was seen.
    """
    level = seen.level[won].astype(np.int64)
    # As ``sort_key``: absent before the default before names.
    ranks = [
        slot + np.where(slot == Slot.NAMED, name[won], 0)
        for slot, name in ((USER_SLOT[level], seen.user), (CLIENT_ID_SLOT[level], seen.client))
    ]
    order = np.lexsort((ranks[1], ranks[0], value))
    columns = [column[order] for column in (value, level, *ranks)]
    different = begins_of(columns[0], *columns[2:])
    columns = [column[different] for column in columns]
    begins = begins_of(columns[0])
    counts = np.diff(np.append(begins, len(columns[0])))
    is_first = np.arange(len(columns[0])) - np.repeat(begins, counts) < MOST_WINNERS
    value, level, user, client = (column[is_first] for column in columns)
    names = (np.maximum(rank - Slot.NAMED, 0) for rank in (user, client))
    return Winners(value, level, *names)
