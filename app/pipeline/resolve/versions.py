"""Quota versions as resolution needs them: the level of the entity, and when each holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.resolution_levels import Slot
from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.errors import UsageError
from app.pipeline.hashes import hash_texts
from app.pipeline.lake import Lake
from app.pipeline.resolve.levels import level_of_slots
from app.pipeline.tables import QUOTA_VERSION
from app.pipeline.usage.measures import Numbers, begins_of

ALWAYS: Final = datetime(1900, 1, 1, tzinfo=UTC)
"""The time from which a value holds that has no recorded beginning."""

FOREVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The time until which a value holds that has no end."""

ALWAYS_US, FOREVER_US = (
    pa.scalar(time, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    for time in (ALWAYS, FOREVER)
)
"""Both in microseconds."""

_COLUMNS: Final = (
    *("cluster_id", "user", "user_default", "client_id", "client_default"),
    *("key", "value", "valid_from", "valid_to", "origin"),
)


def read_versions(quotas: Lake, cluster: str | None = None) -> pa.Table:
    """Return the columns of ``quota_version`` that decide, of one cluster or of all.

    Raises:
        UsageError: There is no such table.
    """
    quotas.require(QUOTA_VERSION)
    wanted = [{"cluster_id": cluster}] if cluster else None
    return columns_of([quotas], Columns(QUOTA_VERSION, _COLUMNS), wanted)


class Texts(NamedTuple):
    """The texts in versions of quotas: elsewhere they are numbers, the indices in here."""

    clusters: pa.Array
    keys: pa.Array
    users: pa.Array
    client_ids: pa.Array

    @property
    def no_user(self) -> int:
        """The number of the user where an entity names none."""
        return len(self.users)

    @property
    def no_client_id(self) -> int:
        """The same of the client-id."""
        return len(self.client_ids)

    def number(self, group: Numbers, user: Numbers | int, client_id: Numbers | int) -> Numbers:
        """Return one number for names in a group (``cluster * len(keys) + key``)."""
        names: Numbers = (group * (self.no_user + 1) + user) * (self.no_client_id + 1) + client_id
        return names

    def group_of(self, names: Numbers) -> Numbers:
        """Return the group of what ``number`` returned."""
        group: Numbers = names // ((self.no_user + 1) * (self.no_client_id + 1))
        return group


@dataclass(frozen=True, slots=True)
class Versions:
    """Which value held when; a row for each, by names, level and time.

    ``names`` are numbers of ``texts``: of an entity with its cluster and key. Levels are 1 to 8,
    times microseconds of the epoch; ``until`` is exclusive.
    """

    texts: Texts
    names: Numbers
    level: Numbers
    value: Numbers
    since: Numbers
    until: Numbers

    @classmethod
    def latest(cls, rows: pa.Table) -> Self:
        """Return the values of ``quota_version`` that hold now, as if they had always held.

        Raises:
            UsageError: An entity has two values of a key, so that an observation would count twice.
        """
        now = rows.filter(pc.field("valid_to").is_null() & pc.field("value").is_valid())
        always, forever = (np.full(len(now), time) for time in (ALWAYS_US, FOREVER_US))
        return cls._of(now, always, forever)

    @classmethod
    def in_history(cls, rows: pa.Table) -> Self:
        """Return which value of ``quota_version`` held when.

        Where a snapshot saw the entity first, its values hold from the beginning of time; an entity
        whose creation is in the log had none before.

        Raises:
            UsageError: Two values of a key of an entity hold at the same time.
        """
        is_held = pc.field("valid_to").is_null() | (pc.field("valid_from") < pc.field("valid_to"))
        held = rows.filter(is_held & pc.field("value").is_valid())
        since, until = (
            held[name].cast(pa.timestamp("us")).cast(pa.int64()).fill_null(FOREVER_US).to_numpy()
            for name in ("valid_from", "valid_to")
        )
        return cls._of(held, since, until, pc.equal(held["origin"], "snapshot"))

    @classmethod
    def _of(
        cls, rows: pa.Table, since: Numbers, until: Numbers, seen: pa.ChunkedArray | None = None
    ) -> Self:
        cluster, clusters = _numbered(rows["cluster_id"])
        key, keys = _numbered(rows["key"])
        user, users, user_slot = _slots(rows["user"], rows["user_default"])
        client_id, client_ids, client_slot = _slots(rows["client_id"], rows["client_default"])
        texts = Texts(clusters, keys, users, client_ids)
        if len(clusters) * len(keys) * (texts.no_user + 1) * (texts.no_client_id + 1) >= 2**63:
            message = "The quotas have too many different names for one run: name a --cluster."
            raise UsageError(message)
        level = level_of_slots(user_slot, client_slot)
        if seen is not None:
            since = _begun(texts.number(cluster, user, client_id), level, since, seen)
        names = texts.number(cluster * len(keys) + key, user, client_id)
        order = np.lexsort((until, since, level, names))
        order = order[level[order] > 0]
        versions = cls(texts, names, level, rows["value"].to_numpy(), since, until).take(order)
        same = (np.diff(versions.names) == 0) & (np.diff(versions.level) == 0)
        overlaps = np.flatnonzero(same & (versions.since[1:] < versions.until[:-1]))
        if len(overlaps):
            later = order[overlaps[0] + 1]
            raise _refusal(rows.slice(later, 1).to_pylist()[0], level[later], since[later])
        return versions

    def take(self, chosen: Numbers) -> Self:
        """Return some of them."""
        columns = (self.names, self.level, self.value, self.since, self.until)
        return type(self)(self.texts, *(column[chosen] for column in columns))

    def divided(self, number: int) -> Iterator[Self]:
        """Yield shares by a hash of the user; what names no user is in each of them."""
        user = self.names // (self.texts.no_client_id + 1) % (self.texts.no_user + 1)
        share = np.append(hash_texts(self.texts.users) % number, -1)[user]
        return (self.take((share < 0) | (share == each)) for each in range(number))


def _refusal(row: Mapping[str, Any], level: int, since: int) -> UsageError:
    at = (
        "the same time" if since == ALWAYS_US else pa.scalar(int(since), pa.timestamp("us")).as_py()
    )
    return UsageError(
        f"The quota versions of cluster {row['cluster_id']!r}, level {level}, user "
        f"{row['user'] or ''!r}, client-id {row['client_id'] or ''!r} overlap: two values of "
        f"{row['key']} hold at {at}. Give --quotas a folder in which each value ends before the "
        "next one begins."
    )


def _numbered(column: pa.ChunkedArray) -> tuple[Numbers, pa.Array]:
    """Return the number of each text, and the texts."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def _slots(names: pa.ChunkedArray, default: pa.ChunkedArray) -> tuple[Numbers, pa.Array, Numbers]:
    """Return the number of each name, the names, and the slots."""
    numbers, texts = _numbered(names.fill_null(""))
    is_named = pc.not_equal(names, "").fill_null(False).to_numpy()
    is_default = default.fill_null(False).to_numpy()
    slots = np.select([is_default, is_named], [Slot.DEFAULT, Slot.NAMED], Slot.ABSENT)
    return np.where(slots == Slot.NAMED, numbers, len(texts)), texts, slots


def _begun(names: Numbers, level: Numbers, since: Numbers, seen: pa.ChunkedArray) -> Numbers:
    """Let values of entities that a snapshot saw first begin before all times."""
    order = np.lexsort((since, level, names))
    begins = begins_of(names[order], level[order])
    first = np.repeat(since[order][begins], np.diff(np.append(begins, len(order))))
    is_first = np.empty(len(order), bool)
    is_first[order] = since[order] == first
    return np.where(is_first & seen.fill_null(False).to_numpy(), ALWAYS_US, since)
