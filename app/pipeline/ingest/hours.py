"""Points to hours: which of them count, what those of a minute sum up to, and who was seen.

A task has all points of its hours, as columns. Sums are integers of 10^-6 units, so that the order
of the points says nothing. Workers have numpy and pyarrow, and not what the driver needs beside.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from app.pipeline.ingest.minutes import (
    CODES,
    HOUR_US,
    MINUTE_US,
    MINUTES,
    Groups,
    Points,
    Provenance,
    Where,
    sum_minutes,
)
from app.pipeline.ingest.points import LEFT_OUT
from app.pipeline.ingest.series_names import SeriesNames
from app.pipeline.ingest.texts import Texts, pairs, ranked
from app.pipeline.tables import RATE_MINUTE, SERIES
from app.pipeline.task_tables import Packing
from app.pipeline.usage.measures import Numbers, begins_of

Batches = Iterable[pa.RecordBatch]
Share = TypeVar("Share")

DUPLICATE: Final = "duplicate"


def sum_hours(
    points: pa.Table, firsts: Sequence[int], provenance: Provenance
) -> Iterator[tuple[str, pa.Table]]:
    """Sum up the points of hours, each point once.

    Of points with the same names and time that of the first input counts, and of one input that
    with the greatest value; where several inputs have the same attribute of the same minute, those
    of the first. A throttle time without a rate in its minute is a minute with rate 0, as is one
    in which the broker was scraped and a name of the hour had no sample: a broker forgets what has
    been idle for an hour.

    ``points`` have the columns of ``POINTS_DDL``, and are all of their hours; ``firsts`` are the
    numbers of the first file of each input.

    Returns:
        Tables by their names, those that have rows: ``SERIES`` and ``RATE_MINUTE``, in order;
        surplus, what does not count: cluster_id, ts (both null where they cannot be read), file,
        line, raw and reason;
        reported, what each broker reported in an hour: cluster_id, broker_id, hour_number (of the
        epoch), rows, with_rate (those of a rate or a throttle time), ups (those of ``up``), minutes
        (how many it reported in), first and last (microseconds of the epoch);
        counted: kind, name and n (rows): refused by reason, left_out, used by attribute, failed
        (scrapes, of which ``up`` was 0), and cluster (what the input names clusters, n is 1).

    Raises:
        UsageError: Two series have the same id, a hash.
    """
    problem = Texts.of(points["problem"])
    times = np.bincount(problem.codes, minlength=len(problem.values)).tolist()
    counted = {
        ("left_out" if name == LEFT_OUT else "refused", f"{name}"): n
        for name, n in zip(problem.values, times, strict=True)
        if name and n
    }
    is_fine = problem.equals("")
    bad = points.filter(pa.array(~is_fine & ~problem.equals(LEFT_OUT)))
    if len(bad):
        columns = {"raw": "text", "reason": "problem"}
        yield "surplus", pa.table({name: bad[columns.get(name, name)] for name in _SURPLUS})
    if is_fine.any():
        fine = points if is_fine.all() else points.filter(pa.array(is_fine))
        yield from _sum_fine(fine, firsts, provenance, counted)
    found = [{"kind": kind, "name": name, "n": n} for (kind, name), n in counted.items()]
    if found:
        yield "counted", pa.Table.from_pylist(found)


_SURPLUS: Final = ("cluster_id", "ts", "file", "line", "raw", "reason")
Counted = dict[tuple[str, str], int]


def _sum_fine(
    fine: pa.Table, firsts: Sequence[int], provenance: Provenance, counted: Counted
) -> Iterator[tuple[str, pa.Table]]:
    counted |= {("cluster", f"{name}"): 1 for name in Texts.of(fine["cluster"]).values if name}
    names, name = SeriesNames.of(fine, provenance.grain)
    ts = fine["ts"].to_numpy()
    hour, hours = ranked(ts // HOUR_US)
    partition, partitions = pairs(names.cluster[name], hour, len(hours))
    broker, brokers = ranked(fine["broker_id"].to_numpy().astype(np.int64))
    # One number for hour and name, one for these and the broker; all are in the order of files.
    both, of_hour = pairs(partition, name, len(names.series))
    group, groups = pairs(both, broker, len(brokers))
    code = Texts.of(fine["attribute"]).look_up(lambda text: CODES.get(f"{text}", -1), np.int64)
    time, all_times = ranked(ts)
    point = (group * len(all_times) + time) * len(CODES) + code
    value = fine["value"].to_numpy()
    order = np.argsort(point)
    is_used = np.ones(len(order), bool)
    if len(begins_of(point[order])) < len(order) or len(firsts) > 1:
        file, line = fine["file"].to_numpy(), fine["line"].fill_null(0).to_numpy()
        source = np.searchsorted(firsts, file, "right")
        order = np.lexsort((line, file, -value, source, point))
        minute = group * MINUTES + ts % HOUR_US // MINUTE_US
        is_used = _are_used(*(each[order] for each in (point, minute, code, source)))
        if not is_used.all():
            counted["refused", DUPLICATE] = int(np.count_nonzero(~is_used))
            yield "surplus", _twice(fine.take(pa.array(order[~is_used])))
    points = Points(*(each[order] for each in (group, ts, code, value)))
    used = Points(*(each[is_used] for each in points))
    for attribute, number in CODES.items():
        if n := int(np.count_nonzero(used.code == number)):
            counted["used", attribute] = n
    counted["failed", ""] = int(np.count_nonzero(used.has_failed))
    former, of_broker = np.divmod(groups, len(brokers))
    found = Groups.of(points, *np.divmod(of_hour[former], len(names.series)), of_broker)
    where = Where(names, partitions // len(hours), hours[partitions % len(hours)], brokers)
    reported, scraped = found.reported_by(where)
    yield "reported", reported
    yield SERIES.name, found.series(where, provenance)
    yield RATE_MINUTE.name, sum_minutes(used, found, scraped, where)


def _are_used(point: Numbers, minute: Numbers, code: Numbers, source: Numbers) -> Numbers:
    """Tell which points count, in the order of points: none twice, and the first input's."""
    is_used = np.zeros(len(point), bool)
    is_used[begins_of(point)] = True
    order = np.lexsort((code, minute))
    begins = begins_of(minute[order], code[order])
    first = np.minimum.reduceat(source[order], begins)
    of_first = np.empty(len(order), bool)
    of_first[order] = source[order] == np.repeat(first, np.diff(np.append(begins, len(order))))
    return is_used & of_first


def _twice(points: pa.Table) -> pa.Table:
    """Return points that were fine but for others, with their columns for their text."""
    names = ("cluster_id", "broker_id", "key", "attribute", "user", "client_id", "value")
    texts = []
    for row in points.select(["ts", *names]).to_pylist():
        time = datetime(1970, 1, 1, tzinfo=UTC) + row.pop("ts") * timedelta.resolution
        stated = {name: value for name, value in row.items() if value is not None}
        text = {"ts": f"{time:%Y-%m-%dT%H:%M:%S.%fZ}", **stated}
        texts.append(json.dumps(text, ensure_ascii=False, separators=(",", ":")))
    named = points.select(["cluster_id", "ts", "file", "line"])
    reason = pa.array([DUPLICATE] * len(points), pa.string())
    return named.append_column("raw", pa.array(texts, pa.string())).append_column("reason", reason)


@dataclass(frozen=True)
class Task:
    """What tasks do with points.

    ``firsts`` are the numbers of the first file of each input.
    """

    firsts: Sequence[int]
    provenance: Provenance
    packing: Packing

    def sum_points(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Sum up what Spark has read and divided by hour."""
        if collected := list(batches):
            yield from self._sum(pa.Table.from_batches(collected))

    def sum_shares(
        self, batches: Batches, shares: Sequence[Share], read: Callable[[Share], list[pa.Table]]
    ) -> Iterator[pa.RecordBatch]:
        """Read shares by their numbers, and sum them up."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if points := read(shares[number]):
                    yield from self._sum(pa.concat_tables(points))

    def _sum(self, points: pa.Table) -> Iterator[pa.RecordBatch]:
        if len(points):
            yield from self.packing.pack(sum_hours(points, self.firsts, self.provenance))
