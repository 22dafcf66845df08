"""What limits each series in each hour, and the bucket that it spends from.

Names are looked up, never minutes, and each combination of names once: with ``--as-of history`` at
the times, too, at which a quota of theirs changed.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.resolution_levels import Bucket, Slot
from app.pipeline.hashes import SEED, hash_numbers, hash_texts
from app.pipeline.ingest.texts import ranked
from app.pipeline.resolve.levels import (
    BUCKET_TYPES,
    CLIENT_ID_SLOT,
    LEVELS,
    NO_LEVEL,
    USER_SLOT,
    decide_levels,
)
from app.pipeline.resolve.look_up import NAMES, LookUp, Rows
from app.pipeline.tables import DIM_BUCKET, SERIES_LIMIT
from app.pipeline.usage.measures import (
    Numbers,
    begins_of,
    hours_of_epoch,
    ranks_of,
    with_columns,
)

_TAGS: Final = ("bucket_user", "bucket_client")
RESOLVED_DDL: Final = (
    "level tinyint, limit double, bucket_user string, bucket_client string, bucket_id bigint"
)
"""What ``resolve`` adds."""

DECIDED_DDL: Final = (
    "cluster_id string, dt date, hour int, key string, series_id bigint, first_seen timestamp, "
    f"last_seen timestamp, valid_from timestamp, valid_to timestamp, {RESOLVED_DDL}"
)
"""A series in a span of its hour, ``valid_to`` exclusive, and what ``resolve`` adds."""

OF_SERIES: Final = ("cluster_id", "dt", "hour", "key", "series_id", "first_seen", "last_seen")
"""The columns of ``SERIES`` that ``decide`` takes, beside names, and returns."""

_SPAN: Final = ("valid_from", "valid_to")
_OF_BUCKET: Final = ["cluster_id", "dt", "hour", "bucket_id", "key", "level", *_TAGS]
_HOUR_US: Final = 3_600_000_000
_MINUTE_US: Final = 60_000_000
_TIME: Final = pa.timestamp("us", "UTC")


def resolve(callers: pa.Table, look_up: LookUp) -> pa.Table:
    """Add to each caller what limits it; rows in are rows out.

    Callers have cluster_id, key, user, client_id (null counts as ''), and ts unless nothing changes
    in time. Added are level (0 where nothing limits), limit (as stored; null for unlimited),
    bucket_user, bucket_client (the bucket's metric tags, not encoded) and bucket_id.
    """
    names, number = _different(callers)
    has_time = "ts" in callers.column_names
    times = _micros(callers["ts"]) if has_time else np.zeros(len(callers), np.int64)
    added = _answers(names, look_up.rows_of(names), number, times, look_up)
    return with_columns(
        callers, {**added, **{name: added[name].cast(pa.string()) for name in _TAGS}}
    )


def decide(series: pa.Table, look_up: LookUp) -> pa.Table:
    """Find the limit and the bucket of each series in each hour.

    Series have the columns ``OF_SERIES``, user and client_id. The result has the columns of
    ``DECIDED_DDL``, and a row for each series and each time of its hour at which its limit changes.
    """
    names, number = _different(series)
    rows = look_up.rows_of(names)
    begins = hours_of_epoch(series) * _HOUR_US
    ends = begins + _HOUR_US
    of_series = {named: found[number] for named, found in rows.items()}
    changed, times = look_up.changes_within(of_series, begins, ends)
    series = series.select(OF_SERIES)
    if len(changed):
        at, since = np.append(np.arange(len(series)), changed), np.append(begins, times)
        order = np.lexsort((since, at))
        order = order[begins_of(at[order], since[order])]
        at, begins = at[order], since[order]
        series, ends, number = series.take(pa.array(at)), ends[at], number[at]
        goes_on = np.flatnonzero(at[1:] == at[:-1])
        ends[goes_on] = begins[goes_on + 1]
    added = {name: pa.array(us).cast(_TIME) for name, us in zip(_SPAN, (begins, ends), strict=True)}
    return with_columns(series, added | _answers(names, rows, number, begins, look_up))


def _different(callers: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return the different names of callers, each column encoded, and which each caller has."""
    number = np.zeros(len(callers), np.int64)
    encoded = {}
    for name in NAMES:
        encoded[name] = callers[name].fill_null("").combine_chunks().dictionary_encode()
        number *= len(encoded[name].dictionary)
        number += encoded[name].indices.to_numpy()
    number, different = ranked(number)
    columns = {}
    for name, column in reversed(encoded.items()):
        different, codes = np.divmod(different, max(len(column.dictionary), 1))
        columns[name] = pa.DictionaryArray.from_arrays(codes, column.dictionary)
    return pa.table(columns), number


def _answers(
    names: pa.Table, rows: Rows, number: Numbers, times: Numbers, look_up: LookUp
) -> dict[str, pa.Array]:
    """Return the columns of ``RESOLVED_DDL``, tags encoded, for names by their number at times."""
    points = len(look_up.times)
    answer, different = ranked(number * points + look_up.numbers_of(times))
    name, time = np.divmod(different, points)
    names = names.take(pa.array(name))
    rows = {named: found[name] for named, found in rows.items()}
    values, has_value = look_up.find(rows, time)
    texts = {name: names[name].combine_chunks().cast(pa.string()) for name in ("user", "client_id")}
    has_user, has_client_id = (pc.not_equal(text, "").to_numpy(False) for text in texts.values())
    level, types = decide_levels(has_value[[*LEVELS]], has_user, has_client_id, values[NO_LEVEL])
    limits = values[level, np.arange(len(time))]
    user, client_id = (
        pc.if_else(types != BUCKET_TYPES[without], texts[name], "")
        for name, without in (("user", Bucket.CLIENT_ID), ("client_id", Bucket.USER))
    )
    ids = _bucket_ids(names["cluster_id"], names["key"], user, client_id)
    return {
        "level": pa.array(level[answer]),
        "limit": pa.array(limits[answer], mask=level[answer] == NO_LEVEL),
        "bucket_user": pa.DictionaryArray.from_arrays(answer, user),
        "bucket_client": pa.DictionaryArray.from_arrays(answer, client_id),
        "bucket_id": pa.array(ids[answer]),
    }


def _bucket_ids(
    cluster: pa.ChunkedArray, key: pa.ChunkedArray, user: pa.Array, client_id: pa.Array
) -> Numbers:
    """Return what Spark's ``xxhash64`` makes of these columns, the first two encoded."""
    clusters, keys = cluster.combine_chunks(), key.combine_chunks()
    number, of_cluster = len(keys.dictionary), hash_texts(clusters.dictionary)
    each = pa.array(np.tile(np.arange(number), len(of_cluster)))
    hashes = hash_texts(keys.dictionary.take(each), np.repeat(of_cluster, number))
    group = clusters.indices.to_numpy() * number + keys.indices.to_numpy()
    return hash_texts(client_id, hash_texts(user, hashes[group]))


def limits_and_buckets(decided: pa.Table) -> dict[str, pa.Table]:
    """Arrange what ``decide`` returned of all series of hours.

    The result has, by their names, the rows of ``SERIES_LIMIT`` and those of ``DIM_BUCKET``, of
    which a member was seen, in their orders, and what ``REPORTS`` says.
    """
    hour, _ = ranked(ranks_of(decided["cluster_id"]) * 2**32 + hours_of_epoch(decided))
    since, until = (_micros(decided[name]) for name in _SPAN)
    order = np.lexsort((since, decided["series_id"].to_numpy(), hour))
    counts = decided.select(["cluster_id"])
    counts = counts.append_column("unlimited", pc.equal(decided["level"], NO_LEVEL))
    counts = counts.group_by("cluster_id", use_threads=False)
    return {
        SERIES_LIMIT.name: decided.select(SERIES_LIMIT.columns).take(pa.array(order)),
        DIM_BUCKET.name: _buckets_of(decided, hour, since, until),
        "ids": _ids_of(decided),
        "decided": counts.aggregate([([], "count_all"), ("unlimited", "sum")]).rename_columns(
            ["cluster_id", "rows", "unlimited"]
        ),
    }


REPORTS: Final = {
    "ids": "bucket_id bigint, other bigint",
    "decided": "cluster_id string, rows bigint, unlimited bigint",
}
"""Ids of buckets with another hash of the same names; how many rows were decided, and of how many
nothing limits the series.
"""


def _buckets_of(decided: pa.Table, hour: Numbers, since: Numbers, until: Numbers) -> pa.Table:
    """Return who spends from each bucket that is seen, and which entity's quota limits it."""
    first, last = (_micros(decided[name]) for name in ("first_seen", "last_seen"))
    seen = np.flatnonzero((first < until) & (last >= since))
    bucket, ids = ranked(decided["bucket_id"].to_numpy()[seen])
    key = ranks_of(decided["key"])[seen]
    number = (hour[seen] * (key.max(initial=0) + 1) + key) * max(len(ids), 1) + bucket
    number = number * (max(LEVELS) + 1) + decided["level"].to_numpy()[seen]
    order = np.argsort(number)
    begins = begins_of(number[order])
    order = seen[order]
    rows = decided.select(_OF_BUCKET).take(pa.array(order[begins]))
    tags = {name: rows[name].cast(pa.string()) for name in _TAGS}
    times = {
        "first_seen": np.minimum.reduceat(np.maximum(first, since)[order], begins),
        "last_seen": np.maximum.reduceat(np.minimum(last, until - _MINUTE_US)[order], begins),
    }
    seen_at = {name: pa.array(micros).cast(_TIME) for name, micros in times.items()}
    named = with_columns(rows.drop_columns([*_TAGS]), tags | seen_at)
    return name_entities(named).select(DIM_BUCKET.columns)


def _ids_of(decided: pa.Table) -> pa.Table:
    """Return the ids of buckets, each once for each of different names."""
    other = np.full(len(decided), SEED)
    for name in (*_TAGS, "key", "cluster_id"):
        texts = decided[name].combine_chunks().dictionary_encode()
        other = hash_numbers(hash_texts(texts.dictionary)[texts.indices.to_numpy()], other)
    both = pa.table({"bucket_id": decided["bucket_id"], "other": other})
    return both.group_by(both.column_names, use_threads=False).aggregate([])


def doubled_id(ids: pa.Table) -> int | None:
    """Return an id that different buckets have, if any; ``ids`` of several tasks."""
    both = ids.group_by("bucket_id").aggregate([("other", "min"), ("other", "max")])
    doubled = both.filter(pc.field("other_min") != pc.field("other_max"))["bucket_id"]
    found: int | None = pc.min(doubled).as_py()
    return found


def name_entities(buckets: pa.Table, level: str = "level") -> pa.Table:
    """Add to each bucket the entity of a level, from the tags of the bucket.

    Buckets have bucket_user, bucket_client and the level. Added are quota_user, quota_user_default,
    quota_client_id and quota_client_default. Where the level is 0 or null nothing limits, and the
    names are '' and not default, as those of an entity without either type.
    """
    levels = buckets[level].fill_null(NO_LEVEL).to_numpy()
    user, client_id = USER_SLOT[levels], CLIENT_ID_SLOT[levels]
    added = {
        "quota_user": pc.if_else(user == Slot.NAMED, buckets["bucket_user"], ""),
        "quota_user_default": pa.array(user == Slot.DEFAULT),
        "quota_client_id": pc.if_else(client_id == Slot.NAMED, buckets["bucket_client"], ""),
        "quota_client_default": pa.array(client_id == Slot.DEFAULT),
    }
    return with_columns(buckets, added)


def _micros(column: pa.ChunkedArray) -> Numbers:
    micros: Numbers = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return micros
