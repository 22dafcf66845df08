"""Which buckets an alteration touches, who their members are, and what cannot be known.

Names are looked up, never minutes: under the quotas of now and under those that are proposed, by
the same look-up as ``resolve``.

Metrics of a bucket have its tags alone: of (alice, '') nobody knows which clients of alice are in
it. As long as all of them stay in one bucket, that does not matter. Where they would be split,
nothing is claimed of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.alterations import Quotas
from app.domain.entities import EntityType
from app.domain.idle_values import level_of
from app.domain.plan_impact import ANY_OTHER
from app.domain.resolution_levels import PRECEDENCE
from app.domain.throttling import TOKEN_KEY
from app.pipeline.hashes import SEED, hash_texts
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.series import name_entities, resolve
from app.pipeline.resolve.versions import Versions
from app.pipeline.usage.incidents import PAIR
from app.pipeline.usage.measures import Numbers, begins_of, usable

EXACT, OF_BUCKET, INDETERMINATE = "exact", "bucket", "indeterminate"
_NEVER: Final = len(PRECEDENCE) + 1
"""Behind all levels: of what nothing limits."""

_UNKNOWN: Final = -1
"""A level that is not clear; the limit is NaN, as where there is none."""

_USER, _CLIENT_ID = EntityType.USER.value, EntityType.CLIENT_ID.value
_TAGS: Final = {"user": "bucket_user", "client_id": "bucket_client"}


class Touched(NamedTuple):
    """What an alteration touches.

    Attributes:
        members: ``series_id``, ``bucket_id``, ``in_now`` and ``in_new`` (whether the series spends
            from it), ``limit_now`` and ``limit_new`` (NaN for none) and ``has_tokens``.
        buckets: A row for each: ``bucket_id``, ``key``, its tags, the entity of its new limit,
            levels, limits, ``knows_now`` and ``knows_new`` (whether it is clear what its members
            spend from), and ``fidelity``.
    """

    members: pa.Table
    buckets: pa.Table


def find_touched(
    series: pa.Table, versions: Sequence[pa.Table], quotas: Sequence[Quotas]
) -> Touched:
    """Find the buckets whose limit or members would change.

    Args:
        series: ``cluster_id, series_id, key, user, client_id, grain``, each once, of one cluster
            and of keys that are altered.
        versions: ``quota_version`` of the quotas of now, and of those proposed.
        quotas: The same as values by entity.
    """
    members = _members(_decide(series, versions, quotas))
    columns = ["series_id", "bucket_id", "in_now", "in_new", "limit_now", "limit_new", "has_tokens"]
    return Touched(members.select(columns), _buckets(members))


def _decide(series: pa.Table, versions: Sequence[pa.Table], quotas: Sequence[Quotas]) -> pa.Table:
    """Look up each name under both quotas: what was decided has ``_now`` and ``_new``.

    ``splits`` says that callers of a series would not share a bucket, now or then: its limits are
    not clear, and the tags of its bucket are its own.
    """
    is_empty = {name: _claims(pc.equal(series[name], "")) for name in _TAGS}
    is_sum = _claims(pc.not_equal(series["grain"], PAIR))
    is_open = is_sum & (is_empty["user"] != is_empty["client_id"])
    callers = series
    for name, has_none in is_empty.items():
        # An open name stands for any that is in no quota.
        names = pc.if_else(is_open & has_none, ANY_OTHER, series[name])
        callers = callers.set_column(series.schema.get_field_index(name), name, names)
    now, new = (resolve(callers, LookUp.of(Versions.latest(rows))) for rows in versions)
    limits = [usable(each["limit"].to_numpy()) for each in (now, new)]
    several = [
        # Each of its callers has a bucket of its own.
        ~np.isnan(limit)
        & is_sum
        & np.logical_or(
            *(_claims(pc.not_equal(each[tag], "")) & is_empty[name] for name, tag in _TAGS.items())
        )
        for limit, each in zip(limits, (now, new), strict=True)
    ]
    splits = np.logical_or(*several)
    levels = [each["level"].to_numpy() for each in (now, new)]
    splits[_splitting(series, np.flatnonzero(is_open), levels, quotas)] = True
    hashes: Any = SEED
    for name in ("cluster_id", "key", *_TAGS):
        hashes = hash_texts(series[name].combine_chunks(), hashes)
    columns = {
        "splits": splits,
        "several_now": several[0],
        "is_exact": ~is_sum,
        "bucket_id_now": np.where(splits, hashes, now["bucket_id"].to_numpy()),
        "bucket_id_new": new["bucket_id"],
    }
    for name, tag in _TAGS.items():
        columns[f"{tag}_now"] = pc.if_else(splits, series[name], now[tag])
        columns[f"{tag}_new"] = new[tag]
    for side, level, limit, is_hidden in zip(
        ("now", "new"), levels, limits, (several[0], splits), strict=True
    ):
        columns[f"level_{side}"] = np.where(is_hidden, _UNKNOWN, level)
        columns[f"limit_{side}"] = np.where(is_hidden, np.nan, limit)
    return pa.table({**{name: series[name] for name in series.column_names}, **columns})


def _claims(column: pa.ChunkedArray) -> Numbers:
    claims: Numbers = column.to_numpy()
    return claims


def _splitting(
    series: pa.Table, rows: Numbers, levels: Sequence[Numbers], quotas: Sequence[Quotas]
) -> list[int]:
    """Return those of the open series of whose callers some would leave the bucket they share."""
    names = NamesOfQuotas(*quotas)
    found = series.select(["key", "user", "client_id"]).take(rows).to_pylist()
    both = (level[rows].tolist() for level in levels)
    return [
        row
        for row, of_series, now, new in zip(rows.tolist(), found, *both, strict=True)
        if may_split(names.levels(**of_series), now or _NEVER, new or _NEVER)
    ]


def may_split(levels: Iterable[tuple[int, int]], now: int, new: int) -> bool:
    """Tell whether a name has a quota that goes before that of the others, and had none before.

    Args:
        levels: Of each name the first level with a quota of its own, before and after.
        now: The level that limits the others.
        new: The same, afterwards.
    """
    return any(after < new and before >= now for before, after in levels)


class NamesOfQuotas:
    """The levels of the names in quotas, before and after.

    Of a name beside another one, as etl beside alice, and of names that have a quota whoever is
    beside them: there only the levels matter.
    """

    def __init__(self, before: Quotas, after: Quotas) -> None:
        self._beside: dict[tuple[str, str, str], dict[str, list[int]]] = defaultdict(dict)
        alone: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(dict)
        for side, quotas in enumerate((before, after)):
            for kind, own, name, key, level in _named(quotas):
                named = alone[key, kind] if own is None else self._beside[key, kind, own]
                levels = named.setdefault(name, [_NEVER, _NEVER])
                levels[side] = min(levels[side], level)
        self._alone: dict[tuple[str, str], set[tuple[int, int]]] = {
            of: {(each[0], each[1]) for each in names.values()} for of, names in alone.items()
        }

    def levels(self, key: str, user: str, client_id: str) -> Iterator[tuple[int, int]]:
        """Yield the levels before and after of the names that callers of a series may have."""
        kind, own = (_USER, user) if user else (_CLIENT_ID, client_id)
        yield from ((each[0], each[1]) for each in self._beside.get((key, kind, own), {}).values())
        yield from self._alone.get((key, kind), set())


def _named(quotas: Quotas) -> Iterator[tuple[str, str | None, str, str, int]]:
    """Yield each name in a quota: the other type and its name, the name, the key and the level."""
    for entity, values in quotas.items():
        names = entity.as_dict()
        row = level_of(entity)
        for kind, other in ((_USER, _CLIENT_ID), (_CLIENT_ID, _USER)):
            name = names.get(other)
            if row is not None and name is not None:
                for key in values:
                    yield kind, names.get(kind), name, key, row.level


def _members(decided: pa.Table) -> pa.Table:
    """Return the series of the buckets that are touched, once for each bucket of theirs."""
    splits, now, new, id_now, id_new = (
        decided[name].to_numpy()
        for name in ("splits", "limit_now", "limit_new", "bucket_id_now", "bucket_id_new")
    )
    in_now, in_new, moves = ~np.isnan(now) | splits, ~np.isnan(new), id_now != id_new
    is_same = (now == new) | (np.isnan(now) & np.isnan(new))
    is_touched = splits | ~is_same | (~np.isnan(now) & moves)
    # Twice for one that changes its bucket, or leaves all that limit it.
    of_now, of_new = np.flatnonzero(in_now), np.flatnonzero(in_new & (moves | ~in_now))
    row = np.append(of_now, of_new)
    is_now = np.arange(len(row)) < len(of_now)
    bucket = np.where(is_now, id_now[row], id_new[row])
    is_member = np.isin(bucket, bucket[is_touched[row]])
    row, is_now, bucket = row[is_member], is_now[is_member], bucket[is_member]
    members = decided.take(row)
    own = {"bucket_id": bucket, "in_now": is_now, "in_new": ~is_now | (in_new & ~moves)[row]}
    own["has_tokens"] = pc.equal(members["key"], TOKEN_KEY.value)
    for tag in _TAGS.values():
        own[tag] = pc.if_else(is_now, members[f"{tag}_now"], members[f"{tag}_new"])
    return pa.table({**{name: members[name] for name in members.column_names}, **own})


def _buckets(members: pa.Table) -> pa.Table:
    """Return the buckets that members spend from, now or then, with what is clear of them."""
    members = members.sort_by("bucket_id")
    begins = begins_of(members["bucket_id"].to_numpy())
    splits, several_now, is_exact = (
        members[name].to_numpy() for name in ("splits", "several_now", "is_exact")
    )
    rows = members.select(["bucket_id", "key", *_TAGS.values()]).take(begins)
    splits_any = np.logical_or.reduceat(splits, begins)
    # Who leaves a bucket may come into another one of the same name.
    receives = np.zeros(len(begins), bool)
    for name, tag in _TAGS.items():
        leaving = members.filter(pc.and_(pa.array(splits), pc.not_equal(members[name], "")))
        receives |= _claims(pc.is_in(_texts(rows, tag), _texts(leaving, name)))
    clear = {"now": ~np.logical_or.reduceat(several_now, begins), "new": ~(splits_any | receives)}
    for side, is_clear in clear.items():
        columns = (members[f"{name}_{side}"].to_numpy() for name in ("level", "limit", "in"))
        level, limit, knows = _of_buckets(begins, *columns)
        rows = rows.append_column(f"level_{side}", pa.array(level, mask=level == _UNKNOWN))
        rows = rows.append_column(f"limit_{side}", pa.array(limit, from_pandas=True))
        rows = rows.append_column(f"knows_{side}", pa.array(knows & is_clear))
    fidelity = np.where(np.logical_and.reduceat(is_exact, begins), EXACT, OF_BUCKET)
    fidelity = np.where(splits_any | receives, INDETERMINATE, fidelity)
    return name_entities(rows.append_column("fidelity", pa.array(fidelity)), "level_new")


def _texts(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a text for each key and name; no key has a space."""
    return pc.binary_join_element_wise(rows["key"], rows[name], " ")


def _of_buckets(
    begins: Numbers, level: Numbers, limit: Numbers, is_in: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the level and limit of buckets, and whether it is clear what members spend from.

    They are those of a member that spends from it; without any, those that all members have.
    """
    counts, rows = np.diff(begins, append=len(level)), np.arange(len(level))
    first = np.minimum.reduceat(np.where(is_in, rows, len(rows)), begins)
    is_spent = first < len(rows)
    at = np.where(is_spent, first, begins)
    of_first = np.repeat(begins, counts)
    is_same = level == level[of_first]
    is_same &= (limit == limit[of_first]) | (np.isnan(limit) & np.isnan(limit[of_first]))
    is_clear = is_spent | np.logical_and.reduceat(is_same, begins)
    knows = is_spent | np.logical_and.reduceat(np.isnan(limit), begins)
    return np.where(is_clear, level[at], _UNKNOWN), np.where(is_clear, limit[at], np.nan), knows
