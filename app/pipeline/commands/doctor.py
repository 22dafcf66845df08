"""Look for what would make results wrong or missing, on this machine and in the data.

Each check is ok, warn or fail, with a sentence that says what to do. Warnings and failures are
findings.
"""

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import groupby
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.broker_metrics import NO_QUOTA_METRICS, UNSPLIT, UP
from app.java import JavaMissingError, find_java
from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import SPARK_ERRORS, retried
from app.pipeline.ingest.points import UNDECODABLE
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.options import read_file
from app.pipeline.results import BrokerCoverage, Scope, broker_coverage, reported_minutes
from app.pipeline.summary import Results
from app.pipeline.tables import (
    BUCKET_HOUR,
    DRIFT_FINDING,
    QUARANTINE,
    QUOTA_CONFLICT,
    QUOTA_FAILED,
    QUOTA_VERSION,
    RATE_MINUTE,
    RESOURCES,
    SERIES,
    STALE_QUOTA,
    TABLES,
    THROTTLE_INCIDENT,
    UNCOVERED_CLIENT,
    Table,
)

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


class Check(NamedTuple):
    """One thing that was looked at.

    Attributes:
        check: Its name.
        status: ``ok``, ``warn`` or ``fail``.
        detail: What was found, and what to do about it.
    """

    check: str
    status: str
    detail: str


def ok(check: str, detail: str) -> Check:
    """Return a check without a complaint."""
    return Check(check, OK, detail)


def warn(check: str, detail: str) -> Check:
    """Return a check that makes results doubtful or incomplete."""
    return Check(check, WARN, detail)


def fail(check: str, detail: str) -> Check:
    """Return a check that makes results wrong or impossible."""
    return Check(check, FAIL, detail)


_CALLBACK: Final = "quota callback"
_KAFKAS_RULES: Final = "kafka"
_TIMEOUT_S: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which service to ask."""
    parser.add_argument(
        "--server", metavar="URL", help="of the service, to ask whether brokers decide otherwise"
    )
    parser.add_argument("--token-file", metavar="FILE", help="holds a token for it")
    parser.epilog = (
        "--input names folders with metrics, quotas or results: before a run, too. A finding is a "
        "warning or a failure. --dry-run leaves Spark and the tables alone."
    )


def run(job: Job) -> None:
    """Make all checks and report them.

    Raises:
        UsageError: ``--token-file`` cannot be read.
    """
    checks = []
    for check in _checks(job):
        checks.append(check)
        if not job.options.json:
            print(f"{check.status.upper():4}  {check.check}: {check.detail}", flush=True)
    for status in (OK, WARN, FAIL):
        job.counts[status] = sum(check.status == status for check in checks)
    job.findings = job.counts[WARN] + job.counts[FAIL]
    if job.options.json:
        job.counts["checks"] = [check._asdict() for check in checks]


def _checks(job: Job) -> Iterator[Check]:
    yield from _machine_checks()
    if not job.options.dry_run:
        started = _spark_check(job)
        yield started
        if started.status == OK and job.options.input:
            lakes = job.lakes()
            found = list(_table_checks(lakes))
            yield from found
            if all(check.status != FAIL for check in found):
                yield from retried(lambda: [*_data_checks(Results(lakes, Scope.of(job)))])
    if job.options.server:
        file = job.options.token_file
        token = None if file is None else read_file("--token-file", file).strip()
        yield _callback_check(job.options.server, token)


def _machine_checks() -> Iterator[Check]:
    """Look at Java, and name the versions that results depend on."""
    try:
        yield ok("java", f"{find_java()} is new enough.")
    except JavaMissingError as error:
        yield fail("java", str(error))
    yield ok("python", f"Python {platform.python_version()} at {sys.executable}.")
    for package in ("pyspark", "pyarrow"):
        yield ok(package, f"{package} {version(package)}.")


def _spark_check(job: Job) -> Check:
    """Start Spark, and count to a hundred."""
    try:
        with job.spark() as session:
            counted = session.range(100).count()
            release, master = session.version, session.conf.get("spark.master")
    except InfrastructureError as error:
        return fail("spark", f"{error} Look at --master and --conf, and at the lines above.")
    if counted != 100:
        return fail("spark", f"Spark {release} on {master} counts wrong: {counted} of 100 rows.")
    return ok("spark", f"Spark {release} starts on {master} and counts.")


def _callback_check(server: str, token: str | None) -> Check:
    """Ask the service whether a broker has a ``client.quota.callback.class`` of its own.

    Such a broker applies limits of its own making, which no stored quota tells.

    Source: KIP-257.
    """
    if urlsplit(server).scheme not in {"http", "https"}:
        return fail(_CALLBACK, f"--server {server} is no http:// or https:// address.")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        response = httpx.get(
            f"{server.rstrip('/')}/quotas/resolve",
            params={"user": "ANONYMOUS"},
            headers=headers,
            timeout=_TIMEOUT_S,
        )
        document = response.json()
    except (httpx.HTTPError, ValueError) as error:
        return fail(_CALLBACK, f"{server} does not answer ({error}): see that the service runs.")
    if not isinstance(document, dict) or response.status_code != httpx.codes.OK:
        code = document.get("code") if isinstance(document, dict) else None
        status = f"{server} answers {response.status_code} {code or ''}".rstrip()
        return fail(_CALLBACK, f"{status}: give --token-file of a principal that may describe.")
    model = (document.get("callback") or {}).get("model", _KAFKAS_RULES)
    if document.get("authoritative") is True and model != _KAFKAS_RULES:
        sentence = (
            f"the brokers have the callback {model}: give resolve and run its file (--callback), "
            "else their results are what is configured, not what is enforced."
        )
        return ok(_CALLBACK, sentence)
    if document.get("authoritative") is True:
        return ok(_CALLBACK, "no broker has a callback of its own: results are authoritative.")
    sentence = (
        "a broker has client.quota.callback.class set: limits and buckets of these results are "
        "what is configured, not what is enforced. Do not act on them without asking its owner."
    )
    return fail(_CALLBACK, sentence)


COLLECTED: Final = Table(
    "collected",
    """cluster_id string, ts timestamp, broker_id int, metric string, resource string, user string,
    client_id string, value double""",
    (),
    (),
)
"""What ``collect`` writes, and ``ingest`` reads."""

_MAY_BE_EMPTY: Final = (
    *(QUARANTINE, QUOTA_CONFLICT, QUOTA_FAILED, THROTTLE_INCIDENT),
    *(STALE_QUOTA, UNCOVERED_CLIENT, DRIFT_FINDING),
)
"""Of these no row is the good case."""

_TIMES: Final = ("ts", "start", "valid_from", "taken_at", "last_seen")
_HOUR: Final = "timestamp_seconds(unix_date(dt) * 86400L + hour * 3600)"


def _table_checks(lakes: list[Lake]) -> Iterator[Check]:
    """Say how many rows each table has, and from when to when."""
    for lake in lakes:
        found = [table for table in (*TABLES.values(), COLLECTED) if lake.has(table)]
        if not found:
            sentence = f"{lake.name} has no table of these jobs: name the folder above the tables."
            yield fail("tables", sentence)
        for table in found:
            yield _table_check(lake, table)


def _table_check(lake: Lake, table: Table) -> Check:
    time = next((name for name in _TIMES if name in table.columns), None)
    hour = _HOUR if "hour" in table.columns else "cast(null as timestamp)"
    when = sf.col(time) if time else sf.expr(hour)
    count = sf.count(sf.lit(1)).alias("rows")
    figures = (count, sf.min(when).alias("first"), sf.max(when).alias("last"))
    try:
        found = retried(lambda: lake.read(table).agg(*figures).toArrow())
        [row] = found.to_pylist()
    except SPARK_ERRORS as error:
        reason = str(error).splitlines()[0]
        sentence = f"{lake.address(table)} cannot be read ({reason}): write it again."
        return fail(table.name, sentence)
    if not row["rows"] and table not in _MAY_BE_EMPTY:
        sentence = (
            f"{lake.address(table)} has no rows: look at the report of the job that wrote it."
        )
        return warn(table.name, sentence)
    first, last = row["first"], row["last"]
    period = f", {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC" if first else ""
    return ok(table.name, f"{row['rows']:,} rows{period}.")


_ENCODED: Final = "%[0-9A-Fa-f]{2}"
_MOST_EMPTY: Final = 0.5
_MOST_UNLIMITED: Final = 0.5
_LEAST_COVERAGE: Final = 0.9
_MOST_SKEW: Final = timedelta(minutes=5)


def _data_checks(results: Results) -> Iterator[Check]:
    """Look at clusters, names, levels, coverage, clocks, metrics and quarantined rows.

    A check whose table is missing or empty is left out.
    """
    series, buckets, versions, quarantine, collected = (
        frame if frame is not None and not frame.isEmpty() else None
        for frame in map(results.read, (SERIES, BUCKET_HOUR, QUOTA_VERSION, QUARANTINE, COLLECTED))
    )
    metrics = series if series is not None else collected
    if metrics is not None and versions is not None:
        yield _clusters(metrics, versions)
    if collected is not None:
        yield from _scrapes(collected)
    if metrics is not None:
        yield _tag_splitting(metrics, quarantine)
    if series is not None:
        yield _name_encoding(series)
        yield _empty(series)
        yield from _metrics(series, versions)
    if buckets is not None:
        yield _limited_share(buckets)
        yield _throttling(buckets)
    yield from _brokers(_coverage(results.read(RATE_MINUTE), buckets))
    if quarantine is not None:
        yield _quarantine_reasons(quarantine)


def _coverage(rates: DataFrame | None, buckets: DataFrame | None) -> list[BrokerCoverage]:
    """Return the coverage of the brokers, of minutes where there are any."""
    if rates is not None and not rates.isEmpty():
        return broker_coverage(reported_minutes(rates))
    return [] if buckets is None else broker_coverage(buckets)


def _clusters(metrics: DataFrame, versions: DataFrame) -> Check:
    """Compare the clusters of metrics and quotas: where they differ nothing has a limit."""
    observed, limited = _distinct(metrics, "cluster_id"), _distinct(versions, "cluster_id")
    without = sorted(observed - limited)
    if not without:
        return ok("cluster ids", f"there are quotas of {', '.join(sorted(observed))}.")
    sentence = (
        f"metrics are of the cluster {', '.join(map(repr, without))}, quotas of "
        f"{', '.join(map(repr, sorted(limited)))}: all rows would be unlimited. Give `collect`, "
        "`ingest` and `snapshot` the same --cluster, Kafka's own id."
    )
    return fail("cluster ids", sentence)


def _scrapes(collected: DataFrame) -> Iterator[Check]:
    """Look for brokers whose scrapes have no quota metric, though the exporter answers."""
    brokers = collected.groupBy("cluster_id", "broker_id").agg(
        sf.count_if((sf.col("metric") == UP) & (sf.col("value") != 0)).alias("up"),
        sf.count_if(sf.col("metric") != UP).alias("samples"),
    )
    for row in brokers.sort("cluster_id", "broker_id").collect():
        check = f"quota metrics of broker {row.broker_id} of {row.cluster_id}"
        if row.samples or not row.up:
            yield ok(check, f"{row.samples:,} samples in {row.up:,} scrapes.")
        else:
            yield warn(check, f"No quota metrics in these scrapes: {NO_QUOTA_METRICS}.")


def _tag_splitting(metrics: DataFrame, quarantine: DataFrame | None) -> Check:
    """Look for users that hold a client-id, which an exporter's rule has not split off."""
    found = metrics.where(sf.col("user").rlike(UNSPLIT)).count()
    if quarantine is not None:
        unsplit = (sf.col("reason") == UNDECODABLE) & sf.col("raw").rlike(UNSPLIT)
        found += quarantine.where(unsplit).agg(sf.sum("n")).collect()[0][0] or 0
    if not found:
        return ok("exporter rules", "no user holds a client-id.")
    sentence = (
        f"in {found:,} rows the user holds `, client-id=`, which no name can: in the exporter's "
        "rules that for user and client-id must come before that for users"
    )
    return warn("exporter rules", f"{sentence}. Both would be taken for the user's quota.")


def _name_encoding(series: DataFrame) -> Check:
    names = series.select(sf.explode(sf.array("user", "client_id")).alias("name")).distinct()
    encoded = names.where(sf.col("name").rlike(_ENCODED))
    found, first = encoded.agg(sf.count("name"), sf.min("name")).collect()[0]
    if not found:
        return ok("names decoded", "no name holds %XX.")
    sentence = (
        f"{found} names hold %XX, such as {first!r}: they match no quota if the source "
        "encodes names. Ingest with `urlencoded: true` in the --map."
    )
    return warn("names decoded", sentence)


def _empty(series: DataFrame) -> Check:
    last = series.agg(sf.max("dt")).collect()[0][0]
    no_user, no_client = sf.col("user") == "", sf.col("client_id") == ""
    shares = [sf.avg(column.cast("int")) for column in (no_user, no_client, no_user & no_client)]
    of_user, of_client, nobody = series.where(sf.col("dt") == last).agg(*shares).collect()[0]
    sentence = (
        f"of the series of the last day {of_user:.1%} have no user, "
        f"{of_client:.1%} no client-id, and {nobody:.1%} neither"
    )
    if nobody > _MOST_EMPTY:
        return warn("names present", f"{sentence}: see that the exporter keeps these two labels.")
    return ok("names present", f"{sentence}.")


def _metrics(series: DataFrame, versions: DataFrame | None) -> Iterator[Check]:
    """Look for keys with quotas and no metric: brokers record a type once it has a quota."""
    seen = _distinct(series, "key")
    limited = set() if versions is None else _distinct(versions.where("valid_to is null"), "key")
    for key, resource in RESOURCES.items():
        check = f"metric {resource}"
        if key in seen:
            yield ok(check, f"{key} is observed.")
        elif key in limited:
            sentence = (
                f"{key} has quotas and no observation: add an exporter rule for "
                f"kafka.server:type={resource}, or scrape the node that enforces it."
            )
            yield warn(check, sentence)
        else:
            yield ok(check, f"{key} is not observed: {NO_QUOTA_METRICS}.")


def _limited_share(buckets: DataFrame) -> Check:
    unlimited = sf.sum(sf.when(sf.col("level") == 0, sf.col("minutes")).otherwise(0))
    share = buckets.agg(unlimited / sf.sum("minutes")).collect()[0][0]
    sentence = f"no quota limits {share:.1%} of the bucket minutes"
    if share > _MOST_UNLIMITED:
        return warn("level 0", f"{sentence}: see that --quotas is of this cluster and names agree.")
    return ok("level 0", f"{sentence}.")


def _throttling(buckets: DataFrame) -> Check:
    throttled, over = buckets.agg(
        sf.count("throttle_ms_peak"), sf.sum("minutes_over_100")
    ).collect()[0]
    if over and not throttled:
        sentence = (
            "rates are above limits, and no throttle time was ever recorded: add an exporter rule "
            "for the attribute throttle-time."
        )
        return warn("throttle times", sentence)
    return ok("throttle times", f"{throttled:,} bucket hours have one.")


def _brokers(coverage: Sequence[BrokerCoverage]) -> Iterator[Check]:
    for cluster, group in groupby(coverage, key=lambda broker: broker.cluster_id):
        brokers = list(group)
        yield from map(_broker_coverage, brokers)
        yield _skew(cluster, brokers)


def _broker_coverage(broker: BrokerCoverage) -> Check:
    name = f"coverage of broker {broker.broker_id} of {broker.cluster_id}"
    sentence = f"{broker.minutes:,} of {broker.expected:,} minutes ({broker.share:.1%})"
    if broker.share < _LEAST_COVERAGE:
        return warn(name, f"{sentence}: its scrapes fail at times; look at `up` and its timeouts.")
    return ok(name, f"{sentence}.")


def _skew(cluster: str, brokers: Sequence[BrokerCoverage]) -> Check:
    name, end = f"clocks of {cluster}", brokers[0].cluster_last
    if end > datetime.now(UTC) + _MOST_SKEW:
        sentence = (
            f"the last minute, {end:%Y-%m-%d %H:%M} UTC, is in the future: set the clocks by NTP."
        )
        return fail(name, sentence)
    late = [broker.broker_id for broker in brokers if end - broker.last > _MOST_SKEW]
    if late:
        sentence = (
            f"the last minute of broker {', '.join(map(str, late))} is more than 5 minutes before "
            "that of the others: it was not scraped, or a clock is wrong."
        )
        return warn(name, sentence)
    return ok(name, f"all brokers end within 5 minutes of {end:%Y-%m-%d %H:%M} UTC.")


def _quarantine_reasons(quarantine: DataFrame) -> Check:
    reasons = quarantine.groupBy("reason").agg(sf.sum("n").alias("n"))
    rows = reasons.sort(sf.desc("n"), "reason").limit(3).collect()
    most = ", ".join(f"{row.reason} ({row.n:,})" for row in rows)
    return warn("quarantine", f"rows were left out by ingest: {most}. The table has their text.")


def _distinct(frame: DataFrame, column: str) -> set[str]:
    return {row[0] for row in frame.select(column).distinct().collect()}
