"""Tell who would have been throttled under other quotas: tables ``whatif_…``.

Reads ``rate_minute`` and ``series`` below each ``--input``, ``quota_version`` below ``--quotas``,
and what is proposed: a body of ``POST /quotas/alterations``, a document of quotas, or
recommendations. Nothing is changed by it.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from app.domain.alterations import Quotas
from app.domain.quantities import value_in_words
from app.domain.throttling import TOKEN_KEY
from app.pipeline.advice.evidence import rows_of
from app.pipeline.advice.output import lakes_of, rows_to_table, whole_table, write_advice
from app.pipeline.advice.use import grouped
from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.errors import UsageError
from app.pipeline.job import Job, without_quotas
from app.pipeline.lake import Lake
from app.pipeline.options import number_option
from app.pipeline.partitions import Partition
from app.pipeline.pictures import draw_timelines
from app.pipeline.publishing import SERVED, publish_advice
from app.pipeline.resolve.versions import read_versions
from app.pipeline.results import Reach, Scope, end_of, say_if_empty
from app.pipeline.summary import bucket_name, columns, key_name
from app.pipeline.tables import (
    RATE_MINUTE,
    RECOMMENDATION,
    SERIES,
    WHATIF_ENTITY,
    WHATIF_RUN,
    WHATIF_TIMELINE,
)
from app.pipeline.usage.measures import BYTE_KEYS
from app.pipeline.whatif.buckets import INDETERMINATE, find_touched
from app.pipeline.whatif.minutes import RATES, throttled_buckets, throttled_minutes
from app.pipeline.whatif.proposal import Proposal, quotas_of, read_alterations, read_recommendations

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
        type=number_option(1, kind=int),
        default=_DELIVERY_TIMEOUT_S,
        metavar="S",
        help="a longer delay is a risk: producers give up after their delivery.timeout.ms; "
        f"default {_DELIVERY_TIMEOUT_S}",
    )
    parser.add_argument(
        "--timelines",
        type=number_option(0, kind=int),
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
    lakes = lakes_of(job)
    if lakes is None:
        return
    hours = Scope.of(job).hours(lakes, RATE_MINUTE)
    of_run, through = _write(job, lakes, hours)
    say_if_empty(job)
    if job.options.plot:
        draw_timelines(job, [job.lake()], job.options.plot, job.run_id)
    publish_advice(job, SERVED[job.name], of_run, Reach(through, None))


def _write(
    job: Job, lakes: Sequence[Lake], hours: Sequence[Partition]
) -> tuple[Sequence[Partition], datetime | None]:
    """Write the tables, and count into the report.

    Returns:
        Their partitions, and the end of the last minute: its hour may have begun just now.
    """
    cluster = _cluster(hours)
    now = _current_versions(job, cluster)
    proposal = _proposal(job, quotas_of(now))
    job.read["alterations"] = proposal.as_json()
    job.counts["alterations"] = len(proposal.alterations)
    own = {"cluster_id": cluster or "", "run_id": job.run_id}
    of_run = [own] if hours else []

    is_altered = pc.field("key").isin(proposal.keys)
    series = rows_of(lakes, SERIES, hours, ("series_id", *_OF_SERIES)).reduce(
        lambda rows: grouped(rows.filter(is_altered), ["series_id"], {}, _OF_SERIES)
    )
    versions = (now, proposal.versions(now, own["cluster_id"]))
    touched = find_touched(series, versions, (proposal.before, proposal.proposed()))

    read_rows: list[tuple[int, datetime | None]] = []

    def read(hour: Partition) -> pa.Table:
        rates = columns_of(lakes, Columns(RATE_MINUTE, RATES), [hour])
        read_rows.append((len(rates), pc.max(rates["ts"]).as_py()))
        return rates

    summed = throttled_buckets(read, hours, touched.members)
    job.counts["rows_in"] = sum(rows for rows, _ in read_rows)
    through = max((last + timedelta(minutes=1) for _, last in read_rows if last), default=None)
    entities = _entities(summed, touched.buckets, job.options.delivery_timeout)
    found = _count(entities)
    worst = _worst(entities, ("throttled_s_new_high", "throttled_s_now"))
    worst = worst.slice(0, job.options.timelines)
    is_listed = pc.is_in(touched.members["bucket_id"], worst["bucket_id"].combine_chunks())
    minutes = throttled_minutes(read, hours, touched.members.filter(is_listed))
    row = {
        **own,
        "data_from": hours and end_of(hours[0]) - timedelta(hours=1),
        "data_through": through,
        "delivery_timeout_s": float(job.options.delivery_timeout),
        "alterations": proposal.as_json(),
        **found,
    }
    for table, rows in (
        (WHATIF_ENTITY, whole_table(WHATIF_ENTITY, entities, **own)),
        (WHATIF_TIMELINE, whole_table(WHATIF_TIMELINE, _timelines(minutes, worst), **own)),
        (WHATIF_RUN, rows_to_table(WHATIF_RUN, [row] if hours else [])),
    ):
        write_advice(job, table, rows, of_run)
    job.counts |= {name: value for name, value in found.items() if name != "minutes"}
    job.findings = found["longer"]
    job.summary = list(_lines(entities, found))
    return of_run, through


_OF_SERIES: Final = ("cluster_id", "key", "user", "client_id", "grain")


def _cluster(hours: Sequence[Partition]) -> str | None:
    """Return the cluster of the input; null where there is none."""
    clusters = sorted({hour["cluster_id"] for hour in hours})
    if len(clusters) > 1:
        named = ", ".join(map(repr, clusters))
        message = f"The input has the clusters {named}: name one by --cluster."
        raise UsageError(message)
    return clusters[0] if clusters else None


def _current_versions(job: Job, cluster: str | None) -> pa.Table:
    """Return the quotas of the cluster, and note which clusters have some."""
    current = read_versions(job.quotas()).filter(pc.field("valid_to").is_null())
    limited = current["cluster_id"].unique().to_pylist()
    job.unlimited = without_quotas([cluster] if cluster else [], limited)
    return current.filter(pc.field("cluster_id") == cluster)


def _proposal(job: Job, before: Quotas) -> Proposal:
    if job.options.alterations:
        proposal = read_alterations(job.options.alterations, before)
    else:
        lake = Lake(job.session, job.options.recommendations)
        lake.require(RECOMMENDATION)
        rows = columns_of([lake], Columns(RECOMMENDATION, ("cluster_id", "body"))).to_pylist()
        wanted = job.options.cluster
        bodies = [row["body"] for row in rows if wanted in {None, row["cluster_id"]}]
        proposal = read_recommendations(bodies, before)
    if not proposal.keys:
        message = "Nothing of what is proposed limits a user or client-id, so no traffic changes."
        raise UsageError(message)
    return proposal


_OF_NEW: Final = ("throttled_s_new_low", "throttled_s_new", "throttled_s_new_high")


def _entities(summed: pa.Table, buckets: pa.Table, timeout_s: int) -> pa.Table:
    """Return the columns of ``WHATIF_ENTITY`` but the run's, and what is clear of the buckets."""
    figures = ("throttled_s_now", "minutes_throttled_now", "minutes_throttled", "highest")
    both = summed.join(buckets, "bucket_id", join_type="inner")
    rows = _where_clear(both, *_OF_NEW, *figures, "refused")
    is_bytes = pc.is_in(rows["key"], pa.array(BYTE_KEYS))
    delay = pc.coalesce(pc.divide(rows["highest"], rows["limit_new"]), 0.0)
    max_delay = pc.if_else(pc.and_(is_bytes, rows["knows_new"]), delay, None)
    highest = pc.trunc(pc.min_element_wise(rows["highest"], _MOST, skip_nulls=False))
    has_tokens = pc.equal(rows["key"], TOKEN_KEY.value)
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "max_delay_s": max_delay,
        "deferred_bytes_max": pc.if_else(is_bytes, highest.cast(pa.int64()), None),
        "refused": pc.if_else(has_tokens, rows["refused"], None),
        "censored": pc.greater(rows["censored_minutes"], 0),
        "at_risk": pc.fill_null(pc.greater(max_delay, float(timeout_s)), fill_value=False),
    }
    return pa.table(columns)


_MOST: Final = 9e18
"""Bytes that 64 bits hold."""


def _where_clear(rows: pa.Table, *names: str) -> pa.Table:
    """Return figures as null where it is not clear what a bucket's members spend from."""
    for name in names:
        is_clear = rows["knows_now" if name.endswith("_now") else "knows_new"]
        clear = pc.if_else(is_clear, rows[name], None)
        rows = rows.set_column(rows.column_names.index(name), name, clear)
    return rows


def _count(entities: pa.Table) -> Mapping[str, int]:
    """Return what a run found, in numbers of buckets on brokers."""
    now, new = entities["throttled_s_now"], entities["throttled_s_new"]
    counts = {
        "minutes": entities["minutes"],
        "throttled_now": pc.greater(now, 0),
        "throttled_new": pc.greater(new, 0),
        "longer": pc.greater(new, pc.coalesce(now, 0.0)),
        "indeterminate": pc.equal(entities["fidelity"], INDETERMINATE),
        "censored": entities["censored"],
        "at_risk": entities["at_risk"],
    }
    found = {name: pc.sum(column).as_py() or 0 for name, column in counts.items()}
    return {**found, "buckets": len(entities)}


def _worst(entities: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return the buckets on brokers that are throttled by any figure, the longest first."""
    longest = pc.max_element_wise(*(entities[name] for name in by))
    order = [(name, "descending") for name in by]
    order += [(name, "ascending") for name in ("key", "bucket_id", "broker_id")]
    return entities.filter(pc.greater(longest, 0)).sort_by(order)


def _timelines(minutes: pa.Table, worst: pa.Table) -> pa.Table:
    """Return the columns of ``WHATIF_TIMELINE`` but the run's, of some buckets on brokers."""
    position = ["bucket_id", "broker_id"]
    of_bucket = worst.select([*position, "key", "knows_now", "knows_new"])
    rows = minutes.join(of_bucket, position, join_type="inner")
    return _where_clear(rows, *_OF_NEW, "waiting", "waiting_max", "throttled_s_now")


def _lines(entities: pa.Table, found: Mapping[str, int]) -> Iterator[str]:
    worst = _worst(entities, ("throttled_s_new",)).slice(0, _LISTED).to_pylist()
    yield ""
    yield (
        f"Buckets on brokers throttled under the new quotas: {found['throttled_new']}, "
        f"now {found['throttled_now']}"
    )
    header = ("throttled", "low to high", "now", "delay", "bucket", "broker", "limit", "now limit")
    yield from columns(header, [_cells(row) for row in worst])
    if found["at_risk"]:
        yield f"At risk (!): {found['at_risk']}. Producers give up sooner (--delivery-timeout)."
    if found["censored"]:
        yield (
            f"Throttled before, or at their limit: {found['censored']}. Their clients may have "
            "wanted more, so these figures are lower bounds. Raise in steps, and measure again."
        )
    if found["indeterminate"]:
        yield (
            "Indeterminate, since their metrics are sums of clients that would be split: "
            f"{found['indeterminate']}."
        )


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
