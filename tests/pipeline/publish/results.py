"""Results as the jobs write them, for tests of what becomes of them."""

import argparse
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from app.pipeline.job import Job
from app.pipeline.publishing import TWIN_COLUMNS, publish_results
from app.pipeline.results import Reach
from app.pipeline.run_records import URL_VARIABLE
from app.pipeline.tables import (
    BROKER_COMMIT,
    BUCKET_HOUR,
    DIM_BUCKET,
    DRIFT_FINDING,
    RECOMMENDATION,
    STALE_QUOTA,
    THROTTLE_INCIDENT,
    UNCOVERED_CLIENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    WHATIF_ENTITY,
    WHATIF_RUN,
    WHATIF_TIMELINE,
    Table,
)
from tests.testkit import bucket_worlds

CLUSTER = "lkc-1"
DAY = date(2026, 11, 20)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
BUCKET = -8_223_372_036_854_775_807
KEY = "producer_byte_rate"
TIME = pa.timestamp("us", tz="UTC")

Rows = Mapping[Table, Sequence[Mapping[str, Any]]]

OF_BUCKET = {"cluster_id": CLUSTER, "key": KEY, "bucket_id": BUCKET}


def hour(number: int, **columns: Any) -> dict[str, Any]:
    """An hour of the bucket on broker 1, ``number`` hours after midnight."""
    at = MIDNIGHT + timedelta(hours=number)
    row = {"dt": at.date(), "hour": at, "broker_id": 1, "rate_avg": 10.5, "rate_max": 20.0}
    return {**OF_BUCKET, **row, "limit": 100.0, "throttle_ms_max": None, "minutes": 60, **columns}


def day(**columns: Any) -> dict[str, Any]:
    """A day of the bucket, all brokers pooled."""
    row = {"dt": DAY, "broker_id": None, "level": 3, "limit": 100.0, "minutes_present": 3}
    figures = {"p50": 20.0, "p95": 90.0, "p99": 95.0, "peak": 96.0, "throttled_minutes": 2}
    return {**OF_BUCKET, **row, **figures, "coverage": 0.75, "util_p99": 0.95, **columns}


def minutes(number: int, bin: int, **columns: Any) -> dict[str, Any]:  # noqa: A002
    """Some minutes of the bucket in one bin, all brokers pooled."""
    return {**OF_BUCKET, "dt": DAY, "broker_id": None, "bin": bin, "n": number, **columns}


def bucket(**columns: Any) -> dict[str, Any]:
    """Who spends from the bucket: alice, who has a quota of her own."""
    row = bucket_worlds.bucket(**{**OF_BUCKET, **columns})
    return {name: value for name, value in row.items() if name not in {"dt", "hour"}}


def incident(name: str, starts: int, **columns: Any) -> dict[str, Any]:
    """An incident of five minutes, ``starts`` minutes after midnight."""
    start = MIDNIGHT + timedelta(minutes=starts)
    row = {"incident_id": name, "broker_id": 1, "level": 3, "start": start, "minutes": 5}
    more = {"end": start + timedelta(minutes=5), "peak_ratio": 1.5, "status": "closed"}
    return {**OF_BUCKET, **bucket_worlds.ALICE, **row, **more, **columns}


WEEK = {"since": MIDNIGHT - timedelta(days=6), "until": MIDNIGHT + timedelta(days=1), "days": 7}
BODY = """
{"alterations": [{"entity": {"user": "alice"}, "ops": [{"key": "producer_byte_rate", "value": 200}],
 "expected": {"producer_byte_rate": 100}}]}
"""


def recommendation(action: str, factor: float | None = None, **columns: Any) -> dict[str, Any]:
    """Advice about what alice has."""
    tags = {"bucket_user": "alice", "bucket_client": "", "level": 3, "limit": 100.0}
    row = {**OF_BUCKET, **tags, **bucket_worlds.ALICE, **WEEK, "action": action}
    return {**row, "factor": factor, "body": BODY if factor else None, **columns}


def stale(kind: str, user: str, **columns: Any) -> dict[str, Any]:
    """A value of a user that does nothing."""
    entity = {**bucket_worlds.ALICE, "quota_user": user}
    row = {"cluster_id": CLUSTER, "key": KEY, "kind": kind, "level": 3, "value": 100.0}
    return {**row, **entity, **WEEK, "winners": "[]", **columns}


def uncovered(user: str, bucket_id: int, share: float, **columns: Any) -> dict[str, Any]:
    """A user without a value of their own, whom nothing limits."""
    names = {"bucket_user": user, "bucket_client": "", "bucket_id": bucket_id}
    entity = {**bucket_worlds.ALICE, "quota_user": ""}
    return {**OF_BUCKET, **names, **entity, **WEEK, "level": 0, "share": share, **columns}


def commit(broker_id: int, direction: str, **columns: Any) -> dict[str, Any]:
    """What a broker has promised."""
    of_broker = {"cluster_id": CLUSTER, "broker_id": broker_id, "direction": direction}
    period = {"since": WEEK["since"], "until": WEEK["until"]}
    return {**of_broker, **period, "capacity": 100.0, "limits_sum": 200.0, "over": True, **columns}


def drift(kind: str, user: str, **columns: Any) -> dict[str, Any]:
    """A difference about a user's value."""
    entity = {**bucket_worlds.ALICE, "quota_user": user}
    values = {"desired": None, "logged": 100.0, "live": 200.0, "at": MIDNIGHT}
    return {"cluster_id": CLUSTER, "key": KEY, "kind": kind, **entity, **values, **columns}


DEFAULT_USER: Any = {"quota_user": "", "quota_user_default": True}

ADVICE: Rows = {
    RECOMMENDATION: [
        recommendation("raise", 2.0),
        recommendation("lower", 4.0, bucket_id=2, bucket_user="bob", quota_user="bob"),
        recommendation("keep", bucket_id=3, bucket_user="carl", level=6, **DEFAULT_USER),
        recommendation("insufficient", bucket_id=4, bucket_user="", key="consumer_byte_rate"),
    ],
    STALE_QUOTA: [
        stale("idle", "dora"),
        stale("default_unused", "", level=6, **DEFAULT_USER),
        stale("idle", "carl", key="consumer_byte_rate"),
        stale("orphan", "erik"),
    ],
    UNCOVERED_CLIENT: [
        uncovered("finn", 5, 0.25),
        uncovered("gina", 6, 0.5),
        uncovered("hugo", 7, 0.5, level=6, **DEFAULT_USER),
    ],
    BROKER_COMMIT: [commit(2, "in"), commit(1, "out"), commit(1, "in")],
    DRIFT_FINDING: [
        drift("out_of_band", "alice"),
        drift("missing", "carl", at=MIDNIGHT + timedelta(hours=1)),
        drift("missing", "bob"),
    ],
}
"""What each table of advice may have."""

RUN = "3d7e8f9a0b1c2d3e"


def whatif(bucket_id: int, broker_id: int, seconds: float | None, user: str) -> dict[str, Any]:
    """What a run found of a bucket on a broker."""
    row = {**OF_BUCKET, "run_id": RUN, "bucket_id": bucket_id, "broker_id": broker_id}
    names = {**bucket_worlds.ALICE, "quota_user": user, "bucket_user": user, "bucket_client": ""}
    levels = {"level_now": 3, "level_new": 3, "fidelity": "exact"}
    return {**row, **names, **levels, "throttled_s_new": seconds}


WHATIF: Rows = {
    WHATIF_RUN: [
        {"cluster_id": CLUSTER, "run_id": RUN, "throttled_new": 2, "alterations": f"[{BODY}]"}
    ],
    WHATIF_ENTITY: [
        whatif(1, 1, 2.0, "alice"),
        whatif(1, 2, 5.0, "alice"),
        whatif(2, 1, None, "bob"),
    ],
    WHATIF_TIMELINE: [
        {**OF_BUCKET, "run_id": RUN, "broker_id": broker, "ts": MIDNIGHT + timedelta(minutes=at)}
        for broker in (2, 1)
        for at in (1, 0)
    ],
}


def publish_whatif(url: str, rows: Rows, run_id: str = RUN) -> None:
    """Publish what a run of what-if found, as the job does at its end."""
    own = {table: [{**row, "run_id": run_id} for row in each] for table, each in rows.items()}
    cluster = own[WHATIF_RUN][0]["cluster_id"]
    job = job_of("whatif")
    job.run_id = run_id
    tables = {table: [twin(table, each)] for table, each in own.items()}
    with patch.dict(os.environ, {URL_VARIABLE: url}):
        publish_results(job, tables, [{"cluster_id": cluster, "run_id": run_id}], REACH)


SAMPLE: Rows = {
    BUCKET_HOUR: [hour(0), hour(1), hour(3)],
    DIM_BUCKET: [bucket()],
    UTILIZATION_DAILY: [day(), day(broker_id=1)],
    THROTTLE_INCIDENT: [incident("i-1", 0)],
    UTILIZATION_HIST: [minutes(2, -(2**31)), minutes(1, 458)],
}
REACH = Reach(MIDNIGHT + timedelta(minutes=5), 0.75)


class JobOfTests(Job):
    """A job that reads nothing; its run is called like it."""

    def fingerprint(self) -> str:
        return self.name


def job_of(name: str, **options: Any) -> Job:
    """Return a job with the options that publishing looks at."""
    defaults = {"pg": "", "cluster": None, "since": None, "until": None, "input": None}
    return JobOfTests(
        name, argparse.Namespace(**{**defaults, "job": name, "dry_run": False, **options})
    )


def twin(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as the table's twin in Postgres has them."""
    schema = bucket_worlds.arrow_schema(table)
    if table is BUCKET_HOUR:
        schema = schema.set(schema.get_field_index("hour"), pa.field("hour", TIME))
    made = pa.Table.from_pylist(list(map(dict, rows)), schema=schema)
    return made.select(TWIN_COLUMNS.get(table, table.columns))


def stored_hour(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the twin of ``bucket_hour`` as the lake has it; minute 1 is not there."""
    bits = {"present": 0b1101, "minutes": 3}
    return {**row, **bits, "hour": row["hour"].hour}


def publish_rows(
    url: str, rows: Rows, job: Job | None = None, days: Sequence[date] = (DAY,)
) -> Job:
    """Publish rows as a job does at its end, replacing those of days of their clusters."""
    job = job or job_of("run")
    clusters = sorted({row["cluster_id"] for each in rows.values() for row in each} or {CLUSTER})
    replaced = [{"cluster_id": name, "dt": f"{day}"} for name in clusters for day in days]
    tables = {table: [twin(table, each)] for table, each in rows.items()}
    with patch.dict(os.environ, {URL_VARIABLE: url}):
        publish_results(job, tables, replaced, REACH)
    return job
