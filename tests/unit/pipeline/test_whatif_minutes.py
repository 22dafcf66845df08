"""The minutes of buckets, hour by hour: the same sums as of all minutes at once."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from app.pipeline.whatif.minutes import BucketMinutes, Members, sum_up

MINUTES_OF_HOUR = 60
LIMIT = st.none() | st.sampled_from([5.0, 50.0])
MEMBERS = st.lists(
    st.tuples(st.integers(-3, 3), st.sampled_from([(True, True), (True, False), (False, True)])),
    min_size=1,
    max_size=6,
)
"""Of series 0, 1, ...: its bucket, and under which limits it spends from it."""

MINUTE = st.tuples(
    *(st.integers(0, 6), st.integers(0, 2), st.integers(0, 200)),
    *(st.sampled_from([0.0, 4.0, 40.0, 70.0]), st.sampled_from([1.0, 3.0])),
    st.none() | st.sampled_from([0.0, 7.0]),
)
MINUTES = st.lists(MINUTE, min_size=1, max_size=60, unique_by=lambda row: row[:3])


def members_of(drawn: list[tuple[int, tuple[bool, bool]]], limits: Any, tokens: int) -> Members:
    rows = [
        {
            "series_id": series,
            "bucket_id": bucket,
            "in_now": in_now,
            "in_new": in_new,
            "limit_now": limits[0] if in_now else None,
            "limit_new": limits[1] if in_new else None,
            "has_tokens": bucket == tokens,
        }
        for series, (bucket, (in_now, in_new)) in enumerate(drawn)
    ]
    types = [*[pa.int64()] * 2, *[pa.bool_()] * 2, *[pa.float64()] * 2, pa.bool_()]
    return Members(pa.Table.from_pylist(rows, pa.schema(zip(rows[0], types, strict=True))))


def rates_of(drawn: list[tuple[int, int, int, float, float, float | None]]) -> pa.Table:
    series, broker, minute, average, ratio, throttle = zip(*drawn, strict=True)
    at = pa.array([each * 60_000_000 for each in minute], pa.timestamp("us", "UTC"))
    maximum = [rate * factor for rate, factor in zip(average, ratio, strict=True)]
    return pa.table(
        {
            "series_id": pa.array(series, pa.int64()),
            "broker_id": pa.array(broker, pa.int32()),
            "ts": at,
            "rate_avg": pa.array(average, pa.float64()),
            "rate_max": pa.array(maximum, pa.float64()),
            "throttle_ms_avg": pa.array([None] * len(series), pa.float64()),
            "throttle_ms_max": pa.array(throttle, pa.float64()),
        }
    )


def hours_of(members: Members, rates: pa.Table) -> Iterator[BucketMinutes]:
    minute = rates["ts"].cast(pa.int64()).to_numpy() // 60_000_000
    for hour in sorted({*(minute // MINUTES_OF_HOUR).tolist()}):
        yield members.minutes_of(rates.filter(pa.array(minute // MINUTES_OF_HOUR == hour)))


@given(MEMBERS, MINUTES, st.tuples(LIMIT, LIMIT), st.integers(-3, 3))
def test_hours_one_by_one_are_the_period_at_once(
    drawn: list[Any], minutes: list[Any], limits: tuple[float | None, float | None], tokens: int
):
    members, rates = members_of(drawn, limits, tokens), rates_of(minutes)
    by = [("bucket_id", "ascending"), ("broker_id", "ascending")]
    expected = sum_up([members.minutes_of(rates)]).sort_by(by)
    assert sum_up(hours_of(members, rates)).sort_by(by).to_pylist() == expected.to_pylist()


def test_a_limit_drains_in_hours_in_which_only_others_are_there():
    """Of one bucket series 0 spends under the limit of now, and series 1 under the new one."""
    members = members_of([(7, (True, False)), (7, (False, True))], (5.0, 5.0), 0)
    first, later = (0, 1, 59, 10.0, 1.0, None), (1, 1, 60, 4.0, 1.0, None)
    (row,) = sum_up(hours_of(members, rates_of([first, later]))).to_pylist()
    # 300 wait at the end of the first minute, as many as drain in the second.
    assert (row["throttled_s_now"], row["minutes_throttled_now"]) == (55.0 + 60.0, 2)
    assert (row["throttled_s_new"], row["highest"]) == (0.0, 0.0)


def test_nothing_is_throttled_at_its_limit_and_all_of_it_is_counted():
    members = members_of([(7, (True, True)), (7, (True, True))], (None, 8.0), 0)
    rates = rates_of([(series, 1, at, 4.0, 1.0, 7.0) for series in (0, 1) for at in (3, 70)])
    (row,) = sum_up(hours_of(members, rates)).to_pylist()
    assert (row["minutes"], row["censored_minutes"]) == (2, 2)
    assert (row["throttled_s_new_high"], row["minutes_throttled"], row["highest"]) == (0.0, 0, 0.0)
    over = pc.multiply(rates["rate_max"], 1.5)
    (row,) = sum_up(hours_of(members, rates.set_column(4, "rate_max", over))).to_pylist()
    assert row["throttled_s_new_high"] > 0
