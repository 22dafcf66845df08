"""Analytics: what the pipeline found, as it was published, and the runs that found it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaFilter, EntityType
from app.domain.errors import (
    NotFoundError,
    NotSentError,
)
from app.domain.plan_impact import BucketName, PublishedBucket, TouchedBucket, touched_buckets
from app.domain.resolution_index import CLIENT_KEYS, QuotaIndex
from app.domain.validation import check_filter
from app.service.ports.brokers import ClusterIdentity
from app.service.queries.callbacks import NO_CALLBACK, CallbackInUse
from app.service.runtime.tasks import off_loop

logger = logging.getLogger(__name__)

NO_RUN: Final = "no-run"
UNAVAILABLE: Final = "unavailable"

Row = Mapping[str, Any]
"""A row of a table by column, as the database gives it."""

Position = tuple[Any, ...]
"""What the order of a listing compares, of the last row of a page."""


class Result(StrEnum):
    """A table that is listed."""

    UTILIZATION = "utilization_daily"
    INCIDENTS = "throttle_incident"
    HOURS = "bucket_hour"
    RUNS = "pipeline_run"
    RECOMMENDATIONS = "recommendation"
    STALE = "stale_quota"
    UNCOVERED = "uncovered_client"
    OVERCOMMIT = "broker_commit"
    DRIFT = "drift_finding"
    WHATIF = "whatif_entity"
    WHATIF_MINUTES = "whatif_timeline"


NAMED_BY_ID: Final = frozenset({Result.UTILIZATION, Result.INCIDENTS, Result.HOURS})
"""Tables whose rows name their buckets by id alone: a page says who these are."""


@dataclass(frozen=True, slots=True)
class AnalyticsQuery:
    """Conditions, ANDed; null means no condition.

    Attributes:
        cluster_id: Of the rows, and of the runs that name one.
        entity: On the entity whose quota limits the bucket, or on the bucket's own names.
        min_util_p99: The least p99 / limit; for incidents the least peak / limit.
        since: The earliest day, hour or end of an incident, included.
        until: The first that is too late.
        equal: Columns with the value that they must have; ``run_id`` asks for the rows of a run.
        after: The position of the last row of the page before.
    """

    table: Result
    cluster_id: str | None = None
    key: str | None = None
    entity: ClientQuotaFilter | None = None
    min_util_p99: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    bucket_id: int | None = None
    equal: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 100
    after: Position | None = None


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """The newest run that published a table."""

    run_id: str
    data_through: datetime | None
    coverage: float | None


@dataclass(frozen=True, slots=True)
class AnalyticsPage:
    """Rows, and how complete they are.

    Attributes:
        run: The newest run behind the table; null before the first.
        buckets: Who spends from the rows' buckets, and whose quotas limit them.
        next_after: The position of the last row where more follow.
    """

    run: PublishedRun | None
    rows: Sequence[Row]
    buckets: Sequence[Row]
    next_after: Position | None


@dataclass(frozen=True, slots=True)
class BucketUsage:
    """The last day of a bucket, all brokers pooled; rates are in the key's unit.

    Attributes:
        throttled_minutes: Minutes in which it was throttled.
        data_through: The end of the last minute of its day that has data.
        coverage: 0 to 1: the minutes that the bucket has of those that brokers reported.
    """

    p95: float | None
    p99: float | None
    max: float | None
    throttled_minutes: int | None
    data_through: datetime | None
    coverage: float | None


class AnalyticsStore(Protocol):
    """What the pipeline published. Every method may raise ``NotSentError``."""

    async def page(self, query: AnalyticsQuery) -> AnalyticsPage:
        """Return one page of a table."""

    async def run(self, cluster_id: str, run_id: str) -> Row | None:
        """Return the newest run of an id for a cluster, or for several; null where none is."""

    async def whatif_run(self, cluster_id: str, run_id: str) -> Row | None:
        """Return what a run of what-if was asked and found; null where it has published nothing."""

    async def usage(
        self, cluster_id: str, buckets: Sequence[BucketName]
    ) -> Mapping[BucketName, BucketUsage]:
        """Return the last day of each bucket that has one."""

    async def published_buckets(
        self, cluster_id: str, users: Sequence[tuple[str, str]], keys: Sequence[str]
    ) -> Sequence[PublishedBucket] | None:
        """Return the buckets with a histogram; null where no run has published any.

        Args:
            cluster_id: Whose.
            users: Keys with the user of their buckets.
            keys: Keys of which all buckets are wanted.
        """

    async def shares_over(self, cluster_id: str, bins: Mapping[int, int]) -> Mapping[int, float]:
        """Return the share of minutes above a bin, 0 to 1, by bucket id."""


@dataclass(frozen=True, slots=True)
class Analytics:
    """Answers ``/analytics/…`` of one cluster, and tells other requests about usage."""

    store: AnalyticsStore
    cluster: ClusterIdentity

    async def page(self, query: AnalyticsQuery) -> AnalyticsPage:
        """Return one page.

        Raises:
            InvalidRequestError: The entity filter breaks a rule.
            NotFoundError: ``no-run``: no run has published the table, or there is no run at all.
        """
        if query.entity is not None:
            check_filter(query.entity, "entity")
        cluster_id = await self.cluster.cluster_id()
        page = await self.store.page(replace(query, cluster_id=cluster_id))
        if page.run is None and not (query.table is Result.RUNS and page.rows):
            raise NotFoundError(
                f"No run of the pipeline has published this of the cluster {cluster_id} yet; "
                f"`quota-pipeline {_PUBLISHING.get(query.table, 'run')} --pg` does.",
                code=NO_RUN,
            )
        return page

    async def run(self, run_id: str) -> Row:
        """Return one run.

        Raises:
            NotFoundError: There is none.
        """
        return _require_row(await self.store.run(await self.cluster.cluster_id(), run_id))

    async def whatif_run(self, run_id: str) -> Row:
        """Return what a run of what-if was asked and found.

        Raises:
            NotFoundError: There is none; ``no-run``: none has published anything yet.
        """
        found = await self.store.whatif_run(await self.cluster.cluster_id(), run_id)
        if found is None:
            await self.page(AnalyticsQuery(Result.WHATIF, limit=1))
        return _require_row(found)

    async def usage(
        self, cluster_id: str, buckets: Sequence[BucketName]
    ) -> Mapping[BucketName, BucketUsage] | None:
        """Return the last day of each bucket that has one; null if nobody can tell now."""
        try:
            return await self.store.usage(cluster_id, buckets)
        except NotSentError as error:
            logger.warning("usage is left out of a resolution: %s", error.detail)
            return None

    async def impact(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        present: QuotaIndex,
        proposed: QuotaIndex,
        rules: CallbackInUse = NO_CALLBACK,
    ) -> Sequence[TouchedBucket] | str:
        """Return what alterations would have meant for the buckets that they touch.

        Returns:
            The buckets; in place of them ``no-run`` where no run has published histograms, or
            ``unavailable`` where nobody can tell now.
        """
        try:
            cluster_id = await self.cluster.cluster_id()
            wanted = _buckets_wanted(alterations)
            published = await self.store.published_buckets(cluster_id, *wanted)
            if published is None:
                return NO_RUN
            number = len(published) + len(alterations)
            found = partial(touched_buckets, published, alterations)
            touched = await off_loop(number, found, present, proposed, rules.over)
            bins = {
                each.bucket.bucket_id: each.highest_bin
                for each in touched
                if each.comparable and each.highest_bin is not None
            }
            shares = await self.store.shares_over(cluster_id, bins) if bins else {}
        except NotSentError as error:
            logger.warning("the impact is left out of an answer: %s", error.detail)
            return UNAVAILABLE
        return [
            replace(each, share_of_minutes_over=shares.get(each.bucket.bucket_id, 0.0))
            if each.comparable
            else each
            for each in touched
        ]


def _buckets_wanted(
    alterations: Sequence[ClientQuotaAlteration],
) -> tuple[Sequence[tuple[str, str]], Sequence[str]]:
    """Return keys with the users that alterations name, and keys for which any user may matter."""
    users: set[tuple[str, str]] = set()
    keys: set[str] = set()
    for alteration in alterations:
        user = alteration.entity.as_dict().get(EntityType.USER)
        for op in alteration.ops:
            if op.key in CLIENT_KEYS:
                keys.add(op.key) if user is None else users.add((op.key, user))
    return sorted(users), sorted(keys)


def _require_row(row: Row | None) -> Row:
    if row is None:
        raise NotFoundError("There is no such run; GET /analytics/runs lists them.")
    return row


_PUBLISHING: Final[Mapping[Result, str]] = {
    Result.RECOMMENDATIONS: "rightsize",
    Result.STALE: "stale",
    Result.UNCOVERED: "stale",
    Result.OVERCOMMIT: "overcommit",
    Result.DRIFT: "drift",
    Result.WHATIF: "whatif",
    Result.WHATIF_MINUTES: "whatif",
}
"""The job that publishes a table, where it is not ``run`` alone."""

BUCKETS: Final = "dim_bucket"
"""The table of who spends from a bucket, which goes along with others."""

WHATIF_RUNS: Final = "whatif_run"
"""The table of what runs of what-if were asked and found."""

_ENTITY: Final = ("quota_user", "quota_user_default", "quota_client_id", "quota_client_default")

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    Result.UTILIZATION: (
        *("cluster_id", "dt", "broker_id", "key", "bucket_id", "level", "limit"),
        *("minutes_present", "minutes_expected", "coverage", "bytes", "p50", "p95", "p99", "peak"),
        *("minutes_over_80", "minutes_over_100", "throttled_minutes", "throttle_ms_max"),
        *("util_p99", "headroom"),
    ),
    Result.INCIDENTS: (
        *("cluster_id", "incident_id", "key", "bucket_id", "broker_id", "level", "start", "end"),
        *("minutes", "peak_ratio", "throttle_ms_p95", "est_deferred_bytes", "brokers_affected"),
        *(*_ENTITY, "first_contributors", "status"),
    ),
    Result.HOURS: (
        *("cluster_id", "dt", "hour", "broker_id", "key", "bucket_id", "rate_avg", "rate_max"),
        *("limit", "throttle_ms_max", "minutes"),
    ),
    Result.RUNS: (
        *("run_id", "job", "options", "cluster_id", "state", "started_at", "ended_at"),
        *("data_through", "coverage", "rows_in", "rows_out", "published", "error"),
    ),
    Result.RECOMMENDATIONS: (
        *("cluster_id", "key", "bucket_id", "bucket_user", "bucket_client", "level", *_ENTITY),
        *("buckets", "action", "reason", "limit", "value", "target", "factor", "broker_id"),
        *("brokers", "p95", "percentile", "peak", "cluster_total", "skew", "days", "coverage"),
        *("minutes", "throttled_minutes", "censored", "saving", "throttled_s_now"),
        *("throttled_s_low", "throttled_s_mid", "throttled_s_high", "since", "until", "body"),
    ),
    Result.STALE: (
        *("cluster_id", "kind", "key", *_ENTITY, "level", "value", "reason", "winners"),
        *("last_seen", "days", "since", "until", "body"),
    ),
    Result.UNCOVERED: (
        *("cluster_id", "key", "bucket_id", "bucket_user", "bucket_client", "level", *_ENTITY),
        *("limit", "broker_id", "p99", "peak", "bytes", "share", "minutes", "days", "reason"),
        *("value", "since", "until", "body"),
    ),
    Result.OVERCOMMIT: (
        *("cluster_id", "broker_id", "direction", "capacity", "limits_sum", "p99_sum"),
        *("p99_of_sums", "limits_ratio", "p99_sum_ratio", "p99_of_sums_ratio", "unlimited_share"),
        *("buckets", "unlimited_buckets", "replication_factor", "over", "since", "until"),
    ),
    Result.DRIFT: (
        *("cluster_id", "kind", "key", *_ENTITY, "desired", "logged", "live", "at", "reason"),
        *("alteration_id", "body"),
    ),
    Result.WHATIF: (
        *("cluster_id", "run_id", "bucket_id", "key", "bucket_user", "bucket_client", "broker_id"),
        *(*_ENTITY, "level_now", "level_new", "limit_now", "limit_new", "minutes"),
        *("throttled_s_now", "throttled_s_new_low", "throttled_s_new", "throttled_s_new_high"),
        *("minutes_throttled_now", "minutes_throttled", "max_delay_s", "deferred_bytes_max"),
        *("refused", "at_risk", "fidelity", "censored", "censored_minutes"),
    ),
    Result.WHATIF_MINUTES: (
        *("cluster_id", "run_id", "bucket_id", "broker_id", "ts", "key", "rate_avg", "rate_max"),
        *("limit_now", "limit_new", "waiting", "waiting_max", "throttled_s_now"),
        *("throttled_s_new_low", "throttled_s_new", "throttled_s_new_high", "censored"),
    ),
    WHATIF_RUNS: (
        *("cluster_id", "run_id", "data_from", "data_through", "minutes", "buckets"),
        *("throttled_now", "throttled_new", "indeterminate", "censored", "at_risk"),
        *("delivery_timeout_s", "alterations"),
    ),
    BUCKETS: (
        *("cluster_id", "bucket_id", "key", "level", "bucket_user", "bucket_client"),
        *(*_ENTITY, "first_seen", "last_seen"),
    ),
}
"""In order."""
