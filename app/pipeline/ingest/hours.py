"""Points to hours: who is named, and which points count of those that a task has as columns.

A task has all points of its hours. Workers have numpy and pyarrow, and not what the driver needs
beside.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from app.pipeline.errors import UsageError
from app.pipeline.hashes import hash_numbers, hash_texts
from app.pipeline.ingest.minutes import (
    CODES,
    HOUR_US,
    MINUTE_US,
    MINUTES,
    Groups,
    Points,
    reported_by,
    series_of,
    sum_minutes,
)
from app.pipeline.ingest.points import LEFT_OUT
from app.pipeline.ingest.texts import Texts, combined, ranked
from app.pipeline.tables import RATE_MINUTE, SERIES
from app.pipeline.task_tables import Packing
from app.pipeline.usage.measures import Numbers, begins_of

DUPLICATE: Final = "duplicate"
SURPLUS: Final = "surplus"
"""Rows that do not count."""

REPORTS: Final = {
    "counted": "kind string, name string, n bigint",
    "reported": "cluster_id string, broker_id int, hour_number int, rows bigint, "
    "has_rates boolean, minutes bigint, first bigint, last bigint",
}
DETAILS: Final = {
    SURPLUS: "cluster_id string, ts bigint, file int, line bigint, raw string, reason string"
}
_NAMES: Final = ("cluster_id", "key", "user", "client_id")


def sum_up(
    batches: Iterable[pa.RecordBatch],
    sources: Sequence[int],
    same: Mapping[str, str],
    packing: Packing,
) -> Iterator[pa.RecordBatch]:
    """Sum up all points of some hours, as ``sum_hours`` does."""
    found = list(batches)
    if found and len(points := pa.Table.from_batches(found)):
        yield from packing.pack(sum_hours(points, sources, same))


def sum_hours(
    points: pa.Table, sources: Sequence[int], same: Mapping[str, str]
) -> Iterator[tuple[str, pa.Table]]:
    """Sum up the points of hours, each point once.

    Of points with the same names and time that of the first input counts, and of one input that
    with the greatest value; where several inputs have the same attribute of the same minute, those
    of the first. A throttle time without a rate in its minute is a minute with rate 0, as is one
    in which the broker was scraped and a name of the hour had no sample: a broker forgets what has
    been idle for an hour.

    Args:
        points: The columns of ``POINTS_DDL``, all of their hours.
        sources: The number of the input that each file is of.
        same: Columns of ``SERIES`` that are the same in all rows: grain, source, ingest_run_id.

    Returns:
        Tables by their names, those that have rows: ``SERIES`` and ``RATE_MINUTE``, in order;
        surplus, what does not count; ts, and with it the cluster, is null where it cannot be read;
        reported, what each broker reported in an hour of the epoch: its points, whether there is a
        minute, in how many minutes, and the first and last times (microseconds of the epoch);
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
        yield SURPLUS, _surplus(bad, bad["text"], bad["problem"])
    if is_fine.any():
        fine = points if is_fine.all() else points.filter(pa.array(is_fine))
        yield from _sum_fine(fine, sources, same, counted)
    found = [{"kind": kind, "name": name, "n": n} for (kind, name), n in counted.items()]
    if found:
        yield "counted", pa.Table.from_pylist(found)


def _surplus(points: pa.Table, raw: pa.ChunkedArray, reason: pa.ChunkedArray) -> pa.Table:
    named = points.select(["cluster_id", "ts", "file", "line"])
    return named.append_column("raw", raw).append_column("reason", reason)


def _sum_fine(
    fine: pa.Table,
    sources: Sequence[int],
    same: Mapping[str, str],
    counted: dict[tuple[str, str], int],
) -> Iterator[tuple[str, pa.Table]]:
    counted |= {("cluster", f"{name}"): 1 for name in Texts.of(fine["cluster"]).values if name}
    names, name = series_names(fine, same["grain"])
    cluster, clusters = names["cluster_id"].indices.to_numpy(), names["cluster_id"].dictionary
    ts = fine["ts"].to_numpy()
    hour, hours = ranked(ts // HOUR_US)
    broker, brokers = ranked(fine["broker_id"].to_numpy())
    # One number for hour, name and broker: all are in the order of files.
    group, (_, *groups) = combined(
        *((cluster[name], len(clusters)), (hour, len(hours))),
        *((name, len(names)), (broker, len(brokers))),
    )
    code = Texts.of(fine["attribute"]).look_up(lambda text: CODES.get(f"{text}", -1), np.int64)
    time, all_times = ranked(ts)
    point = (group * len(all_times) + time) * len(CODES) + code
    value = fine["value"].to_numpy()
    order = np.argsort(point)
    is_used = np.ones(len(order), bool)
    if len(begins_of(point[order])) < len(order) or len(set(sources)) > 1:
        file, line = fine["file"].to_numpy(), fine["line"].fill_null(0).to_numpy()
        source = np.array(sources)[file]
        order = np.lexsort((line, file, -value, source, point))
        minute = group * MINUTES + ts % HOUR_US // MINUTE_US
        is_used = _are_used(*(each[order] for each in (point, minute, code, source)))
        if not is_used.all():
            counted["refused", DUPLICATE] = int(np.count_nonzero(~is_used))
            yield SURPLUS, _twice(fine.take(pa.array(order[~is_used])))
    points = Points(*(each[order] for each in (group, ts, code, value)))
    used = Points(*(each[is_used] for each in points))
    for attribute, number in CODES.items():
        if n := int(np.count_nonzero(used.code == number)):
            counted["used", attribute] = n
    counted["failed", ""] = int(np.count_nonzero(used.has_failed))
    found = Groups.of(points, hours[groups[0]], groups[1], brokers[groups[2]])
    reported, scraped = reported_by(found, names)
    yield "reported", reported
    yield SERIES.name, series_of(found, names, same)
    yield RATE_MINUTE.name, sum_minutes(used, found, scraped, names)


def series_names(points: pa.Table, grain: str) -> tuple[pa.RecordBatch, Numbers]:
    """Return the different names of points, and which of them each point has.

    Names are in the order of cluster_id, whose dictionary is in order, and series_id, which is
    Spark's ``xxhash64`` of hashes; then come key, user and client_id.

    Raises:
        UsageError: Two series have the same id.
    """
    columns = {name: Texts.of(points[name]) for name in _NAMES}
    in_order = sorted(map(str, columns["cluster_id"].values))
    numbers = {name: number for number, name in enumerate(in_order)}
    ranks = columns["cluster_id"].look_up(lambda name: numbers[f"{name}"], np.int64)
    columns["cluster_id"] = Texts(ranks, in_order)
    codes, found = combined(*((each.codes, len(each.values)) for each in columns.values()))
    rows = dict(zip(_NAMES, found, strict=True))
    texts = {name: pa.array(each.values, pa.string()) for name, each in columns.items()}
    of_cluster = hash_texts(texts["cluster_id"])[rows["cluster_id"]]
    ids = hash_numbers(hash_texts(texts["key"].take(pa.array(rows["key"])), of_cluster))
    for name in ("user", "client_id"):
        ids = hash_numbers(hash_texts(texts[name])[rows[name]], ids)
    ids = hash_numbers(hash_texts(pa.array([grain])).repeat(len(ids)), ids)
    order = np.lexsort((ids, rows["cluster_id"]))
    own = {
        name: pa.DictionaryArray.from_arrays(rows[name][order], text)
        for name, text in texts.items()
    }
    names = pa.record_batch({**own, "series_id": ids[order]})
    require_own_ids(names)
    return names, np.argsort(order)[codes]


def require_own_ids(names: pa.RecordBatch) -> None:
    """Make sure that no two series have the same id: by hour and id they are joined.

    Raises:
        UsageError: Two have.
    """
    ids = names["series_id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    same = np.flatnonzero(np.diff(ids[order]) == 0)
    if len(same):
        both = names.take(pa.array(order[same[0] : same[0] + 2])).select(_NAMES).to_pylist()
        message = (
            f"{' and '.join(sorted(str(tuple(row.values())) for row in both))} have the same "
            "series_id, a hash: leave one of them out of the input."
        )
        raise UsageError(message)


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
    reason = pa.array([DUPLICATE] * len(points), pa.string())
    return _surplus(points, pa.array(texts, pa.string()), reason)
