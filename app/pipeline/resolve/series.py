"""What limits each series in each hour, and the bucket that it spends from.

Names are looked up, never minutes: with ``--as-of history`` at the times, too, at which a quota of
theirs changed.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.resolution_levels import Bucket, Slot
from app.pipeline.hashes import hash_texts
from app.pipeline.resolve.levels import (
    BUCKET_TYPES,
    CLIENT_ID_SLOT,
    NO_LEVEL,
    USER_SLOT,
    bucket_type,
    decide_levels,
)
from app.pipeline.resolve.look_up import LookUp, Rows
from app.pipeline.usage.measures import Numbers, begins_of, ranks_of

RESOLVED_DDL: Final = (
    "level tinyint, limit double, bucket_user string, bucket_client string, bucket_id bigint"
)
"""What ``resolve`` adds."""

_COMMON: Final = ["cluster_id", "dt", "hour", "key", "bucket_id", "level"]
_OF_LIMIT: Final = ["series_id", "valid_from", "valid_to", "limit"]
_TAGS: Final = ["bucket_user", "bucket_client"]
_OF_BUCKET: Final = (
    *(*_TAGS, "quota_user", "quota_user_default"),
    *("quota_client_id", "quota_client_default", "first_seen", "last_seen", "rows"),
)
ENTITY_DDL: Final = (
    "quota_user string, quota_user_default boolean, quota_client_id string, "
    "quota_client_default boolean"
)
"""What ``name_entities`` adds."""

FOUND_DDL: Final = """
    cluster_id string, dt date, hour int, key string, bucket_id bigint, level tinyint,
    series_id bigint, valid_from timestamp, valid_to timestamp, limit double,
    bucket struct<bucket_user: string, bucket_client: string, quota_user: string,
    quota_user_default: boolean, quota_client_id: string, quota_client_default: boolean,
    first_seen: timestamp, last_seen: timestamp, rows: bigint>"""
"""A row of ``SERIES_LIMIT`` has no ``bucket``; one of ``DIM_BUCKET`` has nothing between.

``rows`` of the former are of the bucket; it has no times where no member was seen meanwhile.
"""

_NEVER: Final = 2**62
_HOURS: Final = 2**32
_HOUR_US: Final = 3_600_000_000
_MINUTE_US: Final = 60_000_000
_TIME: Final = pa.timestamp("us", "UTC")


def resolve(callers: pa.Table, look_up: LookUp) -> pa.Table:
    """Add to each caller what limits it; rows in are rows out.

    Args:
        callers: Have cluster_id, key, user, client_id (null counts as ''), and ts unless nothing
            changes in time.
        look_up: Of the quotas.

    Returns:
        The same columns with level (0 where nothing limits), limit (as stored; null for unlimited),
        bucket_user, bucket_client (the bucket's metric tags, not encoded) and bucket_id.
    """
    has_time = "ts" in callers.column_names
    times = _micros(callers["ts"]) if has_time else np.zeros(len(callers), np.int64)
    return _resolved(callers, look_up, look_up.rows_of(callers), times)


def decide(series: pa.Table, look_up: LookUp) -> pa.Table:
    """Find the limit and the bucket of each series in each hour.

    Args:
        series: The columns of ``SERIES``.
        look_up: Of the quotas.

    Returns:
        The columns of ``SERIES``, valid_from and valid_to (timestamp, within the hour, the latter
        exclusive), and those that ``resolve`` adds.
    """
    rows = look_up.rows_of(series)
    begins = _hours(series).astype(np.int64) * _HOUR_US
    ends = begins + _HOUR_US
    changed, times = look_up.changes_within(rows, begins, ends)
    if len(changed):
        at, since = np.append(np.arange(len(series)), changed), np.append(begins, times)
        order = np.lexsort((since, at))
        order = order[begins_of(at[order], since[order])]
        at, begins = at[order], since[order]
        series, ends = series.take(at), ends[at]
        rows = {names: found[at] for names, found in rows.items()}
        goes_on = np.flatnonzero(at[1:] == at[:-1])
        ends[goes_on] = begins[goes_on + 1]
    for name, values in (("valid_from", begins), ("valid_to", ends)):
        series = series.append_column(name, pa.array(values).cast(_TIME))
    return _resolved(series, look_up, rows, begins)


def _resolved(callers: pa.Table, look_up: LookUp, rows: Rows, times: Numbers) -> pa.Table:
    values, has_value = look_up.find(rows, times)
    names = {name: callers[name].fill_null("").combine_chunks() for name in ("user", "client_id")}
    has_user, has_client_id = (pc.not_equal(name, "").to_numpy(False) for name in names.values())
    decision = decide_levels(has_value, has_user, has_client_id)
    types = bucket_type(decision, look_up.single_type(rows, times))
    is_limited = decision.level != NO_LEVEL
    limits = values[np.maximum(decision.level, 1) - 1, np.arange(len(times))]
    tags = {
        name: pc.if_else(types != BUCKET_TYPES[without], names[name], "")
        for name, without in (("user", Bucket.CLIENT_ID), ("client_id", Bucket.USER))
    }
    added = {
        "level": decision.level,
        "limit": pa.array(limits, mask=~is_limited),
        "bucket_user": tags["user"],
        "bucket_client": tags["client_id"],
        "bucket_id": _bucket_ids(
            *(callers[name].combine_chunks() for name in ("cluster_id", "key")), *tags.values()
        ),
    }
    for name, column in added.items():
        callers = callers.append_column(name, pa.array(column))
    return callers


def _bucket_ids(cluster: pa.Array, key: pa.Array, user: pa.Array, client_id: pa.Array) -> Numbers:
    """Return what Spark's ``xxhash64`` makes of these columns."""
    clusters, keys = cluster.dictionary_encode(), key.dictionary_encode()
    number, of_cluster = len(keys.dictionary), hash_texts(clusters.dictionary)
    each = pa.array(np.tile(np.arange(number), len(of_cluster)))
    hashes = hash_texts(keys.dictionary.take(each), np.repeat(of_cluster, number))
    group = clusters.indices.to_numpy() * number + keys.indices.to_numpy()
    return hash_texts(client_id, hash_texts(user, hashes[group]))


def limits_and_buckets(decided: pa.Table) -> pa.Table:
    """Return the rows of ``SERIES_LIMIT``, then those of ``DIM_BUCKET``, of whole hours.

    Args:
        decided: As ``decide`` returns it.

    Returns:
        The columns of ``FOUND_DDL``, each kind of rows in its order.
    """
    cluster_hour = ranks_of(decided["cluster_id"]) * _HOURS + _hours(decided)
    order = np.lexsort(
        (_micros(decided["valid_from"]), decided["series_id"].to_numpy(), cluster_hour)
    )
    limits = decided.select([*_COMMON, *_OF_LIMIT]).take(order)
    buckets = _buckets_of(decided, cluster_hour)
    return pa.concat_tables((limits, buckets), promote_options="default")


def _buckets_of(decided: pa.Table, cluster_hour: Numbers) -> pa.Table:
    """Return who spends from each bucket, and which entity's quota limits it."""
    times = ("first_seen", "last_seen", "valid_from", "valid_to")
    first, last, since, until = (_micros(decided[name]) for name in times)
    is_seen = (first < until) & (last >= since)
    columns = (
        decided["level"].to_numpy(),
        decided["bucket_id"].to_numpy(),
        ranks_of(decided["key"]),
    )
    order = np.lexsort((*columns, cluster_hour))
    begins = begins_of(*(column[order] for column in (*columns, cluster_hour)))
    first = np.where(is_seen, np.maximum(first, since), _NEVER)[order]
    last = np.where(is_seen, np.minimum(last, until - _MINUTE_US), -_NEVER)[order]
    rows = name_entities(decided.select([*_COMMON, *_TAGS]).take(order[begins]))
    own = {
        "first_seen": _times(np.minimum.reduceat(first, begins)),
        "last_seen": _times(np.maximum.reduceat(last, begins)),
        "rows": pa.array(np.diff(np.append(begins, len(order)))),
    }
    of_bucket = {
        name: own[name] if name in own else rows[name].combine_chunks() for name in _OF_BUCKET
    }
    bucket = pa.StructArray.from_arrays([*of_bucket.values()], [*of_bucket])
    return rows.select(_COMMON).append_column("bucket", bucket)


def name_entities(buckets: pa.Table, level: str = "level") -> pa.Table:
    """Add to each bucket the entity of a level, from the tags of the bucket.

    Args:
        buckets: Have bucket_user, bucket_client and the level.
        level: The name of its column, where null is 0: nothing limits, and the names are '' and not
            default, as those of an entity without either type.

    Returns:
        The same with the columns of ``ENTITY_DDL``.
    """
    levels = buckets[level].fill_null(NO_LEVEL).to_numpy()
    user, client_id = USER_SLOT[levels], CLIENT_ID_SLOT[levels]
    added = {
        "quota_user": pc.if_else(user == Slot.NAMED, buckets["bucket_user"], ""),
        "quota_user_default": pa.array(user == Slot.DEFAULT),
        "quota_client_id": pc.if_else(client_id == Slot.NAMED, buckets["bucket_client"], ""),
        "quota_client_default": pa.array(client_id == Slot.DEFAULT),
    }
    for name, column in added.items():
        buckets = buckets.append_column(name, column)
    return buckets


def _times(micros: Numbers) -> pa.Array:
    """Return times; null where nobody was seen."""
    return pa.array(micros, mask=np.abs(micros) == _NEVER).cast(_TIME)


def _hours(rows: pa.Table) -> Numbers:
    """Return hours of the epoch."""
    hours: Numbers = rows["dt"].cast(pa.int32()).to_numpy() * 24 + rows["hour"].to_numpy()
    return hours


def _micros(column: pa.ChunkedArray) -> Numbers:
    micros: Numbers = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return micros
