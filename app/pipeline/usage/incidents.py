"""The stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Tasks read the hours of days and return the few minutes that violate; the rest is done with columns
in the driver: forty bytes for each of these minutes, of which a thirtieth of all minutes are.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.usage.measures import (
    Numbers,
    begins_of,
    bit_length,
    ends_of,
    hours_of_epoch,
    ranks_of,
    with_columns,
)

HOUR_COLUMNS: Final = (
    *("cluster_id", "dt", "hour", "key", "bucket_id", "broker_id", "present", "violations"),
)
"""Of ``BUCKET_HOUR``, which ``violating_minutes`` takes."""

VIOLATIONS: Final = """cluster_id string, key string, bucket_id bigint, broker_id int, ts bigint,
    level tinyint, ratio double, throttle_ms double, deferred bigint"""
"""Minutes that violate, ``ts`` in minutes of the epoch; a ``key`` of null is a cluster's last."""

_ON_BROKER: Final = ("cluster_id", "key", "bucket_id", "broker_id")
_DAY: Final = 1440
_TIME_BITS: Final = 32
_MINUTE_US: Final = 60_000_000


def violating_minutes(hours: pa.Table) -> pa.Table:
    """Return ``VIOLATIONS`` of the ``HOUR_COLUMNS`` of a cluster's day."""
    hour = hours_of_epoch(hours) * 60
    last = (hour + bit_length(hours["present"].to_numpy()) - 1).max(initial=0)
    found = hours["violations"].combine_chunks()
    of = pc.list_parent_indices(found)
    minute, *measures = found.flatten().flatten()
    ts = pa.array(hour[of.to_numpy()] + minute.to_numpy())
    columns = [*hours.select(_ON_BROKER).take(of).columns, ts, *measures]
    names = [*_ON_BROKER, "ts", "level", "ratio", "throttle_ms", "deferred"]
    violating = pa.table(dict(zip(names, columns, strict=True)))
    ends = pa.table({"cluster_id": hours["cluster_id"].slice(0, 1), "ts": [last][: len(hours)]})
    return pa.concat_tables([violating, ends], promote_options="default")


def last_minutes(violating: pa.Table) -> dict[tuple[str, int], int]:
    """Return the last minute in ``VIOLATIONS`` of each cluster and day of the epoch."""
    ends = violating.filter(violating["key"].is_null())
    names, times = ends["cluster_id"].to_pylist(), ends["ts"].to_pylist()
    return {(name, time // _DAY): time for name, time in sorted(zip(names, times, strict=True))}


def find_stretches(violating: pa.Table, gap: int) -> pa.Table:
    """Find the stretches of violating minutes: throttled, or with a maximum above the limit.

    Minutes of ``VIOLATIONS`` whose starts are at most ``gap`` minutes apart are joined. The columns
    are those of ``THROTTLE_INCIDENT`` that follow from them, by bucket, broker and start.
    ``level`` is that of the last minute; ``throttle_ms_p95`` is over the minutes with recorded
    throttling, null without any; ``dt`` is the day of the start, ``brokers_affected`` how many
    brokers have a stretch of the bucket at the same time.
    """
    minutes = violating.filter(violating["key"].is_valid())
    columns = [minutes[name].to_numpy() for name in ("ts", "broker_id", "bucket_id")]
    columns.append(ranks_of(minutes["cluster_id"]))
    order = np.lexsort(columns)
    minutes = minutes.take(order).combine_chunks()
    ts, *bucket_on_broker = (column[order] for column in columns)
    pauses = np.cumsum(np.diff(ts, prepend=ts[:1]) > gap)
    begins = begins_of(pauses, *bucket_on_broker)
    counts = np.diff(np.append(begins, len(ts)))
    lasts = begins + counts - 1
    starts, ends = ts[begins], ts[lasts] + 1
    numbers = [column[begins] for column in bucket_on_broker]
    deferred = minutes["deferred"]
    named = minutes.select(_ON_BROKER).take(begins)
    return with_columns(
        named,
        {
            "dt": pa.array(starts // _DAY, pa.int32()).cast(pa.date32()),
            "incident_id": _incident_ids(named, starts),
            "level": minutes["level"].take(lasts),
            "start": _times(starts),
            "end": _times(ends),
            "minutes": counts,
            "peak_ratio": np.fmax.reduceat(minutes["ratio"].to_numpy(), begins),
            "throttle_ms_p95": _p95(minutes["throttle_ms"].to_numpy(), begins, counts),
            "est_deferred_bytes": pa.array(
                np.add.reduceat(pc.fill_null(deferred, 0).to_numpy(), begins),
                # Of a key that counts no bytes all are null.
                mask=deferred.is_null().take(begins).to_numpy(),
            ),
            "brokers_affected": _brokers_affected(numbers, starts, ends),
        },
    )


def _times(minutes: Numbers) -> pa.Array:
    return pa.array(minutes * _MINUTE_US).cast(pa.timestamp("us", "UTC"))


def _incident_ids(named: pa.Table, starts: Numbers) -> pa.Array:
    """Hash bucket, broker and start, in a form that any language can compute."""
    columns = (named[name].to_pylist() for name in ("cluster_id", "bucket_id", "broker_id"))
    hashes = (
        hashlib.sha256(f"{cluster}|{bucket}|{broker}|{start}".encode()).hexdigest()[:32]
        for cluster, bucket, broker, start in zip(*columns, (starts * 60).tolist(), strict=True)
    )
    return pa.array(hashes, pa.string())


def _p95(values: Numbers, begins: Numbers, counts: Numbers) -> Numbers:
    """Return the value of rank ceil(0.95 x n) of each run; NaN of a run that has none."""
    # NaN, which is none, is the last in its run.
    ordered = values[np.lexsort([values, np.repeat(begins, counts)])]
    number = np.add.reduceat(~np.isnan(values), begins, dtype=np.int64)
    # In integers: 0.95 is no binary fraction.
    found: Numbers = ordered[begins + np.maximum((95 * number + 99) // 100 - 1, 0)]
    return found


def _brokers_affected(numbers: list[Numbers], starts: Numbers, ends: Numbers) -> Numbers:
    """Count the brokers that have a stretch of the same bucket at the same time.

    ``numbers`` are the broker, and then what tells buckets apart, of stretches in order; ends are
    exclusive.
    """
    rows = np.arange(len(starts))
    buckets = begins_of(*numbers[1:])
    bucket = np.searchsorted(buckets, rows, "right") - 1
    broker = np.searchsorted(begins_of(*numbers), rows, "right")
    other, last = (broker[at][bucket] for at in (buckets, ends_of(buckets, len(rows))))
    of_starts, of_ends = ((broker << _TIME_BITS) + each for each in (starts, ends))
    count = np.zeros(len(rows), int)
    while len(at := np.flatnonzero(other <= last)):
        begun = np.searchsorted(of_starts, (other[at] << _TIME_BITS) + ends[at])
        ended = np.searchsorted(of_ends, (other[at] << _TIME_BITS) + starts[at], "right")
        count[at] += begun > ended
        other[at] += 1
    return count


def status_of(stretches: pa.Table, last: Mapping[tuple[str, int], int]) -> pa.Array:
    """Say which stretches go on: those that end with the last minute that their cluster has."""
    of_cluster: dict[str, int] = {}
    for (cluster, _), time in last.items():
        of_cluster[cluster] = max(time, of_cluster.get(cluster, 0))
    own = [of_cluster[cluster] for cluster in stretches["cluster_id"].to_pylist()]
    return pc.if_else(pc.greater(stretches["end"], _times(np.array(own, int))), "open", "closed")


LIMITED: Final = ("cluster_id", "bucket_id", "level")
"""What names the entity whose quota limits."""

QUOTA_COLUMNS: Final = (
    *(*LIMITED, "last_seen"),
    *("quota_user", "quota_user_default", "quota_client_id", "quota_client_default"),
)
"""Of ``DIM_BUCKET``."""


def latest_quotas(buckets: pa.Table, bucket_ids: pa.Array) -> pa.Table:
    """Return the last quota of each of some buckets: of ``QUOTA_COLUMNS`` of several hours."""
    # Bucket and level name one entity; the last seen wins should they ever not.
    own = buckets.filter(pc.is_in(buckets["bucket_id"], bucket_ids))
    own = own.sort_by([(name, "ascending", "at_start") for name in QUOTA_COLUMNS])
    ranks = ranks_of(own["cluster_id"])
    begins = begins_of(ranks, *(own[name].to_numpy() for name in LIMITED[1:]))
    return own.take(ends_of(begins, len(own)))


PAIR: Final = "pair"
"""The grain of series that tell user and client-id apart."""

CONTRIBUTORS: Final = "incident_id string, first_contributors string"
_MOST_CONTRIBUTORS: Final = 5


def contributors_of(
    begun: pa.Table, rates: pa.Table, series: pa.Table, limits: pa.Table
) -> pa.Table:
    """Return ``CONTRIBUTORS``: who had the highest rates in the first minute of an incident.

    At most five, as a JSON list of ``{"user", "client-id", "rate_max"}`` in falling order. An
    incident is left out where no series tells user and client-id apart.

    Args:
        begun: incident_id, bucket_id, broker_id and start of those that begin in an hour.
        rates: series_id, broker_id, ts and rate_max of the hour's ``RATE_MINUTE``.
        series: series_id, grain, user and client_id of its ``SERIES``.
        limits: series_id, valid_from, valid_to and bucket_id of its ``SERIES_LIMIT``.
    """
    pairs = series.filter(pc.equal(series["grain"], PAIR))
    own = limits.filter(pc.is_in(limits["bucket_id"], begun["bucket_id"].combine_chunks()))
    first = rates.filter(pc.is_in(rates["ts"], begun["start"].combine_chunks()))
    loads = _joined(_joined(first, own, "series_id"), pairs, "series_id")
    is_valid = pc.and_(
        pc.less_equal(loads["valid_from"], loads["ts"]), pc.less(loads["ts"], loads["valid_to"])
    )
    begun = begun.rename_columns({"start": "ts"})
    loads = _joined(loads.filter(is_valid), begun, "bucket_id", "broker_id", "ts")
    falling = ("incident_id", "ascending"), ("rate_max", "descending")
    loads = loads.sort_by([*falling, ("user", "ascending"), ("client_id", "ascending")])
    columns = (loads[name].to_pylist() for name in ("incident_id", "user", "client_id", "rate_max"))
    texts: dict[str, list[str]] = {}
    for incident, *load in zip(*columns, strict=True):
        of_incident = texts.setdefault(incident, [])
        if len(of_incident) < _MOST_CONTRIBUTORS:
            of_incident.append(_load(*load))
    lists = [f"[{','.join(each)}]" for each in texts.values()]
    arrays = [pa.array(each, pa.string()) for each in ([*texts], lists)]
    return pa.table(arrays, ["incident_id", "first_contributors"])


def _joined(rows: pa.Table, others: pa.Table, *keys: str) -> pa.Table:
    return rows.join(others, [*keys], join_type="inner", use_threads=False)


def _load(user: str, client_id: str, rate_max: float) -> str:
    """Return a contributor as JSON, as Spark's ``to_json`` writes it."""
    number = repr(rate_max)
    if rate_max and not 1e-3 <= rate_max < 1e7:
        # As ``Double.toString`` of Java: 1.23456789E7.
        number = np.format_float_scientific(rate_max, trim="0", exp_digits=1)
        number = number.upper().replace("+", "")
    names = (f'"{name.translate(_ESCAPED)}"' for name in (user, client_id))
    return '{{"user":{},"client-id":{},"rate_max":{}}}'.format(*names, number)


_ESCAPED: Final = {
    **{number: f"\\u{number:04X}" for number in range(32)},
    **{ord(text): f"\\{name}" for text, name in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)},
}
"""As Jackson escapes it."""
