"""Find the stretches in which a bucket was throttled or over its limit: ``throttle_incident``.

Reads ``bucket_minute`` below each ``--input``, with ``dim_bucket`` and, for the first contributors,
``observation_minute`` where they are there too. Incidents that begin on a day of the input are
replaced, the others stay. A stretch across midnight is one incident if both days are read together.
An incident names the quota that limits, and who sent most when it began.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from app.pipeline.commands.utilization import value_at_rank
from app.pipeline.job import Job
from app.pipeline.lake import Lake, Partition, read_any
from app.pipeline.options import whole_number
from app.pipeline.pictures import draw_if_asked
from app.pipeline.publishing import publish
from app.pipeline.results import (
    Scope,
    carry_names,
    days_of,
    is_violating,
    read_minutes,
    say_if_empty,
    say_plan,
    throttle_ms,
    usable_limit,
    write_result,
)
from app.pipeline.summary import summarize
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, OBSERVATION_MINUTE, THROTTLE_INCIDENT

_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_ON_BROKER: Final = (*_BUCKET, "broker_id")
_MOST_BYTES: Final = 10**13
"""No broker moves more in a minute; it keeps the sums of absurd rates within 64 bits."""


def find_stretches(minutes: DataFrame, gap: int) -> DataFrame:
    """Find the stretches of violating minutes: throttled, or with a maximum above the limit.

    ``level`` is that of the last minute; ``throttle_ms_p95`` is over the minutes with recorded
    throttling, null without any.

    Args:
        minutes: The columns of ``BUCKET_MINUTE``; rates are per second and broker.
        gap: Violating minutes whose starts are at most this many minutes apart are joined.
    """
    return _summarize(_number_stretches(_violating(minutes), gap))


def with_brokers(found: DataFrame) -> DataFrame:
    """Add ``brokers_affected``: the brokers with an incident of the bucket at the same time.

    Incidents are compared with those of the same hours, so that no bucket's are all compared with
    all.
    """
    hours = [
        sf.expr(f"unix_seconds({end}) div 3600") for end in ("start", "end - interval 1 second")
    ]
    by_hour = found.select(
        *_ON_BROKER, "incident_id", "start", "end", sf.explode(sf.sequence(*hours)).alias("hour")
    )
    other = by_hour.select(
        *_BUCKET,
        "hour",
        sf.col("broker_id").alias("other_broker"),
        sf.col("start").alias("other_start"),
        sf.col("end").alias("other_end"),
    )
    at_once = (sf.col("other_start") < sf.col("end")) & (sf.col("other_end") > sf.col("start"))
    brokers = (
        by_hour.join(other, [*_BUCKET, "hour"])
        .where(at_once)
        .groupBy("cluster_id", "incident_id")
        .agg(sf.count_distinct("other_broker").alias("brokers_affected"))
    )
    return found.join(brokers, ["cluster_id", "incident_id"])


def last_minutes(minutes: DataFrame) -> DataFrame:
    """Return the last minute of each cluster, as ``last_ts``."""
    return minutes.groupBy("cluster_id").agg(sf.max("ts").alias("last_ts"))


def with_status(found: DataFrame, last: DataFrame) -> DataFrame:
    """Close each incident that ends before the last minute that its cluster has.

    Args:
        found: Has ``cluster_id``, ``end`` and ``status``; what was closed stays so.
        last: As ``last_minutes`` returns it.
    """
    goes_on = (sf.col("status") == "open") & (sf.col("end") > sf.col("last_ts"))
    status = sf.when(goes_on, "open").otherwise("closed")
    return found.join(sf.broadcast(last), "cluster_id").withColumn("status", status).drop("last_ts")


def _violating(minutes: DataFrame) -> DataFrame:
    return minutes.where(is_violating()).select(
        *_ON_BROKER,
        "ts",
        "level",
        (sf.col("rate_max") / usable_limit(sf.col("limit"))).alias("ratio"),
        throttle_ms().alias("throttle_ms"),
        deferred_bytes().alias("deferred"),
    )


def deferred_bytes() -> Column:
    """Estimate how many bytes of a minute had to wait, in whole bytes; null for other rates.

    What exceeds the limit waits for as long as the broker throttled: (rate_max - limit) x seconds,
    of which a minute has 60 at most. A broker that delays well keeps the rate at the limit, and
    hides what clients still hold back: the true figure may be larger.
    """
    over = sf.greatest(sf.col("rate_max") - usable_limit(sf.col("limit")), sf.lit(0.0))
    seconds = sf.least(throttle_ms() / 1000, sf.lit(60.0))
    waiting = sf.least(sf.coalesce(over * seconds, sf.lit(0.0)), sf.lit(float(_MOST_BYTES)))
    return sf.when(sf.col("key").endswith("_byte_rate"), sf.floor(waiting))


def _number_stretches(violating: DataFrame, gap: int) -> DataFrame:
    """Give the minutes of one incident the same number: a longer pause begins the next one."""
    # One shuffle, by bucket, serves all that follows.
    by_bucket = violating.repartition(*_BUCKET)
    in_order = Window.partitionBy(*_ON_BROKER).orderBy("ts")
    pause = sf.unix_seconds("ts") - sf.lag(sf.unix_seconds("ts")).over(in_order)
    begins = sf.coalesce(pause > gap * 60, sf.lit(True)).cast("int")
    return by_bucket.withColumn("begins", begins).withColumn(
        "number", sf.sum("begins").over(in_order)
    )


def _summarize(numbered: DataFrame) -> DataFrame:
    throttled = sf.sort_array(sf.collect_list("throttle_ms"))
    start = sf.min("ts")
    return (
        numbered.groupBy(*_ON_BROKER, "number")
        .agg(
            start.alias("start"),
            (sf.max("ts") + sf.expr("interval 1 minute")).alias("end"),
            sf.count(sf.lit(1)).alias("minutes"),
            sf.max("ratio").alias("peak_ratio"),
            throttled.alias("throttled"),
            sf.sum("deferred").alias("est_deferred_bytes"),
            sf.max(sf.struct("ts", "level"))["level"].alias("level"),
        )
        .withColumns({"incident_id": _incident_id(), "status": sf.lit("open")})
        .withColumn("throttle_ms_p95", value_at_rank(95, "throttled"))
        .drop("throttled", "number")
    )


def _incident_id() -> Column:
    """Hash bucket, broker and start, in a form that any language can compute."""
    seconds = sf.unix_seconds("start")
    return sf.left(
        sf.sha2(sf.concat_ws("|", "cluster_id", "bucket_id", "broker_id", seconds), 256), sf.lit(32)
    )


PAIR: Final = "pair"
"""The grain of observations that tell user and client-id apart."""

_MOST_CONTRIBUTORS: Final = 5
_BROADCAST_MAX: Final = 1_000_000
"""Incidents whose first minutes are still sent to every worker whole, about 50 MB."""

_QUOTA: Final = ("quota_user", "quota_user_default", "quota_client_id", "quota_client_default")
_BROKER_MINUTE: Final = ("cluster_id", "key", "broker_id", "ts")
_TAGS: Final = ("bucket_user", "bucket_client")


def with_quotas(found: DataFrame, buckets: DataFrame | None) -> DataFrame:
    """Add the entity whose quota limits the bucket; nulls where the buckets' names are unknown.

    Args:
        found: Has ``cluster_id``, ``bucket_id`` and ``level``.
        buckets: The columns of ``DIM_BUCKET``.
    """
    if buckets is None:
        types = ("string", "boolean", "string", "boolean")
        nothing = zip(_QUOTA, types, strict=True)
        return found.withColumns({name: sf.lit(None).cast(kind) for name, kind in nothing})
    keys = ["cluster_id", "bucket_id", "level"]
    # Bucket and level name one entity; the last seen wins should they ever not.
    latest = buckets.groupBy(*keys).agg(sf.max(sf.struct("last_seen", *_QUOTA)).alias("quota"))
    return found.join(
        latest.select(*keys, *(sf.col(f"quota.{name}") for name in _QUOTA)), keys, "left"
    )


def with_contributors(
    found: DataFrame,
    minutes: DataFrame,
    buckets: DataFrame | None,
    pairs: DataFrame | None,
    rows: int = 0,
) -> DataFrame:
    """Add ``first_contributors``: who had the highest rates in the first minute of an incident.

    At most five, as a JSON list of ``{"user", "client-id", "rate_max"}`` in falling order; null
    where no observation tells user and client-id apart.

    Args:
        found: What ``with_brokers`` gives.
        minutes: The columns of ``BUCKET_MINUTE``.
        buckets: The columns of ``DIM_BUCKET``.
        pairs: The columns of ``OBSERVATION_MINUTE``.
        rows: How many incidents there are: many are joined by partitions.
    """
    if buckets is None or pairs is None:
        return found.withColumn("first_contributors", sf.lit(None).cast("string"))
    begun = found.select(
        *_BROKER_MINUTE[:3], "bucket_id", sf.col("start").alias("ts"), "incident_id"
    )
    first = begun.select(*_BROKER_MINUTE).distinct()
    if rows <= _BROADCAST_MAX:
        first = sf.broadcast(first)
    tags = buckets.select("cluster_id", "bucket_id", *_TAGS).distinct()
    present = minutes.join(first, [*_BROKER_MINUTE], "left_semi")
    present = present.select(*_BROKER_MINUTE, "bucket_id").join(tags, ["cluster_id", "bucket_id"])
    members = _find_members(pairs.join(first, [*_BROKER_MINUTE], "left_semi"), present)
    contributors = (
        members.join(begun, [*_BROKER_MINUTE, "bucket_id"])
        .groupBy("cluster_id", "incident_id")
        .agg(_as_json().alias("first_contributors"))
    )
    return found.join(contributors, ["cluster_id", "incident_id"], "left")


def _find_members(pairs: DataFrame, present: DataFrame) -> DataFrame:
    """Find the bucket that each pair spent from, without looking its quota up again.

    A pair's own bucket has no other member; beside a user's bucket, which exists where a user's
    quota or that of the default user has the key, its pairs never spend from a client-id's. So the
    first of the three that is present in that minute is it.
    """
    user, client, none = sf.col("user"), sf.col("client_id"), sf.lit("")
    tags = [(user, client), (user, none), (none, client)]
    candidates = sf.array(
        *(
            sf.struct(sf.lit(rank).alias("rank"), item.alias(_TAGS[0]), other.alias(_TAGS[1]))
            for rank, (item, other) in enumerate(tags)
        )
    )
    return (
        pairs.where(sf.col("grain") == PAIR)
        .select(*_BROKER_MINUTE, "user", "client_id", "rate_max", sf.inline(candidates))
        .join(present, [*_BROKER_MINUTE, *_TAGS])
        .groupBy(*_BROKER_MINUTE, "user", "client_id")
        .agg(
            sf.min_by("bucket_id", "rank").alias("bucket_id"), sf.max("rate_max").alias("rate_max")
        )
    )


def _as_json() -> Column:
    by_rate = sf.struct((-sf.col("rate_max")).alias("falling"), "user", "client_id", "rate_max")
    first = sf.slice(sf.sort_array(sf.collect_list(by_rate)), 1, _MOST_CONTRIBUTORS)
    return sf.to_json(
        sf.transform(
            first,
            lambda item: sf.struct(
                item["user"].alias("user"),
                item["client_id"].alias("client-id"),
                item["rate_max"].alias("rate_max"),
            ),
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how long a pause may be."""
    parser.add_argument(
        "--gap",
        type=partial(whole_number, least=1),
        default=1,
        metavar="MINUTES",
        help="join violating minutes that start at most this far apart; default 1",
    )
    parser.epilog = "A finding is an incident."


def run(job: Job) -> None:
    """Write the incidents that begin on the days of the input.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or an input has no ``bucket_minute``.
    """
    scope = Scope.of(job)
    job.require_options()
    with job.spark():
        if job.options.dry_run:
            say_plan(job, (THROTTLE_INCIDENT, DIM_BUCKET))
            return
        lakes, out = job.lakes(), job.lake()
        minutes = read_minutes(lakes, scope)
        job.counts["rows_in"] = minutes.count()
        say_if_empty(job)
        buckets = carry_names(job, lakes, out, scope)
        days = days_of(lakes, BUCKET_MINUTE, scope)
        observations = read_any(lakes, OBSERVATION_MINUTE)
        pairs = None if observations is None else scope.minutes(observations)
        write_incidents(job, minutes, days, buckets=buckets, observations=pairs)
    publish(job, minutes, days)
    draw_if_asked(job, [*lakes, out])
    summarize(job, [*lakes, out])


def write_incidents(
    job: Job,
    minutes: DataFrame,
    days: Sequence[Partition],
    *,
    buckets: DataFrame | None,
    observations: DataFrame | None,
) -> None:
    """Write the incidents, and count into the report; those that begin on other days stay.

    Args:
        job: Has ``--gap``; gets counts and findings.
        minutes: The columns of ``BUCKET_MINUTE``.
        days: The partitions by day that the run is about.
        buckets: The columns of ``DIM_BUCKET``; null where the names are unknown.
        observations: The columns of ``OBSERVATION_MINUTE``; null where there are none at hand.
    """
    out = job.lake()
    stretches = find_stretches(minutes, job.options.gap).persist()
    found = with_brokers(stretches).persist()
    count = found.count()
    rows = with_quotas(found, buckets)
    pairs = _pairs(observations)
    rows = with_contributors(rows, minutes, buckets, pairs, count)
    if out.has(THROTTLE_INCIDENT):
        rows = rows.unionByName(_read_earlier(out, days).select(*rows.columns))
    rows = with_status(rows, last_minutes(minutes))
    clusters = [{"cluster_id": item} for item in sorted({day["cluster_id"] for day in days})]
    write_result(job, rows, THROTTLE_INCIDENT, out, clusters)
    for frame in (stretches, found):
        frame.unpersist()
    job.counts["incidents"] = count
    job.findings += count


def _read_earlier(out: Lake, days: Sequence[Partition]) -> DataFrame:
    """Return the published incidents of these clusters that begin on other days."""
    read = [(day["cluster_id"], day["dt"]) for day in days]
    replaced = sf.broadcast(out.session.createDataFrame(read, "cluster_id string, day string"))
    begun = out.read(THROTTLE_INCIDENT).withColumn("day", sf.date_format("start", "yyyy-MM-dd"))
    own = begun.join(replaced, "cluster_id", "left_semi")
    return own.join(replaced, ["cluster_id", "day"], "left_anti")


def _pairs(observations: DataFrame | None) -> DataFrame | None:
    """Return the observations that tell user and client-id apart; null without any."""
    if observations is None:
        return None
    pairs = observations.where(sf.col("grain") == PAIR)
    return None if pairs.isEmpty() else pairs
