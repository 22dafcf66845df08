"""Minutes and series of points that are in order: sums of integers, so that order says nothing."""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP
from app.pipeline.ingest.series_names import SeriesNames
from app.pipeline.ingest.texts import pairs
from app.pipeline.usage.measures import Numbers, begins_of

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 3_600_000_000
ATTRIBUTES: Final = (RATE, THROTTLE, TOKENS, UP)
CODES: Final = {name: code for code, name in enumerate(ATTRIBUTES)}

MINUTES: Final = 60
_MICRO: Final = 1_000_000
_LOW_BITS: Final = 20
"""Sums are of these and of those above, which 64 bits hold whatever the values and their number."""


class Provenance(NamedTuple):
    """What all rows of a run have in common."""

    grain: str
    source: str
    run_id: str


class Where(NamedTuple):
    """Which hours, names and brokers the numbers of groups mean.

    Each partition has the number of a cluster and an hour of the epoch; brokers are ids.
    """

    names: SeriesNames
    clusters: Numbers
    hours: Numbers
    brokers: Numbers

    def columns(self, partition: Numbers) -> dict[str, pa.Array]:
        """Return the columns of partitions by their numbers."""
        hours = self.hours[partition]
        clusters = pa.array(self.clusters[partition])
        return {
            "cluster_id": pa.DictionaryArray.from_arrays(clusters, self.names.clusters),
            "dt": pa.array((hours // 24).astype(np.int32)).cast(pa.date32()),
            "hour": pa.array((hours % 24).astype(np.int32)),
        }


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
        with_rate: Points that make minutes.
        ups: Points of ``up``.
        reported: The minutes in which the broker reported anything.
        seen: Those in which there is a rate or a throttle time.
        scraped: Those in which a scrape succeeded.
    """

    partition: Numbers
    name: Numbers
    broker: Numbers
    rows: Numbers
    with_rate: Numbers
    ups: Numbers
    reported: Numbers
    seen: Numbers
    scraped: Numbers
    first: Numbers
    last: Numbers

    @classmethod
    def of(cls, points: Points, partition: Numbers, name: Numbers, broker: Numbers) -> "Groups":
        """Count all points, whether they are used or not."""
        begins = begins_of(points.group)
        ends = np.append(begins[1:], len(points.group))
        bit = np.int64(1) << points.minute
        is_up, has_minute = points.code == CODES[UP], points.has_minute

        def bits(claims: Numbers) -> Numbers:
            return np.bitwise_or.reduceat(np.where(claims, bit, 0), begins)

        return cls(
            partition=partition,
            name=name,
            broker=broker,
            rows=ends - begins,
            with_rate=np.add.reduceat(has_minute.astype(np.int64), begins),
            ups=np.add.reduceat(is_up.astype(np.int64), begins),
            reported=bits(~points.has_failed),
            seen=bits(has_minute),
            scraped=bits(is_up & ~points.has_failed),
            first=points.ts[begins],
            last=points.ts[ends - 1],
        )

    def reported_by(self, where: Where) -> tuple[pa.Table, Numbers]:
        """Return what each broker reported in an hour, and the minutes scraped, by group."""
        both, found = pairs(self.partition, self.broker, len(where.brokers))
        order = np.argsort(both, kind="stable")
        begins = begins_of(both[order])
        partition, broker = np.divmod(found, len(where.brokers))
        minutes = np.bitwise_or.reduceat(self.reported[order], begins)
        scraped = np.bitwise_or.reduceat(self.scraped[order], begins)
        table = pa.table(
            {
                "cluster_id": where.names.clusters.take(pa.array(where.clusters[partition])),
                "broker_id": pa.array(where.brokers[broker].astype(np.int32)),
                "hour_number": pa.array(where.hours[partition].astype(np.int32)),
                "rows": np.add.reduceat(self.rows[order], begins),
                "with_rate": np.add.reduceat(self.with_rate[order], begins),
                "ups": np.add.reduceat(self.ups[order], begins),
                "minutes": np.bitwise_count(minutes).astype(np.int64),
                "first": np.minimum.reduceat(self.first[order], begins),
                "last": np.maximum.reduceat(self.last[order], begins),
            }
        )
        return table, scraped[both]

    def series(self, where: Where, provenance: Provenance) -> pa.Table:
        """Return the columns of ``SERIES`` of the names that have minutes."""
        own = np.flatnonzero(self.seen)
        partition, name = self.partition[own], self.name[own]
        begins = begins_of(partition, name)
        first = _reduced(np.minimum, self.first[own], begins)
        last = _reduced(np.maximum, self.last[own], begins)
        chosen = pa.array(name[begins])
        number = len(begins)
        return pa.table(
            {
                **where.columns(partition[begins]),
                "series_id": where.names.series[name[begins]],
                **{each: column.take(chosen) for each, column in where.names.texts.items()},
                "grain": _same(provenance.grain, number),
                "first_seen": _time(first - first % MINUTE_US),
                "last_seen": _time(last - last % MINUTE_US),
                "source": _same(provenance.source, number),
                "ingest_run_id": _same(provenance.run_id, number),
            }
        )


def sum_minutes(used: Points, groups: Groups, scraped: Numbers, where: Where) -> pa.Table:
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
        more = [(np.flatnonzero(idle >> number & 1), number) for number in range(MINUTES)]
        group = np.concatenate([group, *(found for found, _ in more)])
        minute = np.concatenate([minute, *(np.full(len(found), number) for found, number in more)])
        nothing = len(group) - len(samples)
        fills = (0.0, 0.0, np.nan, np.nan, 0)
        measured = [
            np.append(each, np.full(nothing, fill))
            for each, fill in zip(measured, fills, strict=True)
        ]
        order = np.lexsort((minute, group))
        group, minute, *measured = (each[order] for each in (group, minute, *measured))
    partition = groups.partition[group]
    rate_avg, rate_max, throttle_avg, throttle_max, samples = measured
    return pa.table(
        {
            **where.columns(partition),
            "series_id": where.names.series[groups.name[group]],
            "broker_id": pa.array(where.brokers[groups.broker[group]].astype(np.int32)),
            "ts": _time(where.hours[partition] * HOUR_US + minute * MINUTE_US),
            "rate_avg": rate_avg,
            "rate_max": rate_max,
            "throttle_ms_avg": pa.array(throttle_avg, from_pandas=True),
            "throttle_ms_max": pa.array(throttle_max, from_pandas=True),
            "samples": pa.array(samples.astype(np.int32)),
        }
    )


def _reduced(function: np.ufunc, column: Numbers, begins: Numbers) -> Numbers:
    """Reduce runs; there may be none."""
    reduced: Numbers = function.reduceat(column, begins) if len(begins) else column
    return reduced


def _same(text: str, number: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(number, np.int32)), [text])


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
