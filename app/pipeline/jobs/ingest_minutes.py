"""Points to minutes, with numpy: what those of a minute sum up to.

Sums are integers of 10^-6 units, so that the order of the points says nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from app.domain.broker_metrics import RATE, THROTTLE
from app.domain.quota_keys import QuotaKey
from app.pipeline.jobs.ingest_judged import DAY_MINUTES, MINUTE_US, Judged
from app.pipeline.sources.codes import Coded, Flags, Integers, begins, packed
from app.pipeline.sources.raw_names import ATTRIBUTES

_MICRO: Final = 1_000_000
_LOW_BITS: Final = 20
_RATE: Final = ATTRIBUTES.index(RATE)
_THROTTLE: Final = ATTRIBUTES.index(THROTTLE)
_BYTE_KEYS: Final = (str(QuotaKey.PRODUCER_BYTE_RATE), str(QuotaKey.CONSUMER_BYTE_RATE))
_NONE: Final = np.iinfo(np.int64).min


def minutes(points: Judged) -> Iterator[tuple[str, int, pa.Table]]:
    """Sum up the points that count, by cluster and day.

    Yields:
        Cluster id, day since the epoch, and the columns of ``OBSERVATION_MINUTE`` that points tell,
        in the order of that table.
    """
    starts = np.flatnonzero(points.begins)
    if not len(starts):
        return
    rate, throttle = (_sums(points, item, starts) for item in (_RATE, _THROTTLE))
    kept = rate["n"] > 0
    rows = starts[kept]
    rate, throttle = (
        {name: item[kept] for name, item in each.items()} for each in (rate, throttle)
    )
    columns = {
        "ts": pa.array(points.minutes[rows] * MINUTE_US, pa.timestamp("us", "UTC")),
        "broker_id": points.names["broker_id"].chosen(rows).encoded().cast(pa.int32()),
        **{
            name: points.names[name].chosen(rows).encoded() for name in ("key", "user", "client_id")
        },
        **_rates(rate, throttle, _is_of_bytes(points.names["key"])[rows]),
    }
    table = pa.table(columns)
    clusters, days = points.names["cluster_id"], points.minutes[rows] // DAY_MINUTES
    place = packed([(clusters.codes[rows], len(clusters)), _numbered(days)])
    cuts = np.flatnonzero(begins(place))
    for begin, end in zip(cuts, np.append(cuts[1:], len(rows)), strict=True):
        name = clusters.values[int(clusters.codes[rows[begin]])].as_py()
        yield name, int(days[begin]), table.slice(begin, end - begin)


def _rates(
    rate: Mapping[str, Integers], throttle: Mapping[str, Integers], of_bytes: Flags
) -> Mapping[str, pa.Array]:
    average = _average(rate)
    # In two parts again: 60 times the integer may not fit.
    per_minute = average // _MICRO * 60 + (average % _MICRO * 60 + _MICRO // 2) // _MICRO
    idle = throttle["n"] == 0
    return {
        "rate_avg": pa.array(average / _MICRO),
        "rate_max": pa.array(rate["max"] / _MICRO),
        "throttle_ms_avg": pa.array(_average(throttle) / _MICRO, mask=idle),
        "throttle_ms_max": pa.array(throttle["max"] / _MICRO, mask=idle),
        "samples": pa.array(rate["n"].astype(np.int32)),
        "bytes_est": pa.array(per_minute, mask=~of_bytes),
    }


def _sums(points: Judged, attribute: int, starts: Integers) -> Mapping[str, Integers]:
    """Sum in two parts, which 64 bits hold whatever the values and their number."""
    used = points.counts & (points.attributes == attribute) & ~np.isnan(points.values)
    micros = np.zeros(len(used), np.int64)
    micros[used] = np.floor(points.values[used] * _MICRO + 0.5).astype(np.int64)
    return {
        "n": np.add.reduceat(used.astype(np.int64), starts),
        "max": np.maximum.reduceat(np.where(used, micros, _NONE), starts),
        "high": np.add.reduceat(micros >> _LOW_BITS, starts),
        "low": np.add.reduceat(micros & ((1 << _LOW_BITS) - 1), starts),
    }


def _average(sums: Mapping[str, Integers]) -> Integers:
    """Return the mean, a half rounded up; 0 without values."""
    n, high, low = np.maximum(sums["n"], 1), sums["high"], sums["low"]
    scale = 1 << _LOW_BITS
    mean: Integers = high // n * scale + (high % n * scale + low + n // 2) // n
    return mean


def _is_of_bytes(keys: Coded) -> Flags:
    return np.array([value in _BYTE_KEYS for value in keys.values.to_pylist()])[keys.codes]


def _numbered(days: Integers) -> tuple[Integers, int]:
    known = Coded.of_integers(days)
    return known.codes, len(known)
