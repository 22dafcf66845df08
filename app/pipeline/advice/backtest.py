"""For how long values would have throttled buckets in the hours behind the advice.

Minutes are those of ``bucket_hour``: their maxima by bin, and averages in proportion to them, so
that they add up to the hour's. The model is that of ``whatif``.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.throttling import TOKEN_KEY
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.use import hours_of_epoch, rates_of_bins
from app.pipeline.usage.measures import Numbers, begins_of
from app.pipeline.whatif.model import MICRO, Minutes, replay

_MINUTES: Final = 60


def with_back_tests(advice: pa.Table, evidence: Evidence) -> pa.Table:
    """Fill in for how long values would have throttled buckets, in seconds on all brokers.

    Args:
        advice: ``RECOMMENDATION``. Of what is to change, ``throttled_s_now`` is under the limit,
            most likely, and ``throttled_s_low``, ``…_mid``, ``…_high`` under the value.
        evidence: Has hours of buckets.
    """
    changes = advice.filter(pc.field("value").is_valid())
    if not changes.num_rows:
        return advice
    values = changes.select(["bucket_id", "limit", "value"]).combine_chunks()

    def test_buckets(hours: pa.Table) -> pa.Table:
        at = pc.index_in(hours["bucket_id"], values["bucket_id"])
        limits = {"value_now": values["limit"].take(at), "value_new": values["value"].take(at)}
        for name, column in limits.items():
            hours = hours.append_column(name, column)
        return back_tests_of(hours)

    tested = evidence.bucket_hours.of_buckets(values["bucket_id"]).map_buckets(test_buckets)
    has_value = advice["value"].is_valid()
    row = pc.if_else(has_value, pc.index_in(advice["bucket_id"], tested["bucket_id"]), None)
    for name in ("now", "low", "mid", "high"):
        index = advice.schema.get_field_index(f"throttled_s_{name}")
        seconds = pa.array(tested[name].to_numpy() / MICRO)
        advice = advice.set_column(index, advice.field(index), seconds.take(row))
    return advice


def back_tests_of(hours: pa.Table) -> pa.Table:
    """Return for how long the values of buckets would have throttled them, in 10^-6 s.

    Args:
        hours: All of their hours, with ``value_now`` and ``value_new``.

    Returns:
        ``bucket_id``, ``now``, and ``low``, ``mid``, ``high`` under the new value.
    """
    hour = hours_of_epoch(hours)
    bucket, broker = (hours[name].to_numpy() for name in ("bucket_id", "broker_id"))
    order = np.lexsort((hour, broker, bucket))
    ordered, hour = hours.take(order).combine_chunks(), hour[order]
    bucket = bucket[order]
    rows = begins_of(bucket, broker[order])
    minutes, firsts = _minutes_of(ordered, hour, rows)
    has_tokens = pc.equal(ordered["key"], TOKEN_KEY.value).to_numpy()[rows]
    seconds = [
        replay(minutes, ordered[name].to_numpy()[rows], has_tokens)
        for name in ("value_now", "value_new")
    ]
    sums = [_sum(replayed, firsts) for replayed in seconds]
    buckets = begins_of(bucket[rows])
    found = (np.add.reduceat(each, buckets) for each in (sums[0][1], *sums[1]))
    return pa.table([bucket[rows[buckets]], *found], ["bucket_id", "now", "low", "mid", "high"])


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
    maximum = np.minimum(rates_of_bins(bins.flatten()), hours["rate_max"].to_numpy()[row])
    offsets = bins.offsets.to_numpy()
    sums = np.add.reduceat(maximum, offsets[:-1] - offsets[0])
    total = hours["rate_avg"].to_numpy() * hours["minutes"].to_numpy()
    scale = np.divide(total, sums, out=np.zeros(len(sums)), where=sums > 0)
    average = np.minimum(maximum * scale[row], maximum)
    firsts = offsets[:-1][rows] - offsets[0]
    return Minutes(firsts, hour[row] * _MINUTES + minute, average, maximum), firsts
