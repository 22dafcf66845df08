"""Minutes and series of points that are in order: sums of integers, so that order says nothing."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.pipeline.ingest.texts import combined, ranked
from app.pipeline.usage.measures import Numbers, begins_of

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 3_600_000_000
ATTRIBUTES: Final = (RATE, THROTTLE, TOKENS, UP)
CODES: Final = {name: code for code, name in enumerate(ATTRIBUTES)}

MINUTES: Final = 60
_MICRO: Final = 1_000_000
_LOW_BITS: Final = 20
"""Sums are of these and of those above, which 64 bits hold whatever the values and their number."""


class Points(NamedTuple):
    """Points in the order of their groups, which are hour, name and broker, and times.

    ``ts`` are microseconds of the epoch, and ``value`` is NaN for none.
    """

    group: Numbers
    ts: Numbers
    code: Numbers
    value: Numbers

    @property
    def minute(self) -> Numbers:
        """The minute of the hour."""
        return self.ts % HOUR_US // MINUTE_US

    @property
    def has_minute(self) -> Numbers:
        """Of a throttle time that is NaN there is no minute; others say nothing of one."""
        is_throttled = (self.code == CODES[THROTTLE]) & ~np.isnan(self.value)
        has_minute: Numbers = (self.code == CODES[RATE]) | is_throttled
        return has_minute

    @property
    def has_failed(self) -> Numbers:
        """Scrapes that failed: the broker did not report in them."""
        has_failed: Numbers = (self.code == CODES[UP]) & (self.value == 0)
        return has_failed


class Groups(NamedTuple):
    """What is counted of each name on each broker in an hour, in order; minutes are bits.

    Attributes:
        hour: Of the epoch.
        name: Its row among the names.
        broker: Its id.
        rows: All points, whether they are used or not.
        reported: The minutes in which the broker reported anything.
        seen: Those in which there is a rate or a throttle time.
        scraped: Those in which a scrape succeeded.
        first: The time of the first point, microseconds of the epoch.
        last: That of the last one.
    """

    hour: Numbers
    name: Numbers
    broker: Numbers
    rows: Numbers
    reported: Numbers
    seen: Numbers
    scraped: Numbers
    first: Numbers
    last: Numbers

    @classmethod
    def of(cls, points: Points, hour: Numbers, name: Numbers, broker: Numbers) -> "Groups":
        """Count points; hour, name and broker are those of the groups."""
        begins = begins_of(points.group)
        ends = np.append(begins[1:], len(points.group))
        bit = np.int64(1) << points.minute

        def bits(claims: Numbers) -> Numbers:
            return np.bitwise_or.reduceat(np.where(claims, bit, 0), begins)

        return cls(
            *(hour, name, broker),
            rows=ends - begins,
            reported=bits(~points.has_failed),
            seen=bits(points.has_minute),
            scraped=bits((points.code == CODES[UP]) & ~points.has_failed),
            first=points.ts[begins],
            last=points.ts[ends - 1],
        )


def reported_by(groups: Groups, names: pa.RecordBatch) -> tuple[pa.Table, Numbers]:
    """Return what each broker reported in an hour, and the minutes scraped, by group."""
    clusters = names["cluster_id"].dictionary
    (hour, hours), (broker, brokers) = ranked(groups.hour), ranked(groups.broker)
    cluster = names["cluster_id"].indices.to_numpy()[groups.name]
    columns = ((cluster, len(clusters)), (hour, len(hours)), (broker, len(brokers)))
    both, found = combined(*columns)
    order = np.argsort(both, kind="stable")
    begins = begins_of(both[order])

    def bits(minutes: Numbers) -> Numbers:
        return np.bitwise_or.reduceat(minutes[order], begins)

    table = {
        "cluster_id": clusters.take(pa.array(found[0])),
        "broker_id": brokers[found[2]],
        "hour_number": hours[found[1]],
        "rows": np.add.reduceat(groups.rows[order], begins),
        "has_rates": bits(groups.seen) != 0,
        "minutes": np.bitwise_count(bits(groups.reported)),
        "first": np.minimum.reduceat(groups.first[order], begins),
        "last": np.maximum.reduceat(groups.last[order], begins),
    }
    return pa.table(table), bits(groups.scraped)[both]


def series_of(groups: Groups, names: pa.RecordBatch, same: Mapping[str, str]) -> pa.Table:
    """Return the columns of ``SERIES`` of the names that have minutes; all have the ``same``."""
    own = np.flatnonzero(groups.seen)
    hour, name = groups.hour[own], groups.name[own]
    begins = begins_of(hour, name)
    first = _reduced(np.minimum, groups.first[own], begins)
    last = _reduced(np.maximum, groups.last[own], begins)
    zeros = pa.array(np.zeros(len(begins), np.int32))
    return pa.table(
        {
            **_named(names, name[begins], hour[begins]),
            "first_seen": _time(first - first % MINUTE_US),
            "last_seen": _time(last - last % MINUTE_US),
            **{name: pa.DictionaryArray.from_arrays(zeros, [text]) for name, text in same.items()},
        }
    )


def sum_minutes(used: Points, groups: Groups, scraped: Numbers, names: pa.RecordBatch) -> pa.Table:
    """Return the columns of ``RATE_MINUTE``."""
    has_minute = used.has_minute
    group, minute = used.group[has_minute], used.minute[has_minute]
    value, is_rate = used.value[has_minute], used.code[has_minute] == CODES[RATE]
    begins = begins_of(group, minute)
    micros = np.floor(value * _MICRO + 0.5).astype(np.int64)
    samples, *rates = _sums(micros, is_rate, begins)
    _, *throttles = _sums(micros, ~is_rate, begins)
    group, minute = group[begins], minute[begins]
    # A minute without a rate has a throttle time.
    measured = [*(np.where(samples > 0, each, 0.0) for each in rates), *throttles, samples]
    idle = np.where(groups.seen != 0, scraped & ~groups.seen, 0)
    if idle.any():
        more = [np.flatnonzero(idle >> number & 1) for number in range(MINUTES)]
        group = np.concatenate([group, *more])
        minute = np.append(minute, np.repeat(np.arange(MINUTES), [*map(len, more)]))
        nothing = len(group) - len(samples)
        measured = [
            np.append(each, np.full(nothing, fill))
            for each, fill in zip(measured, (0.0, 0.0, np.nan, np.nan, 0), strict=True)
        ]
        order = np.lexsort((minute, group))
        group, minute, *measured = (each[order] for each in (group, minute, *measured))
    hour = groups.hour[group]
    rate_avg, rate_max, throttle_avg, throttle_max, samples = measured
    return pa.table(
        {
            **_named(names.select(["cluster_id", "series_id"]), groups.name[group], hour),
            "broker_id": groups.broker[group],
            "ts": _time(hour * HOUR_US + minute * MINUTE_US),
            "rate_avg": rate_avg,
            "rate_max": rate_max,
            "throttle_ms_avg": pa.array(throttle_avg, from_pandas=True),
            "throttle_ms_max": pa.array(throttle_max, from_pandas=True),
            "samples": samples,
        }
    )


def _named(names: pa.RecordBatch, name: Numbers, hour: Numbers) -> dict[str, pa.Array]:
    """Return the columns of names, and of the days and hours of rows."""
    own = names.take(pa.array(name))
    day = pa.array((hour // 24).astype(np.int32)).cast(pa.date32())
    return {**dict(zip(own.schema.names, own.columns, strict=True)), "dt": day, "hour": hour % 24}


def _reduced(function: np.ufunc, column: Numbers, begins: Numbers) -> Numbers:
    """Reduce runs; there may be none."""
    reduced: Numbers = function.reduceat(column, begins) if len(begins) else column
    return reduced


def _time(micros: Numbers) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))


def _sums(micros: Numbers, is_own: Numbers, begins: Numbers) -> tuple[Any, Any, Any]:
    """Return of each run how many values are its own, their mean, a half rounded up, and maximum.

    Where there are none, both are NaN.
    """
    if not len(begins):
        return begins, begins * np.nan, begins * np.nan
    n = np.add.reduceat(is_own.astype(np.int64), begins)
    own = np.where(is_own, micros, 0)
    high = np.add.reduceat(own >> _LOW_BITS, begins)
    low = np.add.reduceat(own & 2**_LOW_BITS - 1, begins)
    most = np.maximum.reduceat(own, begins)
    by = np.maximum(n, 1)
    whole, rest = np.divmod(high, by)
    mean = (whole << _LOW_BITS) + ((rest << _LOW_BITS) + low + by // 2) // by
    mean, most = (np.where(n > 0, each / _MICRO, np.nan) for each in (mean, most))
    return n, mean, most
