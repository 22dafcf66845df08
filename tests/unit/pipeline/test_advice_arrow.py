"""What tasks of Arrow make of hours of buckets, beside plain Python; without Spark."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis.strategies import DrawFn, composite, integers, lists, sampled_from

from app.domain.plan_impact import ZERO_BIN
from app.pipeline.advice.commits import minute_sums
from app.pipeline.advice.sizes import back_tests_of, busiest_brokers
from app.pipeline.advice.use import in_order, uses_on_brokers
from app.pipeline.tables import BUCKET_HOUR
from tests.testkit.advice_worlds import bin_of
from tests.testkit.bucket_worlds import arrow_schema
from tests.testkit.naive_throttling import Rates, Throttle, replay

RATIO = 1.01
WEIGHTS = [8, 4, 2, 1]
"""By the age of a day."""


def middle(rate: float) -> float:
    """Return the rate that stands for the bin of a rate."""
    return 0.0 if rate == 0 else RATIO ** (bin_of(rate) + 0.5)


Hour = dict[str, Any]


@composite
def hours(draw: DrawFn) -> Hour:
    rates = draw(lists(sampled_from([0.0, 1.0, 50.0, 99.0, 400.0, 5e6]), min_size=1, max_size=5))
    first = draw(integers(0, 55))
    age = draw(integers(0, 3))
    bucket = draw(integers(-1, 1))
    return {
        "cluster_id": "c1",
        "dt": 20_000 - age,
        "hour": draw(integers(0, 23)),
        "broker_id": draw(integers(1, 3)),
        # A bucket is of one key.
        "key": "controller_mutation_rate" if bucket else "producer_byte_rate",
        "bucket_id": bucket,
        "level": draw(integers(1, 8)),
        "limit": draw(sampled_from([100.0, 200.0, None])),
        "rates": rates,
        "minutes": len(rates),
        "rate_max": max(rates),
        "rate_avg": sum(rates) / len(rates) * draw(sampled_from([0.25, 1.0])),
        "throttled_minutes": draw(integers(0, 1)),
        "present": (2 ** len(rates) - 1) << first,
        "first": first,
        "bins": [ZERO_BIN if rate == 0 else bin_of(rate) for rate in rates],
        "age": age,
        "reported": 60,
        "value_now": 60.0,
        "value_new": 300.0,
    }


def identity(hour: Hour) -> tuple[Any, ...]:
    return (hour["key"], hour["bucket_id"], hour["broker_id"])


def when(hour: Hour) -> tuple[int, int]:
    return (-hour["age"], hour["hour"])


WORLDS = lists(
    hours(), min_size=1, max_size=12, unique_by=lambda hour: (*identity(hour), *when(hour))
)
FEW = settings(deadline=None, max_examples=30)


def table_of(found: Sequence[Hour]) -> pa.Table:
    kinds = {name: arrow_schema(BUCKET_HOUR).field(name).type for name in BUCKET_HOUR.columns}
    rows = [{name: hour[name] for name in hour if name not in {"rates", "first"}} for hour in found]
    columns = {
        name: pa.array([row[name] for row in rows], None if name == "dt" else kinds.get(name))
        for name in rows[0]
    }
    columns["dt"] = columns["dt"].cast(pa.int32()).cast(pa.date32())
    return pa.table(columns)


def percentile(found: Sequence[Hour], percent: int) -> float:
    """Return the rate of the weighted rank, minute by minute."""
    minutes = sorted(
        middle(rate)
        for hour in found
        for rate in hour["rates"]
        for _ in range(WEIGHTS[hour["age"]])
    )
    peak = max(hour["rate_max"] for hour in found)
    return min(minutes[math.ceil(percent * len(minutes) / 100) - 1], peak)


@given(WORLDS, sampled_from([50, 95, 99, 100]))
@FEW
def test_percentiles_are_those_of_minutes_in_order(found: list[Hour], percent: int):
    groups: dict[Any, list[Hour]] = defaultdict(list)
    for hour in found:
        groups[identity(hour)].append(hour)
    uses = uses_on_brokers(in_order(table_of(found)), percent, WEIGHTS).to_pylist()
    assert len(uses) == len(groups)
    for row in uses:
        group = groups[identity(row)]
        last = max(group, key=when)
        assert row["rate"] == pytest.approx(percentile(group, percent), rel=1e-12)
        assert row["p95"] == pytest.approx(percentile(group, 95), rel=1e-12)
        assert (row["level"], row["limit"]) == (last["level"], last["limit"])
        assert row["minutes"] == sum(hour["minutes"] for hour in group)
        assert row["expected"] == 60 * len(group)
        assert row["peak"] == max(hour["rate_max"] for hour in group)


@given(WORLDS)
@FEW
def test_a_bucket_is_judged_by_its_busiest_broker(found: list[Hour]):
    buckets: dict[Any, dict[int, list[Hour]]] = defaultdict(lambda: defaultdict(list))
    for hour in found:
        buckets[hour["key"], hour["bucket_id"]][hour["broker_id"]].append(hour)
    rows = busiest_brokers(table_of(found), 99, WEIGHTS).to_pylist()
    assert len(rows) == len(buckets)
    for row in rows:
        of_bucket = buckets[row["key"], row["bucket_id"]]
        whole = [hour for group in of_bucket.values() for hour in group]
        limit = max(whole, key=lambda hour: (*when(hour), hour["broker_id"]))["limit"]
        same = {
            broker: [hour for hour in group if hour["limit"] == limit]
            for broker, group in of_bucket.items()
        }
        brokers = {broker: group for broker, group in same.items() if group}
        rates = {broker: percentile(group, 99) for broker, group in brokers.items()}
        every = [hour for group in brokers.values() for hour in group]
        last = max(every, key=lambda hour: (*when(hour), hour["broker_id"]))
        busiest = min(rates, key=lambda broker: (-round(rates[broker], 6), broker))
        assert row["broker_id"] == busiest
        assert row["rate"] == pytest.approx(max(rates.values()), rel=1e-12)
        assert row["median"] == pytest.approx(float(np.median([*rates.values()])), rel=1e-12)
        assert row["cluster_total"] == pytest.approx(sum(rates.values()), rel=1e-12)
        assert (row["level"], row["limit"]) == (last["level"], last["limit"])
        assert row["days"] == len({hour["age"] for hour in every})
        assert row["brokers"] == len(brokers)
        assert row["minutes"] == sum(hour["minutes"] for hour in every)
        assert row["throttled_minutes"] == sum(hour["throttled_minutes"] for hour in every)


@given(WORLDS)
@FEW
def test_sums_of_minutes_are_those_of_their_rates(found: list[Hour]):
    expected: dict[Any, int] = defaultdict(int)
    for hour in found:
        for number, rate in enumerate(hour["rates"]):
            at = (hour["age"], hour["hour"], hour["broker_id"], hour["key"], hour["first"] + number)
            expected[at] += round(middle(rate) * 10_000)
    sums = minute_sums(table_of(found)).to_pylist()
    days = {f"{hour['dt']}": hour["age"] for hour in table_of(found).to_pylist()}
    assert {
        (days[f"{row['dt']}"], row["hour"], row["broker_id"], row["key"], row["minute"]): row[
            "total"
        ]
        for row in sums
    } == pytest.approx(expected, abs=12)


@given(WORLDS)
@FEW
def test_a_back_test_is_the_model_of_each_series(found: list[Hour]):
    one_key = [hour for hour in found if hour["key"] == found[0]["key"]]
    series: dict[Any, list[Hour]] = defaultdict(list)
    for hour in one_key:
        series[hour["bucket_id"], hour["broker_id"]].append(hour)
    totals: dict[int, list[float]] = defaultdict(lambda: [0.0] * 4)
    for (bucket, _), group in series.items():
        minutes = []
        for hour in sorted(group, key=when):
            rates = [min(middle(rate), hour["rate_max"]) for rate in hour["rates"]]
            total = hour["rate_avg"] * hour["minutes"]
            each = total / sum(rates) if sum(rates) else 0.0
            start = (hour["dt"] * 24 + hour["hour"]) * 60 + hour["first"]
            minutes += [
                Rates(start + number, min(rate * each, rate), rate)
                for number, rate in enumerate(rates)
            ]
        tokens = group[0]["key"] == "controller_mutation_rate"
        now, new = (
            [sum(seconds) for seconds in zip(*_throttled(minutes, limit, tokens), strict=True)]
            for limit in (60.0, 300.0)
        )
        for number, seconds in enumerate((now[1], *new)):
            totals[bucket][number] += seconds
    rows = back_tests_of(table_of(one_key)).to_pylist()
    assert {row["bucket_id"] for row in rows} == set(totals)
    for row in rows:
        figures = [row[name] / 1e6 for name in ("now", "low", "mid", "high")]
        assert figures == pytest.approx(totals[row["bucket_id"]], abs=1e-3)


def _throttled(minutes: list[Rates], limit: float, tokens: bool) -> list[tuple[float, ...]]:
    stretches, _ = replay(minutes, Throttle(limit, tokens))
    return [each.throttled for stretch in stretches for each in stretch]
