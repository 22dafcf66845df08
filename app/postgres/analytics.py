"""What the pipeline published, read for the service, and its runs."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, literal, select

from app.domain.plan_impact import BucketName, PublishedBucket
from app.postgres.analytics_query import (
    buckets,
    of_cluster,
    page_statement,
    position_of,
    runs,
    whatif_runs,
)
from app.postgres.pool import Database, Lease
from app.service.queries.analytics import (
    COLUMNS,
    NAMED_BY_ID,
    AnalyticsPage,
    AnalyticsQuery,
    BucketUsage,
    PublishedRun,
    Result,
    Row,
)

_BUCKETS: Final = select(buckets).order_by(
    *(buckets.c[name] for name in ("bucket_id", "level", "quota_user", "quota_client_id"))
)

_USAGE: Final = """
    select want.n, day.dt, day.p95, day.p99, day.peak, day.throttled_minutes, day.coverage
    from unnest(cast(%(keys)s as text[]), cast(%(users)s as text[]), cast(%(clients)s as text[]))
      with ordinality as want (key, bucket_user, bucket_client, n)
    cross join lateral (
      select bucket_id from dim_bucket d
      where d.cluster_id = %(cluster_id)s and d.bucket_user = want.bucket_user
        and d.bucket_client = want.bucket_client and d.key = want.key
      order by last_seen desc nulls last limit 1
    ) bucket
    cross join lateral (
      select * from utilization_daily u
      where u.bucket_id = bucket.bucket_id and u.cluster_id = %(cluster_id)s and u.broker_id is null
      order by dt desc limit 1
    ) day
    """

_BUCKETS_WITH_HISTOGRAMS: Final = """
    with bucket as (
      select bucket_id, key, bucket_user, bucket_client from dim_bucket
      where cluster_id = %(cluster_id)s and key = any(%(keys)s)
      union
      select bucket_id, key, bucket_user, bucket_client from dim_bucket
      join unnest(cast(%(user_keys)s as text[]), cast(%(users)s as text[]))
        as want (key, bucket_user) using (key, bucket_user)
      where cluster_id = %(cluster_id)s
    )
    select bucket_id, key, bucket_user, bucket_client, max(peak) as peak, count(*) as days,
      max(dt) as dt,
      coalesce(bool_or(throttled_minutes > 0 or minutes_over_100 > 0), false) as censored
    from bucket join utilization_daily using (bucket_id, key)
    where cluster_id = %(cluster_id)s and broker_id is null
      and dt >= (select min(dt) from utilization_hist where cluster_id = %(cluster_id)s)
    group by bucket_id, key, bucket_user, bucket_client order by peak desc limit %(most)s
    """
_SHARES_OVER: Final = """
    select bucket_id, coalesce(sum(n) filter (where h.bin > want.bin), 0) / sum(n) as share
    from unnest(cast(%(bucket_ids)s as bigint[]), cast(%(bins)s as integer[]))
      as want (bucket_id, bin) join utilization_hist h using (bucket_id)
    where cluster_id = %(cluster_id)s group by bucket_id
    """
_MOST_BUCKETS: Final = 10_000
"""So many buckets are looked at for the impact of a change: those with the highest peaks."""


def _published(name: str) -> ColumnElement[bool]:
    return literal(name) == func.any(runs.c.published)


def _newest(*conditions: ColumnElement[bool]) -> Select[Any]:
    newest = select(runs.c.run_id, runs.c.data_through, runs.c.coverage).where(*conditions)
    return newest.order_by(runs.c.seq.desc()).limit(1)


class PostgresAnalytics:
    """The port ``AnalyticsStore`` on Postgres; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._report_s = database.patience.report_s

    async def page(self, query: AnalyticsQuery) -> AnalyticsPage:
        """Return one page of a table."""
        return await self._database.querying.run(partial(_page, query), within_s=self._report_s)

    async def run(self, cluster_id: str, run_id: str) -> Row | None:
        """See ``AnalyticsStore``."""
        if "\0" in run_id:
            return None
        wanted = (
            select(*(runs.c[name] for name in COLUMNS[Result.RUNS]))
            .where(runs.c.run_id == run_id, of_cluster(cluster_id))
            .order_by(runs.c.seq.desc())
            .limit(1)
        )
        rows = await self._database.querying.rows(wanted)
        return rows[0]._asdict() if rows else None

    async def whatif_run(self, cluster_id: str, run_id: str) -> Row | None:
        """See ``AnalyticsStore``."""
        if "\0" in run_id:
            return None
        of_run = (whatif_runs.c.cluster_id == cluster_id, whatif_runs.c.run_id == run_id)
        rows = await self._database.querying.rows(select(whatif_runs).where(*of_run))
        return rows[0]._asdict() if rows else None

    async def usage(
        self, cluster_id: str, buckets: Sequence[BucketName]
    ) -> Mapping[BucketName, BucketUsage]:
        """Return the last day of each bucket that has one.

        A resolution waits for it no longer than for anything else: usage is an addition.
        """
        asked = [bucket for bucket in buckets if "\0" not in bucket.user + bucket.client_id]
        return await self._database.querying.run(partial(_usage, cluster_id, asked))

    async def published_buckets(
        self, cluster_id: str, users: Sequence[tuple[str, str]], keys: Sequence[str]
    ) -> Sequence[PublishedBucket] | None:
        """See ``AnalyticsStore``."""
        work = partial(_published_buckets, cluster_id, users, keys)
        return await self._database.querying.run(work, within_s=self._report_s)

    async def shares_over(self, cluster_id: str, bins: Mapping[int, int]) -> Mapping[int, float]:
        """See ``AnalyticsStore``."""
        values = {"cluster_id": cluster_id, "bucket_ids": list(bins), "bins": list(bins.values())}
        rows = await self._database.querying.rows(_SHARES_OVER, values, within_s=self._report_s)
        return {row.bucket_id: float(row.share) for row in rows}


async def _page(query: AnalyticsQuery, lease: Lease) -> AnalyticsPage:
    is_published = (
        func.cardinality(runs.c.published) > 0
        if query.table is Result.RUNS
        else _published(query.table.value)
    )
    newest = _newest(is_published, of_cluster(query.cluster_id), *_of_run(query))
    run = await lease.rows(newest)
    rows = [row._asdict() for row in await lease.rows(page_statement(query))]
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    by_id = rows if query.table in NAMED_BY_ID else []
    bucket_ids = {row["bucket_id"] for row in by_id}
    if query.bucket_id is not None:
        bucket_ids.add(query.bucket_id)
    spenders: list[Row] = []
    if bucket_ids:
        wanted = (buckets.c.cluster_id == query.cluster_id, buckets.c.bucket_id.in_(bucket_ids))
        spenders = [row._asdict() for row in await lease.rows(_BUCKETS.where(*wanted))]
    after = position_of(query, rows[-1]) if more else None
    return AnalyticsPage(PublishedRun(*run[0]) if run else None, rows, spenders, after)


def _of_run(query: AnalyticsQuery) -> Sequence[ColumnElement[bool]]:
    return [runs.c.run_id == query.equal["run_id"]] if "run_id" in query.equal else []


async def _usage(
    cluster_id: str, buckets: Sequence[BucketName], lease: Lease
) -> Mapping[BucketName, BucketUsage]:
    through = await _reach(cluster_id, lease)
    values = {
        "cluster_id": cluster_id,
        "keys": [bucket.key for bucket in buckets],
        "users": [bucket.user for bucket in buckets],
        "clients": [bucket.client_id for bucket in buckets],
    }
    found = await lease.rows(_USAGE, values)
    return {
        buckets[row.n - 1]: BucketUsage(
            p95=row.p95,
            p99=row.p99,
            max=row.peak,
            throttled_minutes=row.throttled_minutes,
            data_through=_end_of(row, through),
            coverage=row.coverage,
        )
        for row in found
    }


async def _reach(cluster_id: str, lease: Lease) -> datetime | None:
    """Return the end of the data: the newest run may have been about days that are long over."""
    through = select(func.max(runs.c.data_through)).where(
        _published(Result.UTILIZATION), of_cluster(cluster_id)
    )
    found: Sequence[tuple[datetime | None]] = await lease.rows(through)
    return found[0][0]


async def _published_buckets(
    cluster_id: str, users: Sequence[tuple[str, str]], keys: Sequence[str], lease: Lease
) -> Sequence[PublishedBucket] | None:
    histograms = _newest(_published("utilization_hist"), of_cluster(cluster_id))
    if not await lease.rows(histograms):
        return None
    through = await _reach(cluster_id, lease)
    values = {
        "cluster_id": cluster_id,
        "keys": list(keys),
        "user_keys": [key for key, _ in users],
        "users": [user for _, user in users],
        "most": _MOST_BUCKETS,
    }
    found = await lease.rows(_BUCKETS_WITH_HISTOGRAMS, values)
    return [
        PublishedBucket(
            row.bucket_id,
            BucketName(row.key, row.bucket_user, row.bucket_client),
            row.peak,
            row.days,
            _end_of(row, through),
            row.censored,
        )
        for row in found
    ]


def _end_of(row: Any, through: datetime | None) -> datetime:
    """Return the end of a row's day, or that of the data where it is earlier."""
    end = datetime.combine(row.dt, time(), UTC) + timedelta(days=1)
    return end if through is None else min(end, through)
