"""For how long values would have throttled buckets in the hours behind the advice.

Minutes are those of ``bucket_hour``: their maxima by bin, and averages in proportion to them, so
that they add up to the hour's. The model is that of ``whatif``.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.throttling import TOKEN_KEY
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.use import begins_on_brokers, in_order, minutes_of_hours
from app.pipeline.usage.measures import Numbers, begins_of, hours_of_epoch
from app.pipeline.whatif.model import MICRO, Minutes, replay


def with_back_tests(advice: pa.Table, evidence: Evidence) -> pa.Table:
    """Fill in for how long values would have throttled buckets, in seconds on all brokers.

    Of what is to change, ``throttled_s_now`` is under the limit, most likely, and
    ``throttled_s_low``, ``…_mid``, ``…_high`` under the value.
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
    """Return for how long values would have throttled buckets, in 10^-6 s.

    ``now`` is under ``value_now`` of their hours, ``low``, ``mid`` and ``high`` are under
    ``value_new``.
    """
    hours = in_order(hours)
    rows = begins_on_brokers(hours)
    minutes = _minutes_of(hours, rows)
    has_tokens = pc.equal(hours["key"], TOKEN_KEY.value).to_numpy()[rows]
    figures = []
    for name in ("value_now", "value_new"):
        replayed = replay(minutes, hours[name].to_numpy()[rows], has_tokens)
        figures.append(np.add.reduceat(replayed.throttled + replayed.idle, minutes.begins, axis=1))
    bucket = hours["bucket_id"].to_numpy()[rows]
    buckets = begins_of(bucket)
    found = np.add.reduceat(np.stack([figures[0][1], *figures[1]]), buckets, axis=1)
    return pa.table([bucket[buckets], *found], ["bucket_id", "now", "low", "mid", "high"])


def _minutes_of(hours: pa.Table, rows: Numbers) -> Minutes:
    """Return the minutes of series, which begin at rows of hours in order."""
    row, minute, rates = minutes_of_hours(hours)
    maximum = np.minimum(rates, hours["rate_max"].to_numpy()[row])
    begins = begins_of(row)
    sums = np.add.reduceat(maximum, begins)
    total = hours["rate_avg"].to_numpy() * hours["minutes"].to_numpy()
    scale = np.divide(total, sums, out=np.zeros(len(sums)), where=sums > 0)
    average = np.minimum(maximum * scale[row], maximum)
    at = hours_of_epoch(hours)[row] * 60 + minute
    return Minutes(begins[rows], at, average, maximum)
