"""For how long values would have throttled buckets in the hours behind the advice.

Minutes are those of ``bucket_hour``: their maxima by bin, and averages in proportion to them, so
that they add up to the hour's. The model is that of ``whatif``.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

from app.domain.throttling import TOKEN_KEY
from app.pipeline.advice.evidence import Evidence, bin_rates, divide, hours_of_epoch
from app.pipeline.tables import BUCKET_HOUR
from app.pipeline.usage.measures import Numbers, begins_of
from app.pipeline.whatif.model import MICRO, Minutes, replay

_MINUTES: Final = 60
_DDL: Final = "cluster_id string, bucket_id bigint, now bigint, low bigint, mid bigint, high bigint"
_READ: Final = (
    *("cluster_id", "dt", "hour", "broker_id", "key", "bucket_id", "rate_avg", "rate_max"),
    *("minutes", "present", "bins"),
)


def back_test(evidence: Evidence, values: pa.Table) -> pa.Table | None:
    """Return for how long values would have throttled buckets, in seconds on all brokers.

    Args:
        evidence: Has hours of buckets.
        values: ``cluster_id, bucket_id, limit, value``: what limits a bucket now, and what is
            advised.

    Returns:
        ``cluster_id, bucket_id, throttled_s_now`` (under its limit, most likely) and
        ``throttled_s_low``, ``…_mid``, ``…_high`` (under what is advised); null without values.
    """
    if not values.num_rows:
        return None
    named = ["cluster_id", "bucket_id", "value_now", "value_new"]
    wanted = values.rename_columns(named)
    here = evidence.bucket_hours()
    if here is None:
        tested = _tested_by_spark(evidence, wanted)
    else:
        tested = back_tests_of(_with_values(here, wanted))
    columns = {name: tested[name] for name in named[:2]}
    for name in ("now", "low", "mid", "high"):
        columns[f"throttled_s_{name}"] = pa.array(tested[name].to_numpy() / MICRO)
    return pa.table(columns)


def _with_values(hours: pa.Table, wanted: pa.Table) -> pa.Table:
    """Return the hours of buckets that have values, beside these: no two clusters share one."""
    buckets = wanted["bucket_id"].to_numpy()
    order = np.argsort(buckets)
    chosen = hours.filter(pa.array(np.isin(hours["bucket_id"].to_numpy(), buckets)))
    at = pa.array(order[np.searchsorted(buckets[order], chosen["bucket_id"].to_numpy())])
    for name in ("value_now", "value_new"):
        chosen = chosen.append_column(name, wanted[name].take(at))
    return chosen


def _tested_by_spark(evidence: Evidence, wanted: pa.Table) -> pa.Table:
    values = evidence.lakes[0].session.createDataFrame(wanted)
    hours = evidence.read(BUCKET_HOUR).select(*_READ)
    chosen = hours.join(sf.broadcast(values), ["cluster_id", "bucket_id"])
    return divide(chosen, chosen.count()).mapInArrow(_back_tests_of_batches, _DDL).toArrow()


def _back_tests_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    listed = [batch for batch in batches if batch.num_rows]
    if listed:
        yield from back_tests_of(pa.Table.from_batches(listed)).to_batches()


def back_tests_of(hours: pa.Table) -> pa.Table:
    """Return the columns of ``_DDL`` of all hours of some buckets."""
    hour = hours_of_epoch(hours)
    bucket, broker = (hours[name].to_numpy() for name in ("bucket_id", "broker_id"))
    order = np.lexsort((hour, broker, bucket))
    ordered, hour = hours.take(order).combine_chunks(), hour[order]
    bucket = bucket[order]
    rows = begins_of(bucket, broker[order])
    minutes, firsts = _minutes_of(ordered, hour, rows)
    has_tokens = np.array(ordered["key"].to_pylist())[rows] == TOKEN_KEY.value
    seconds = [
        replay(minutes, ordered[name].to_numpy()[rows], has_tokens)
        for name in ("value_now", "value_new")
    ]
    sums = [_sum(replayed, firsts) for replayed in seconds]
    buckets = begins_of(bucket[rows])
    columns: Sequence[Any] = [
        ordered["cluster_id"].take(rows[buckets]),
        bucket[rows[buckets]],
        *(np.add.reduceat(each, buckets) for each in (sums[0][1], *sums[1])),
    ]
    return pa.table(dict(zip([name.split()[0] for name in _DDL.split(", ")], columns, strict=True)))


def _sum(replayed: Any, firsts: Numbers) -> list[Numbers]:
    """Return the low, the middle and the high figure of each series, in 10^-6 s."""
    return [np.add.reduceat(throttled + replayed.idle, firsts) for throttled in replayed.throttled]


def _minutes_of(hours: pa.Table, hour: Numbers, rows: Numbers) -> tuple[Minutes, Numbers]:
    """Return the minutes of series, and where each begins.

    Args:
        hours: In order of bucket, broker and time.
        hour: Of the epoch.
        rows: Where the hours of a series begin.
    """
    bits = (hours["present"].to_numpy()[:, None] >> np.arange(_MINUTES)) & 1
    row, minute = np.nonzero(bits)
    bins: Any = hours["bins"].combine_chunks()
    numbers, positions = np.unique(bins.flatten().to_numpy(), return_inverse=True)
    maximum = np.minimum(bin_rates(numbers)[positions], hours["rate_max"].to_numpy()[row])
    offsets = bins.offsets.to_numpy()
    sums = np.add.reduceat(maximum, offsets[:-1] - offsets[0])
    total = hours["rate_avg"].to_numpy() * hours["minutes"].to_numpy()
    scale = np.divide(total, sums, out=np.zeros(len(sums)), where=sums > 0)
    average = np.minimum(maximum * scale[row], maximum)
    firsts = offsets[:-1][rows] - offsets[0]
    return Minutes(firsts, hour[row] * _MINUTES + minute, average, maximum), firsts
