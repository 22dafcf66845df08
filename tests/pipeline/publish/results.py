"""Results as the jobs write them, for tests of what becomes of them."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.pipeline.arrow_storage import arrow_schema, write_arrow
from app.pipeline.folders import RunFolder
from app.pipeline.job import Job
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    Table,
)

CLUSTER = "lkc-1"
DAY = date(2026, 11, 20)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
BUCKET = -8_223_372_036_854_775_807
KEY = "producer_byte_rate"

Rows = Mapping[Table, Sequence[Mapping[str, Any]]]

ENTITY = {
    "quota_user": "alice",
    "quota_user_default": False,
    "quota_client_id": "",
    "quota_client_default": False,
}
PLACE = {"cluster_id": CLUSTER, "key": KEY, "bucket_id": BUCKET}


def minute(number: int, **columns: Any) -> dict[str, Any]:
    """A minute of the bucket on broker 1, ``number`` minutes after midnight."""
    at = MIDNIGHT + timedelta(minutes=number)
    row = {"dt": at.date(), "ts": at, "broker_id": 1, "rate_avg": 10.5, "rate_max": 20.0}
    return {**PLACE, **row, "bytes_est": 630, "limit": 100.0, "level": 3, **columns}


def day(**columns: Any) -> dict[str, Any]:
    """A day of the bucket, all brokers pooled."""
    row = {"dt": DAY, "broker_id": None, "level": 3, "limit": 100.0, "minutes_present": 3}
    figures = {"p50": 20.0, "p95": 90.0, "p99": 95.0, "peak": 96.0, "throttled_minutes": 2}
    return {**PLACE, **row, **figures, "coverage": 0.75, "util_p99": 0.95, **columns}


def bucket(**columns: Any) -> dict[str, Any]:
    """Who spends from the bucket: alice, who has a quota of her own."""
    row = {"level": 3, "bucket_user": "alice", "bucket_client": ""}
    return {**PLACE, **row, **ENTITY, "first_seen": MIDNIGHT, "last_seen": MIDNIGHT, **columns}


def incident(name: str, starts: int, **columns: Any) -> dict[str, Any]:
    """An incident of five minutes, ``starts`` minutes after midnight."""
    start = MIDNIGHT + timedelta(minutes=starts)
    row = {"incident_id": name, "broker_id": 1, "level": 3, "start": start, "minutes": 5}
    more = {"end": start + timedelta(minutes=5), "peak_ratio": 1.5, "status": "closed"}
    return {**PLACE, **ENTITY, **row, **more, **columns}


SAMPLE: Rows = {
    BUCKET_MINUTE: [minute(0), minute(1), minute(3)],
    DIM_BUCKET: [bucket()],
    UTILIZATION_DAILY: [day(), day(broker_id=1)],
    THROTTLE_INCIDENT: [incident("i-1", 0)],
}


def written(folder: Path, rows: Rows, run_id: str = "run") -> RunFolder:
    """Publish rows to a folder, as a job does at its end."""
    run = RunFolder(folder, run_id)
    for table, records in rows.items():
        write_arrow(
            pa.Table.from_pylist([dict(record) for record in records], arrow_schema(table)),
            table,
            run,
        )
    run.publish()
    return run


def job_of(name: str, url: str | None, **options: Any) -> Job:
    """Return a job with the options that publishing looks at."""
    given = {"pg": url, "cluster": None, "since": None, "until": None, "input": None}
    more = {"job": name, "dry_run": False, "out": None}
    return Job(name, argparse.Namespace(**{**given, **more, **options}))
