"""Tell who would have been throttled under other quotas: tables ``whatif_…``.

Reads ``rate_minute`` and ``series`` below each ``--input``, ``quota_version`` below ``--quotas``,
and what is proposed: a body of ``POST /quotas/alterations``, a document of quotas, or
recommendations. Nothing is changed by it.
"""

import argparse
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.documents.text import pad, width_of
from app.domain.quantities import value_in_words
from app.pipeline.errors import UsageError
from app.pipeline.job import READS, Job
from app.pipeline.lake import Lake, Partition, read_first
from app.pipeline.local_tables import local_partitions
from app.pipeline.options import whole_number
from app.pipeline.pictures import draw_timelines
from app.pipeline.publishing import publish_advice
from app.pipeline.results import Reach, Scope, explain, say_if_empty, say_plan
from app.pipeline.summary import bucket_name, key_name
from app.pipeline.tables import (
    QUOTA_VERSION,
    RATE_MINUTE,
    RECOMMENDATION,
    SERIES,
    WHATIF_ENTITY,
    WHATIF_RUN,
    WHATIF_TIMELINE,
)
from app.pipeline.usage.measures import BYTE_KEYS
from app.pipeline.whatif.buckets import INDETERMINATE, Touched, find_touched
from app.pipeline.whatif.minutes import (
    MINUTES_OF_TASK,
    RATES,
    Rates,
    throttled_buckets,
    throttled_minutes,
)
from app.pipeline.whatif.proposal import (
    Proposal,
    quotas_of,
    read_alterations,
    read_recommendations,
)

WRITES: Final = (WHATIF_RUN, WHATIF_ENTITY, WHATIF_TIMELINE)

_DELIVERY_TIMEOUT_S: Final = 120
_TIMELINES: Final = 20
_LISTED: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is proposed, and what counts as a risk."""
    parser.add_argument("--quotas", metavar="DIR", help="the folder above quota_version")
    proposed = parser.add_mutually_exclusive_group(required=True)
    proposed.add_argument(
        "--alterations",
        metavar="FILE",
        help="what is proposed: a body of POST /quotas/alterations, or a document of quotas",
    )
    proposed.add_argument(
        "--recommendations", metavar="DIR", help="instead: the folder above recommendation"
    )
    parser.add_argument(
        "--delivery-timeout",
        type=partial(whole_number, least=1),
        default=_DELIVERY_TIMEOUT_S,
        metavar="S",
        help="a longer delay is a risk: producers give up after their delivery.timeout.ms; "
        f"default {_DELIVERY_TIMEOUT_S}",
    )
    parser.add_argument(
        "--timelines",
        type=partial(whole_number, least=0),
        default=_TIMELINES,
        metavar="N",
        help="write the minutes of so many buckets on brokers, those throttled longest; "
        f"default {_TIMELINES}",
    )
    parser.epilog = (
        "A finding is a bucket on a broker that would be throttled longer than now. Not modelled: "
        "connections that share a limit unevenly, the sizes of fetches, clients that give up or "
        "send again, the interplay of two keys."
    )


def run(job: Job) -> None:
    """Write the tables for the hours of the input.

    Raises:
        UsageError: An option is missing, a folder lacks its table, what is proposed cannot be read
            or breaks a rule, or the input has several clusters.
        InfrastructureError: Spark fails.
    """
    scope = Scope.of(job)
    job.require_options(quotas=True)
    with job.spark():
        if job.options.dry_run:
            say_plan(job, WRITES)
            job.counts["would_read"].append(job.quotas().address(QUOTA_VERSION))
            return
        lakes, out = job.lakes(), job.lake()
        for lake in lakes:
            for table in READS[job.name]:
                lake.require(table)
        hours = scope.hours(lakes, RATE_MINUTE)
        cluster = _cluster(hours)
        versions = job.quotas().read(QUOTA_VERSION).where("valid_to is null")
        job.with_quotas = sorted(
            row[0] for row in versions.select("cluster_id").distinct().collect()
        )
        job.without_quotas = [cluster] if cluster and cluster not in job.with_quotas else []
        now = versions.where(sf.col("cluster_id") == sf.lit(cluster)).drop("valid_from", "valid_to")
        now = now.withColumn("valid_to", sf.lit(None).cast("timestamp")).persist()
        proposal = _proposal(job, now)
        job.read["alterations"] = proposal.as_json()
        job.counts["alterations"] = len(proposal.alterations)
        of_run = _write(job, lakes, out, hours, (proposal, now))
        say_if_empty(job)
        if job.options.plot:
            draw_timelines(job, [out], job.options.plot, job.run_id)
    publish_advice(job, WRITES, of_run, Reach(_end(hours), None))


def _cluster(hours: Sequence[Partition]) -> str | None:
    """Return the cluster of the input; null where there is none."""
    clusters = sorted({hour["cluster_id"] for hour in hours})
    if len(clusters) > 1:
        named = ", ".join(map(repr, clusters))
        message = f"The input has the clusters {named}: name one by --cluster."
        raise UsageError(message)
    return clusters[0] if clusters else None


def _proposal(job: Job, now: DataFrame) -> Proposal:
    before = quotas_of(now)
    if job.options.alterations:
        proposal = read_alterations(job.options.alterations, before)
    else:
        lake = Lake(job.session, job.options.recommendations)
        rows = Scope.of(job).of_cluster(lake.read(RECOMMENDATION)).where("body is not null")
        proposal = read_recommendations(rows.toArrow().to_pylist(), before)
    if not proposal.keys:
        message = "Nothing of what is proposed limits a user or client-id, so no traffic changes."
        raise UsageError(message)
    return proposal


def _write(
    job: Job,
    lakes: Sequence[Lake],
    out: Lake,
    hours: Sequence[Partition],
    proposed: tuple[Proposal, DataFrame],
) -> Sequence[Partition]:
    """Write the tables, count into the report, and return their partitions."""
    proposal, now = proposed
    cluster = _cluster(hours) or ""
    series = read_first(lakes, SERIES, hours).where(sf.col("key").isin(proposal.keys))
    names = ("cluster_id", "series_id", "key", "user", "client_id", "grain")
    touched = find_touched(
        series.select(*names).distinct(),
        (now, proposal.versions(now, cluster)),
        (proposal.before, proposal.proposed()),
    )
    here = local_partitions(lakes, RATE_MINUTE, hours, RATES)
    rates = here or read_first(lakes, RATE_MINUTE, hours)
    job.counts["rows_in"] = rates.count()
    shares = 1 + job.counts["rows_in"] // MINUTES_OF_TASK
    summed = throttled_buckets(rates, touched.members, shares=shares)
    rows = _entities(summed, touched, job.options.delivery_timeout)
    own = {
        "cluster_id": sf.lit(cluster),
        "run_id": sf.lit(job.run_id),
    }
    entities = rows.withColumns(own).localCheckpoint()
    found = _count(entities)
    scope = [{"cluster_id": hour["cluster_id"], "run_id": job.run_id} for hour in hours[:1]]
    job.counts["rows_out"] = {}

    worst = _worst(entities, job.options.timelines)
    minutes = _timelines(rates, touched, worst, shares).withColumns(own).localCheckpoint()
    of_run = [_run_row(job, hours, proposal, found)] if hours else []
    results = {
        WHATIF_ENTITY: entities,
        WHATIF_TIMELINE: minutes,
        WHATIF_RUN: job.session.createDataFrame(of_run, WHATIF_RUN.ddl),
    }
    for table, frame in results.items():
        explain(job, table, frame)
        written = out.write(frame.repartition(1), table, scope)
        job.counts["rows_out"][table.name] = written
    job.counts |= {name: value for name, value in found.items() if name != "minutes"}
    job.findings = found["longer"]
    job.summary = list(_lines(entities, found))
    return scope


_OF_NEW: Final = (
    *("throttled_s_new_low", "throttled_s_new", "throttled_s_new_high", "minutes_throttled"),
    *("highest", "refused"),
)


def _entities(summed: DataFrame, touched: Touched, timeout_s: int) -> DataFrame:
    """Return the columns of ``WHATIF_ENTITY`` but the run's; and ``highest``."""
    rows = summed.join(sf.broadcast(touched.buckets), "bucket_id")
    clear = _where_clear(*_OF_NEW, "throttled_s_now", "minutes_throttled_now")
    is_bytes = sf.col("key").isin(*BYTE_KEYS)
    delay = sf.when(is_bytes, sf.expr("coalesce(highest / limit_new, 0d)"))
    figures = {
        "max_delay_s": sf.when(sf.col("knows_new"), delay),
        "deferred_bytes_max": sf.when(is_bytes, sf.expr("cast(least(highest, 9e18) as bigint)")),
        "refused": sf.expr("if(key = 'controller_mutation_rate', refused, null)"),
        "censored": sf.expr("censored_minutes > 0"),
    }
    rows = rows.withColumns(clear).withColumns(figures)
    return rows.withColumn("at_risk", sf.coalesce(sf.col("max_delay_s") > timeout_s, sf.lit(False)))


def _where_clear(*names: str) -> dict[str, Column]:
    """Return figures, null where it is not clear what a bucket's members spend from."""
    sides = {name: "now" if name.endswith("_now") else "new" for name in names}
    return {name: sf.expr(f"if(knows_{side}, {name}, null)") for name, side in sides.items()}


def _count(entities: DataFrame) -> Mapping[str, int]:
    """Return what a run found, in numbers of buckets on brokers."""
    counts = {
        "minutes": "sum(minutes)",
        "buckets": "count(1)",
        "throttled_now": "count_if(throttled_s_now > 0)",
        "throttled_new": "count_if(throttled_s_new > 0)",
        "longer": "count_if(throttled_s_new > coalesce(throttled_s_now, 0))",
        "indeterminate": f"count_if(fidelity = '{INDETERMINATE}')",
        "censored": "count_if(censored)",
        "at_risk": "count_if(at_risk)",
    }
    row = entities.select(*(sf.expr(f"{item} as {name}") for name, item in counts.items()))
    return {name: value or 0 for name, value in row.first().asDict().items()}  # type: ignore[union-attr]


def _worst(entities: DataFrame, number: int) -> DataFrame:
    """Return the buckets on brokers that would be throttled longest."""
    throttled = entities.where("greatest(throttled_s_new_high, throttled_s_now) > 0")
    by = (sf.desc_nulls_last("throttled_s_new_high"), sf.desc_nulls_last("throttled_s_now"))
    worst = throttled.sort(*by, "key", "bucket_id", "broker_id").limit(number)
    rows = worst.select("bucket_id", "broker_id", "key", "knows_now", "knows_new")
    return rows.localCheckpoint()


def _timelines(rates: Rates, touched: Touched, worst: DataFrame, shares: int) -> DataFrame:
    """Return the columns of ``WHATIF_TIMELINE`` but the run's, of some buckets on brokers."""
    members = touched.members.join(sf.broadcast(worst.select("bucket_id").distinct()), "bucket_id")
    minutes = throttled_minutes(rates, members, shares=shares)
    rows = minutes.join(sf.broadcast(worst), ["bucket_id", "broker_id"])
    new = ("waiting", "waiting_max", "throttled_s_new_low", "throttled_s_new")
    return rows.withColumns(_where_clear(*new, "throttled_s_new_high", "throttled_s_now"))


def _run_row(
    job: Job, hours: Sequence[Partition], proposal: Proposal, found: Mapping[str, int]
) -> Sequence[Any]:
    values = {
        "cluster_id": hours[0]["cluster_id"],
        "run_id": job.run_id,
        "data_from": _start(hours[0]),
        "data_through": _end(hours),
        "delivery_timeout_s": float(job.options.delivery_timeout),
        "alterations": proposal.as_json(),
        **found,
    }
    return [values[name] for name in WHATIF_RUN.columns]


def _start(hour: Partition) -> datetime:
    return datetime.fromisoformat(f"{hour['dt']}T{int(hour['hour']):02}:00:00+00:00")


def _end(hours: Sequence[Partition]) -> datetime | None:
    return _start(hours[-1]) + timedelta(hours=1) if hours else None


def _lines(entities: DataFrame, found: Mapping[str, int]) -> Sequence[str]:
    """Return what people read."""
    rows = entities.where("throttled_s_new > 0").sort(
        sf.desc("throttled_s_new"), "key", "bucket_id", "broker_id"
    )
    worst = rows.limit(_LISTED).toArrow().to_pylist()
    header = ("throttled", "low to high", "now", "delay", "bucket", "broker", "limit", "now limit")
    cells = [header, *(_cells(row) for row in worst)]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    lines = [
        "",
        (
            f"Throttled under the new quotas: {found['throttled_new']} buckets on brokers, "
            f"now {found['throttled_now']}"
        ),
    ]
    lines += [f"  {'  '.join(map(pad, row, widths)).rstrip()}" for row in cells if worst]
    if found["censored"]:
        lines.append(
            f"{found['censored']} were throttled, or at their limit: their clients may have wanted "
            "more, so their figures are lower bounds. Raise in steps, and measure again."
        )
    if found["indeterminate"]:
        lines.append(
            f"{found['indeterminate']} are indeterminate: their metrics are sums of clients that "
            "would be split."
        )
    return lines


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    low, high = row["throttled_s_new_low"], row["throttled_s_new_high"]
    delay, now = row["max_delay_s"], row["throttled_s_now"]
    return (
        f"{row['throttled_s_new']:,.0f} s",
        f"{low:,.0f} to {high:,.0f} s",
        "-" if now is None else f"{now:,.0f} s",
        "-" if delay is None else f"{delay:,.0f} s{' !' if row['at_risk'] else ''}",
        f"{bucket_name(row)} {key_name(row['key'])}",
        f"{row['broker_id']}",
        _limit(row, "limit_new"),
        _limit(row, "limit_now"),
    )


def _limit(row: Mapping[str, Any], name: str) -> str:
    return "-" if row[name] is None else value_in_words(row["key"], row[name])
