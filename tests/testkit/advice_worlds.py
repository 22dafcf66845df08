"""A small lake from which advice follows: seven days of an hour of ten minutes on two brokers.

Of `producer_byte_rate`: alice has 100 and needs 95; the default user has 1,000, of which bob needs
10, carl 20 and dave all; `free` has no limit. Of `consumer_byte_rate`: bob has 1,000 and needs 500.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    QUOTA_VERSION,
    SERIES,
    SERIES_LIMIT,
    UTILIZATION_DAILY,
)
from tests.testkit.bucket_worlds import Row, publish

START = datetime(2026, 11, 14, tzinfo=UTC)
DAYS, HOUR, MINUTES = 7, 9, 10
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"

ALICE, BOB, CARL, DAVE, FREE, BOB_READS = range(1, 7)

USES: Sequence[tuple[int, str, str, str, int, float | None, dict[int, float], int]] = [
    # bucket, key, user, client-id, level, limit, rate by broker, throttled minutes of an hour
    (ALICE, PRODUCE, "alice", "", 3, 100.0, {1: 95.0, 2: 30.0}, 0),
    (BOB, PRODUCE, "bob", "", 6, 1000.0, {1: 10.0}, 0),
    (CARL, PRODUCE, "carl", "", 6, 1000.0, {2: 20.0}, 0),
    (DAVE, PRODUCE, "dave", "", 6, 1000.0, {1: 1000.0}, 5),
    (FREE, PRODUCE, "", "free", 0, None, {1: 400.0}, 0),
    (BOB_READS, FETCH, "bob", "", 3, 1000.0, {1: 500.0, 2: 500.0}, 0),
]


def bin_of(rate: float) -> int:
    """Return the bin of a rate above 0, by the formula of the tables."""
    return math.floor(math.log(rate) / math.log(1.01))


def _hours() -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    for day in range(DAYS):
        at = START + timedelta(days=day)
        for use in USES:
            yield {"cluster_id": "c1", "dt": at.date(), "hour": HOUR}, use


def _hour_rows() -> Iterator[Row]:
    for of_hour, (bucket, key, _, _, level, limit, rates, throttled) in _hours():
        for broker, rate in rates.items():
            yield {
                **of_hour,
                "broker_id": broker,
                "key": key,
                "bucket_id": bucket,
                "level": level,
                "limit": limit,
                "minutes": MINUTES,
                "rate_avg": rate,
                "rate_max": rate,
                "bytes": round(rate * 60 * MINUTES),
                "minutes_over_80": 0,
                "minutes_over_100": 0,
                "throttled_minutes": throttled,
                "present": 2**MINUTES - 1,
                "bins": [bin_of(rate)] * MINUTES,
                "violations": [],
            }


def _day_rows() -> Iterator[Row]:
    for row in _hour_rows():
        rate = row["rate_max"]
        same = ("cluster_id", "dt", "broker_id", "key", "bucket_id", "level", "limit", "bytes")
        figures = {"minutes_present": MINUTES, "minutes_expected": MINUTES, "coverage": 1.0}
        rates = dict.fromkeys(("p50", "p95", "p99", "peak"), rate)
        yield {**{name: row[name] for name in same}, **figures, **rates}


def _name_rows() -> Iterator[Row]:
    for of_hour, (bucket, key, user, client_id, level, *_) in _hours():
        named = {"bucket_id": bucket, "key": key, "level": level}
        tags = {"bucket_user": user, "bucket_client": client_id}
        yield {**of_hour, **named, **tags}


def _series_rows() -> Iterator[Row]:
    for of_hour, (bucket, key, user, client_id, *_) in _hours():
        at = datetime.combine(of_hour["dt"], datetime.min.time(), UTC) + timedelta(hours=HOUR)
        names = {"series_id": bucket, "key": key, "user": user, "client_id": client_id}
        seen = {"first_seen": at, "last_seen": at + timedelta(minutes=MINUTES - 1)}
        yield {**of_hour, **names, "grain": "bucket", **seen}


def _limit_rows() -> Iterator[Row]:
    for of_hour, (bucket, _, _, _, level, limit, *_) in _hours():
        yield {**of_hour, "series_id": bucket, "bucket_id": bucket, "level": level, "limit": limit}


def version(key: str, value: float, user: str | None = "", client_id: str | None = "") -> Row:
    """Return a value that holds; null is the default entity, '' a type that it lacks."""
    return {
        "cluster_id": "c1",
        "user": user or "",
        "user_default": user is None,
        "client_id": client_id or "",
        "client_default": client_id is None,
        "key": key,
        "value": value,
        "valid_from": START,
        "origin": "snapshot",
    }


QUOTAS = [
    version(PRODUCE, 100.0, "alice"),
    version(PRODUCE, 1000.0, None),
    version(FETCH, 1000.0, "bob"),
    # Nobody of these names was seen; erik is in no inventory.
    version(PRODUCE, 7.0, "gone"),
    version(PRODUCE, 8.0, "erik"),
    # The default user goes before every client-id.
    version(PRODUCE, 9.0, client_id="etl"),
    # The default gives the same.
    version(PRODUCE, 1000.0, "frank"),
    # Of reads bob alone was seen, who has a value of his own.
    version(FETCH, 2000.0, None),
    version(FETCH, 5.0, client_id=None),
]


def write_world(folder: Path) -> Path:
    """Write the lake and its quotas to a folder, and return it."""
    rows = {
        BUCKET_HOUR: list(_hour_rows()),
        UTILIZATION_DAILY: list(_day_rows()),
        DIM_BUCKET: list(_name_rows()),
        SERIES: list(_series_rows()),
        SERIES_LIMIT: list(_limit_rows()),
        QUOTA_VERSION: QUOTAS,
    }
    return publish(folder, rows)
