"""Look for what would make results wrong or missing, on this machine and in the data.

Each check is ok, warn or fail, with a sentence that says what to do. Warnings and failures are
findings.
"""

import argparse
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import groupby
from typing import Any, Final, NamedTuple

import httpx
from pyspark.sql import DataFrame

from app.domain.broker_metrics import NO_QUOTA_METRICS, UNSPLIT, UP
from app.java import JavaMissingError, find_java
from app.pipeline.commands.collect import COLLECTED
from app.pipeline.errors import InfrastructureError
from app.pipeline.folders import SPARK_ERRORS, retried
from app.pipeline.ingest.points import UNDECODABLE
from app.pipeline.job import Job, without_quotas
from app.pipeline.lake import Lake, schema_of
from app.pipeline.options import read_file
from app.pipeline.results import BrokerCoverage, Scope, broker_coverage
from app.pipeline.spark import spark_failures
from app.pipeline.summary import Results
from app.pipeline.tables import (
    BEGIN_OF_HOUR,
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

OK, WARN, FAIL = _STATUSES = ("ok", "warn", "fail")


class Check(NamedTuple):
    """What was looked at, its status, and what to do about it."""

    check: str
    status: str
    detail: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which service to ask."""
    parser.add_argument(
        "--server", metavar="URL", help="the service, to ask whether brokers have a callback"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with a token for the service")
    parser.epilog = (
        "--input names folders with metrics, quotas or results, also before a run. A finding is a "
        "warning or a failure. --dry-run checks neither Spark nor tables."
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
    for status in _STATUSES:
        job.counts[status] = sum(check.status == status for check in checks)
    job.findings = job.counts[WARN] + job.counts[FAIL]
    if job.options.json:
        job.counts["checks"] = [check._asdict() for check in checks]


def _checks(job: Job) -> Iterator[Check]:
    yield from _machine_checks()
    if not job.options.dry_run:
        started = Check("spark", *_spark(job))
        yield started
        if started.status == OK and job.options.input:
            lakes = job.lakes()
            found = list(_tables(lakes))
            yield from found
            if all(check.status != FAIL for check in found):
                yield from retried(lambda: [*_data_checks(Results(lakes, Scope.of(job)))])
    if job.options.server:
        file = job.options.token_file
        token = None if file is None else read_file("--token-file", file).strip()
        yield Check("quota callback", *_callback(job.options.server, token))


def _machine_checks() -> Iterator[Check]:
    """Look at Java, and name the versions that results depend on."""
    try:
        yield Check("java", OK, f"{find_java()} is new enough.")
    except JavaMissingError as error:
        yield Check("java", FAIL, str(error))
    yield Check("python", OK, f"Python {platform.python_version()} at {sys.executable}.")
    for package in ("pyspark", "pyarrow"):
        yield Check(package, OK, f"{package} {version(package)}.")


def _spark(job: Job) -> tuple[str, str]:
    """Start Spark, and count to a hundred."""
    try:
        with spark_failures():
            counted = job.session.range(100).count()
            spark = f"Spark {job.session.version} on {job.session.conf.get('spark.master')}"
    except InfrastructureError as error:
        return FAIL, f"{error} Look at --master and --conf, and at the lines above."
    if counted != 100:
        return FAIL, f"{spark} counts wrong: {counted} of 100 rows."
    return OK, f"{spark} starts and counts."


_KAFKAS_RULES: Final = "kafka"


def _callback(server: str, token: str | None) -> tuple[str, str]:
    """Ask the service whether a broker has a ``client.quota.callback.class`` of its own.

    Such a broker applies limits of its own making, which no stored quota tells.

    Source: KIP-257.
    """
    url, caller = f"{server.rstrip('/')}/quotas/resolve", {"user": "ANONYMOUS"}
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        response = httpx.get(url, params=caller, headers=headers, timeout=10.0)
        document = dict(response.json())
    except (httpx.HTTPError, httpx.InvalidURL, TypeError, ValueError) as error:
        return FAIL, f"{server} does not answer ({error}): see that the service runs."
    if response.status_code != httpx.codes.OK:
        status = f"{server} answers {response.status_code} {document.get('code', '')}".rstrip()
        return FAIL, f"{status}: give --token-file of a principal that may describe."
    if document.get("authoritative") is not True:
        return FAIL, (
            "a broker has client.quota.callback.class set: limits and buckets of these results are "
            "what is configured, not what is enforced. Do not act on them without asking its owner."
        )
    model = (document.get("callback") or {}).get("model", _KAFKAS_RULES)
    if model != _KAFKAS_RULES:
        return OK, (
            f"the brokers have the callback {model}: give resolve and run its file (--callback), "
            "else their results are what is configured, not what is enforced."
        )
    return OK, "no broker has a callback of its own: results are authoritative."


_MAY_BE_EMPTY: Final = (
    *(QUARANTINE, QUOTA_CONFLICT, QUOTA_FAILED, THROTTLE_INCIDENT),
    *(STALE_QUOTA, UNCOVERED_CLIENT, DRIFT_FINDING),
)
"""Of these no row is the good case."""

_TO_MINUTE: Final = "%Y-%m-%d %H:%M UTC"
_TIMES: Final = ("ts", "start", "valid_from", "taken_at", "last_seen")


def _tables(lakes: Sequence[Lake]) -> Iterator[Check]:
    """Say how many rows each table has, and from when to when."""
    for lake in lakes:
        found = [table for table in (*TABLES.values(), COLLECTED) if lake.has(table)]
        for table in found:
            yield Check(table.name, *_rows(lake, table))
        if not found:
            sentence = f"{lake.name} has no table of these jobs: name the folder above the tables."
            yield Check("tables", FAIL, sentence)


def _rows(lake: Lake, table: Table) -> tuple[str, str]:
    hour = BEGIN_OF_HOUR if "hour" in table.columns else "cast(null as timestamp)"
    time = next((name for name in _TIMES if name in table.columns), hour)
    figures = ("count(*)", f"min({time})", f"max({time})")
    try:
        found = retried(lambda: lake.read(table).selectExpr(*figures).toArrow())
    except SPARK_ERRORS as error:
        reason = str(error).splitlines()[0]
        return FAIL, f"{lake.address(table)} cannot be read ({reason}): write it again."
    number, first, last = found.to_pylist()[0].values()
    if not number and table not in _MAY_BE_EMPTY:
        address = lake.address(table)
        return WARN, f"{address} has no rows: look at the report of the job that wrote it."
    period = f", {first:%Y-%m-%d %H:%M} to {last:{_TO_MINUTE}}" if first else ""
    return OK, f"{number:,} rows{period}."


class Rule(NamedTuple):
    """A question to a table: each row of the answer is a check, and a warning if it is ``wrong``.

    Attributes:
        check: Its name; as the sentences, with the columns of the row in it.
        table: Without rows of it the question is not asked.
        fine: The sentence of a row that is no warning.
        wrong: The sentence of a warning.
    """

    check: str
    table: str
    query: str
    fine: str
    wrong: str

    def judge(self, row: Mapping[str, Any]) -> Check:
        """Return what a row of the answer says."""
        status, detail = (WARN, self.wrong) if row["wrong"] else (OK, self.fine)
        return Check(self.check.format(**row), status, detail.format(**row))


_METRICS: Final = "metrics"
"""``series``, or what was collected where there is none."""

_RULES: Final = (
    Rule(
        "quota metrics of broker {broker_id} of {cluster_id}",
        COLLECTED.name,
        """select cluster_id, broker_id, count_if(metric = {up} and value <> 0) scrapes,
        count_if(metric <> {up}) samples, samples = 0 and scrapes > 0 wrong
        from {collected} group by 1, 2 order by 1, 2""",
        "{samples:,} samples in {scrapes:,} scrapes.",
        f"No quota metrics in these scrapes: {NO_QUOTA_METRICS}.",
    ),
    Rule(
        "exporter rules",
        _METRICS,
        """select coalesce(sum(n), 0) found, found > 0 wrong from (
        select user text, 1 n from {metrics} union all
        select raw, n from {quarantine} where reason = {undecodable}) where text rlike {unsplit}""",
        "no user holds a client-id.",
        "in {found:,} rows the user holds `, client-id=`, which no name can: in the exporter's "
        "rules that for user and client-id must come before that for users. Both would be taken "
        "for the user's quota.",
    ),
    Rule(
        "names decoded",
        SERIES.name,
        """select count(name) found, min(name) first, found > 0 wrong
        from (select distinct explode(array(user, client_id)) name from {series})
        where name rlike '%[0-9A-Fa-f][0-9A-Fa-f]'""",
        "no name holds %XX.",
        "{found} names hold %XX, such as {first!r}: they match no quota if the source encodes "
        "names. Ingest with `urlencoded: true` in the --map.",
    ),
    Rule(
        "names present",
        SERIES.name,
        """select avg(int(user = '')) no_user, avg(int(client_id = '')) no_client,
        avg(int(user = '' and client_id = '')) nobody, nobody > 0.5 wrong
        from {series} where dt = (select max(dt) from {series})""",
        "of the series of the last day {no_user:.1%} have no user, {no_client:.1%} no client-id, "
        "and {nobody:.1%} neither.",
        "{nobody:.1%} of the series of the last day have neither user nor client-id: see that the "
        "exporter keeps these two labels.",
    ),
    Rule(
        "level 0",
        BUCKET_HOUR.name,
        """select sum(if(level = 0, minutes, 0)) / sum(minutes) share, share > 0.5 wrong
        from {bucket_hour}""",
        "no quota limits {share:.1%} of the bucket minutes.",
        "no quota limits {share:.1%} of the bucket minutes: see that --quotas is of this cluster "
        "and names agree.",
    ),
    Rule(
        "throttle times",
        BUCKET_HOUR.name,
        """select count(throttle_ms_peak) throttled, sum(minutes_over_100) > 0 and throttled = 0
        wrong from {bucket_hour}""",
        "{throttled:,} bucket hours have one.",
        "rates are above limits, and no throttle time was ever recorded: add an exporter rule for "
        "the attribute throttle-time.",
    ),
    Rule(
        "quarantine",
        QUARANTINE.name,
        """select array_join(collect_list(text), ', ') most, true wrong from (
        select concat(reason, ' (', format_number(sum(n), 0), ')') text
        from {quarantine} group by reason order by sum(n) desc, reason limit 3)""",
        "",
        "rows were left out by ingest: {most}. The table has their text.",
    ),
)
_CONSTANTS: Final = {"up": UP, "undecodable": UNDECODABLE, "unsplit": UNSPLIT}


def _data_checks(results: Results) -> Iterator[Check]:
    session, frames, empty = results.lakes[0].session, dict[str, DataFrame](), set[str]()
    for table in (COLLECTED, SERIES, BUCKET_HOUR, QUOTA_VERSION, QUARANTINE, RATE_MINUTE):
        frame = results.read(table)
        if frame is None or frame.isEmpty():
            frame = session.createDataFrame([], schema_of(table))
            empty.add(table.name)
        frames[table.name] = frame
    metrics = COLLECTED.name if SERIES.name in empty else SERIES.name
    frames[_METRICS] = frames[metrics]
    if metrics in empty:
        empty.add(_METRICS)
    elif QUOTA_VERSION.name not in empty:
        yield _clusters(frames[metrics], frames[QUOTA_VERSION.name])
    values: dict[str, Any] = {**frames, **_CONSTANTS}
    for rule in _RULES:
        if rule.table not in empty:
            rows = session.sql(rule.query, **values).collect()
            yield from (rule.judge(row.asDict()) for row in rows)
    if SERIES.name not in empty:
        yield from _metrics(frames[SERIES.name], frames[QUOTA_VERSION.name])
    yield from _brokers(frames[BUCKET_HOUR.name], frames[RATE_MINUTE.name])


def _clusters(metrics: DataFrame, versions: DataFrame) -> Check:
    """Compare the clusters of metrics and quotas: where they differ nothing has a limit."""
    observed, limited = _distinct(metrics, "cluster_id"), _distinct(versions, "cluster_id")
    sentence = without_quotas(observed, limited)
    are_limited = f"there are quotas of {', '.join(sorted(observed))}."
    return Check("cluster ids", FAIL if sentence else OK, sentence or are_limited)


def _metrics(series: DataFrame, versions: DataFrame) -> Iterator[Check]:
    """Look for keys with quotas and no metric: brokers record a type once it has a quota."""
    seen, limited = _distinct(series, "key"), _distinct(versions.where("valid_to is null"), "key")
    for key, resource in RESOURCES.items():
        status, detail = OK, f"{key} is observed."
        if key in limited - seen:
            status, detail = (
                WARN,
                (
                    f"{key} has quotas and no observation: add an exporter rule for "
                    f"kafka.server:type={resource}, or scrape the node that enforces it."
                ),
            )
        elif key not in seen:
            detail = f"{key} is not observed: {NO_QUOTA_METRICS}."
        yield Check(f"metric {resource}", status, detail)


_LEAST_COVERAGE: Final = 0.9
_MOST_SKEW: Final = timedelta(minutes=5)


def _brokers(hours: DataFrame, rates: DataFrame) -> Iterator[Check]:
    """Look at the coverage of each broker, of minutes where there are any, and at the clocks."""
    present = "shiftleft(1L, minute(ts)) as present"
    reported = rates.selectExpr("cluster_id", "dt", "hour", "broker_id", present)
    brokers = broker_coverage(reported) or broker_coverage(hours)
    for broker in brokers:
        name = f"coverage of broker {broker.broker_id} of {broker.cluster_id}"
        sentence = f"{broker.minutes:,} of {broker.expected:,} minutes ({broker.share:.1%})"
        if broker.share < _LEAST_COVERAGE:
            sentence += ": its scrapes fail at times; look at `up` and its timeouts"
        yield Check(name, OK if broker.share >= _LEAST_COVERAGE else WARN, f"{sentence}.")
    for cluster, own in groupby(brokers, key=lambda broker: broker.cluster_id):
        yield Check(f"clocks of {cluster}", *_clocks(list(own)))


def _clocks(brokers: Sequence[BrokerCoverage]) -> tuple[str, str]:
    end = brokers[0].cluster_last
    late = [f"{broker.broker_id}" for broker in brokers if end - broker.last > _MOST_SKEW]
    if end > datetime.now(UTC) + _MOST_SKEW:
        future = f"the last minute, {end:{_TO_MINUTE}}, is in the future: set the clocks by NTP."
        return FAIL, future
    if late:
        return WARN, (
            f"the last minute of broker {', '.join(late)} is more than 5 minutes before that of "
            "the others: it was not scraped, or a clock is wrong."
        )
    return OK, f"all brokers end within 5 minutes of {end:{_TO_MINUTE}}."


def _distinct(frame: DataFrame, column: str) -> set[str]:
    return {row[0] for row in frame.select(column).distinct().collect()}
