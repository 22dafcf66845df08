"""Points to hours: which of them count, what those of a minute sum up to, and who was seen.

A task has all points of its hours, as columns. Sums are integers of 10^-6 units, so that the order
of the points says nothing.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

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
from app.pipeline.usage.measures import Numbers, begins_of

DUPLICATE: Final = "duplicate"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Summed:
    """What points say.

    Attributes:
        refused: How many rows do not count, by reason.
        left_out: How many are no input.
        used: Points that count, by attribute.
        failed: Scrapes that failed: ``up`` was 0.
        clusters: What the input names clusters.
        files: How many rows each file has, by its number.
        reported: What each broker reported in an hour: cluster_id, broker_id, hour_number (of the
            epoch), rows, with_rate (those of a rate or a throttle time), ups (those of ``up``),
            minutes (how many it reported in), first and last (microseconds of the epoch).
        surplus: What does not count: cluster_id, ts (both null where they cannot be read), file,
            line, raw and reason.
        series: The columns of ``SERIES``, in order.
        minutes: Those of ``RATE_MINUTE``, in order.
    """

    refused: Counter[str]
    left_out: int
    used: Counter[str]
    failed: int
    clusters: set[str]
    files: dict[int, int]
    reported: pa.Table | None = None
    surplus: Sequence[pa.Table] = ()
    series: pa.Table | None = None
    minutes: pa.Table | None = None

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield all rows that there are, by the names of their tables."""
        yield from (("surplus", table) for table in self.surplus)
        of_hours = {
            "reported": self.reported,
            SERIES.name: self.series,
            RATE_MINUTE.name: self.minutes,
        }
        yield from ((name, table) for name, table in of_hours.items() if table is not None)


def sum_hours(points: pa.Table, firsts: Sequence[int], provenance: Provenance) -> Summed:
    """Sum up the points of hours, each point once.

    Of points with the same names and time that of the first input counts, and of one input that
    with the greatest value; where several inputs have the same attribute of the same minute, those
    of the first. A throttle time without a rate in its minute is a minute with rate 0, as is one
    in which the broker was scraped and a name of the hour had no sample: a broker forgets what has
    been idle for an hour.

    Args:
        points: The columns of ``POINTS_DDL``, all of their hours.
        firsts: The number of the first file of each input.
        provenance: Of the run.

    Raises:
        UsageError: Two series have the same id, a hash.
    """
    problem = Texts.of(points["problem"])
    times = np.bincount(problem.codes, minlength=len(problem.values))
    refused = Counter(
        {f"{name}": int(n) for name, n in zip(problem.values, times, strict=True) if name and n}
    )
    left_out = refused.pop(LEFT_OUT, 0)
    files, rows = np.unique(points["file"].to_numpy(), return_counts=True)
    counted = dict(zip(files.tolist(), rows.tolist(), strict=True))
    summed = Summed(refused, left_out, Counter(), 0, set(), counted)
    is_fine = problem.equals("")
    if refused:
        bad = points.filter(pa.array(~is_fine & ~problem.equals(LEFT_OUT)))
        columns = {"raw": "text", "reason": "problem"}
        summed.surplus = [pa.table({name: bad[columns.get(name, name)] for name in _SURPLUS})]
    fine = points if is_fine.all() else points.filter(pa.array(is_fine))
    if len(fine):
        _sum_fine(fine, firsts, provenance, summed)
    return summed


_SURPLUS: Final = ("cluster_id", "ts", "file", "line", "raw", "reason")


def _sum_fine(
    fine: pa.Table, firsts: Sequence[int], provenance: Provenance, summed: Summed
) -> None:
    named = Texts.of(fine["cluster"])
    summed.clusters = {f"{name}" for name in named.values if name}
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
        source = np.searchsorted(firsts, fine["file"].to_numpy(), "right")
        order = np.lexsort((fine["position"].to_numpy(), -value, source, point))
        minute = group * MINUTES + ts % HOUR_US // MINUTE_US
        is_used = _are_used(*(each[order] for each in (point, minute, code, source)))
        if not is_used.all():
            summed.refused[DUPLICATE] = int(np.count_nonzero(~is_used))
            summed.surplus = [*summed.surplus, _twice(fine.take(pa.array(order[~is_used])))]
    points = Points(*(each[order] for each in (group, ts, code, value)))
    used = Points(*(each[is_used] for each in points))
    for attribute, number in CODES.items():
        if n := int(np.count_nonzero(used.code == number)):
            summed.used[attribute] = n
    summed.failed = int(np.count_nonzero(used.has_failed))
    former, of_broker = np.divmod(groups, len(brokers))
    found = Groups.of(points, *np.divmod(of_hour[former], len(names.series)), of_broker)
    where = Where(names, partitions // len(hours), hours[partitions % len(hours)], brokers)
    summed.reported, scraped = found.reported_by(where)
    summed.series = found.series(where, provenance)
    summed.minutes = sum_minutes(used, found, scraped, where)


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
        time = _EPOCH + row.pop("ts") * timedelta.resolution
        stated = {name: value for name, value in row.items() if value is not None}
        text = {"ts": f"{time:%Y-%m-%dT%H:%M:%S.%fZ}", **stated}
        texts.append(json.dumps(text, ensure_ascii=False, separators=(",", ":")))
    named = points.select(["cluster_id", "ts", "file", "line"])
    reason = pa.array([DUPLICATE] * len(points), pa.string())
    return named.append_column("raw", pa.array(texts, pa.string())).append_column("reason", reason)
