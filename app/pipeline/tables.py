"""The tables between the jobs: names, columns with types, and how their files are laid out.

A column is added as nullable, never removed; readers project by name. All times are UTC.
"""

import re
from dataclasses import dataclass
from typing import Final

BY_CLUSTER: Final = ("cluster_id",)
BY_DAY: Final = ("cluster_id", "dt")
BY_HOUR: Final = ("cluster_id", "dt", "hour")
"""What a run replaces: ``hour`` is 0 to 23. Days are summed up anew from their hours."""

BY_RUN: Final = ("cluster_id", "run_id")
"""What a run about a question replaces: its own answer."""

REVISION: Final = "revision"
"""The last level of folders of a table that has revisions: the greatest text is the newest."""

_QUOTA_ENTITY = """
    quota_user string, quota_user_default boolean, quota_client_id string,
    quota_client_default boolean"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a folder of Parquet.

    Attributes:
        name: Of the folder.
        ddl: Columns with Spark types, in order.
        partitions: The columns that name the folders below; a run replaces whole partitions.
        order: By what the rows of a file are sorted; with the partitions it identifies a row.
        has_revisions: Whether runs of other hours may write the same partitions at the same time:
            then each writes a folder of its own below them, and the newest counts.
    """

    name: str
    ddl: str
    partitions: tuple[str, ...]
    order: tuple[str, ...]
    has_revisions: bool = False

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        top = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", self.ddl))
        return [column.split()[0] for column in top.split(",")]


SERIES: Final = Table(
    "series",
    """cluster_id string, dt date, hour int, series_id bigint, key string, user string,
    client_id string, grain string, first_seen timestamp, last_seen timestamp, source string,
    ingest_run_id string""",
    BY_HOUR,
    ("series_id",),
)
"""Who was seen in an hour, from its first to its last scrape in it.

``series_id`` is a hash of cluster, key, names and grain. ``user`` and ``client_id`` are never null
('' is absent or empty); ``grain`` is ``pair`` (both names are real) or ``bucket`` (the tags of a
metric); ``source`` is the format of the input.
"""

RATE_MINUTE: Final = Table(
    "rate_minute",
    """cluster_id string, dt date, hour int, series_id bigint, broker_id int, ts timestamp,
    rate_avg double, rate_max double, throttle_ms_avg double, throttle_ms_max double,
    samples int""",
    BY_HOUR,
    ("series_id", "broker_id", "ts"),
)
"""Rates of one series in one minute on one broker.

``ts`` is the start of the minute; rates are bytes/s, percent of one thread, or mutations/s;
throttle times are ms, null where no throttling was recorded; ``samples`` are the scrapes of the
minute that had the name, 0 where the broker was scraped without it, so that its rate was 0.
"""

SERIES_LIMIT: Final = Table(
    "series_limit",
    """cluster_id string, dt date, hour int, series_id bigint, valid_from timestamp,
    valid_to timestamp, bucket_id bigint, level tinyint, limit double""",
    BY_HOUR,
    ("series_id", "valid_from"),
)
"""What limits a series in an hour, and the bucket that it spends from.

``valid_from`` is the start of the hour, or when a quota changed within it; ``valid_to`` is
exclusive. ``limit`` is null where nothing limits, then ``level`` is 0, else 1 to 8.
"""

OBSERVATION_MINUTE: Final = Table(
    "observation_minute",
    """cluster_id string, dt date, ts timestamp, broker_id int, key string, user string,
    client_id string, grain string, rate_avg double, rate_max double, throttle_ms_avg double,
    throttle_ms_max double, samples int, bytes_est bigint, source string, ingest_run_id string""",
    BY_DAY,
    ("key", "user", "client_id", "broker_id", "ts", "grain", "source"),
)
"""Rates of one user and client-id in one minute on one broker: ``RATE_MINUTE`` with its ``SERIES``.

``bytes_est`` is round(rate_avg x 60) for byte rates, else null.
"""

QUOTA_VERSION: Final = Table(
    "quota_version",
    """cluster_id string, user string, user_default boolean, client_id string,
    client_default boolean, key string, value double, valid_from timestamp, valid_to timestamp,
    origin string, audit_seq bigint, alteration_id string""",
    BY_CLUSTER,
    ("user", "user_default", "client_id", "client_default", "key", "valid_from"),
)
"""One value of one key of one entity, and when it applied.

A name of '' with ``…_default`` false is a type that the entity lacks; with true it is the
default entity. ``valid_to`` is exclusive, null while the value holds; ``origin`` is ``audit``,
``snapshot`` or ``inferred``. Versions of one key of one entity never overlap.
"""

QUOTA_CONFLICT: Final = Table(
    "quota_conflict",
    """cluster_id string, at timestamp, user string, user_default boolean, client_id string,
    client_default boolean, conflict string""",
    BY_CLUSTER,
    ("at", "user", "user_default", "client_id", "client_default"),
)
"""What the audit log does not explain of an entity, in words, and when that was seen."""

QUOTA_FAILED: Final = Table(
    "quota_failed",
    """cluster_id string, user string, user_default boolean, client_id string,
    client_default boolean, key string, value double, at timestamp, outcome string,
    alteration_id string""",
    BY_CLUSTER,
    ("user", "user_default", "client_id", "client_default", "key"),
)
"""The newest alteration of a key that the audit log says has failed, where none was made later.

``value`` is what it would have set, null where it would have removed the key.
"""

QUOTA_SNAPSHOT: Final = Table(
    "quota_snapshot",
    """cluster_id string, dt date, snapshot_id string, taken_at timestamp, user string,
    user_default boolean, client_id string, client_default boolean, key string, value double""",
    BY_DAY,
    ("snapshot_id", "user", "user_default", "client_id", "client_default", "key"),
)
"""What a describe of everything returned at ``taken_at``, whose day is ``dt``."""

QUARANTINE: Final = Table(
    "quarantine",
    """cluster_id string, dt date, hour int, source string, line bigint, raw string, reason string,
    n bigint""",
    BY_HOUR,
    ("source", "line", "reason", "raw"),
)
"""Input that could not be used: its position, its text, why, and how many rows that is.

What has no time or cluster that can be read is in the first hour of its run.
"""

BUCKET_MINUTE: Final = Table(
    "bucket_minute",
    """cluster_id string, dt date, ts timestamp, broker_id int, key string, bucket_id bigint,
    rate_avg double, rate_max double, throttle_ms_avg double, throttle_ms_max double,
    bytes_est bigint, limit double, level tinyint, contributors int""",
    BY_DAY,
    ("key", "bucket_id", "broker_id", "ts"),
)
"""What one bucket did in one minute on one broker, beside its limit.

``limit`` is null where nothing limits, then ``level`` is 0, else 1 to 8; ``rate_max`` is the sum of
the members' maxima, an upper bound; ``contributors`` are distinct (user, client_id) with a sample.
"""

DIM_BUCKET: Final = Table(
    "dim_bucket",
    f"""cluster_id string, dt date, hour int, bucket_id bigint, key string, level tinyint,
    bucket_user string, bucket_client string, {_QUOTA_ENTITY}, first_seen timestamp,
    last_seen timestamp""",
    BY_HOUR,
    ("key", "bucket_id", "level", "quota_user", "quota_client_id"),
)
"""Who spends from a bucket (the pair of metric tags), and the entity whose quota limits it.

A row for each hour in which one of its members was seen.
"""

UTILIZATION_DAILY: Final = Table(
    "utilization_daily",
    """cluster_id string, dt date, broker_id int, key string, bucket_id bigint, level tinyint,
    limit double, minutes_present int, minutes_expected int, coverage double, bytes bigint,
    p50 double, p95 double, p99 double, peak double, minutes_over_80 int, minutes_over_100 int,
    throttled_minutes int, throttle_ms_max double, util_p99 double, headroom double,
    hist_bin array<int>, hist_n array<bigint>""",
    BY_DAY,
    ("key", "bucket_id", "broker_id"),
    has_revisions=True,
)
"""A day of a bucket on one broker; ``broker_id`` null pools the minutes of all brokers.

``util_p99`` is p99 / limit, ``headroom`` limit - p99; both null where nothing limits. The pool has
a histogram: ``hist_n`` are its minutes in each bin of ``hist_bin``, in rising order, where bin =
floor(ln(rate_max) / ln(1.01)) and the bin of 0 is the smallest int. Others have null.
"""

UTILIZATION_HIST: Final = Table(
    "utilization_hist",
    """cluster_id string, dt date, broker_id int, key string, bucket_id bigint, bin int,
    n bigint""",
    BY_DAY,
    ("key", "bucket_id", "broker_id", "bin"),
)
"""Minutes by rate: bin = floor(ln(rate_max) / ln(1.01)); the bin of 0 is the smallest int."""

BUCKET_HOUR: Final = Table(
    "bucket_hour",
    """cluster_id string, dt date, hour int, broker_id int, key string, bucket_id bigint,
    level tinyint, limit double, minutes int, rate_avg double, rate_max double,
    throttle_ms_max double, bytes bigint, minutes_over_80 int, minutes_over_100 int,
    throttled_minutes int, throttle_ms_peak double, present bigint, bins array<int>,
    violations array<struct<minute: tinyint, level: tinyint, ratio: double, throttle_ms: double,
    deferred: bigint>>""",
    BY_HOUR,
    ("key", "bucket_id", "broker_id"),
)
"""An hour of a bucket on one broker, from which days and incidents follow.

``rate_avg`` is over the ``minutes`` that it was there, ``rate_max`` of the highest of them;
``limit`` and ``level`` are those of the last. Bit n of ``present`` says that it was there in minute
n; ``bins`` are those of the minutes' rates, in their order; ``throttle_ms_peak`` is the longest
throttling, average or maximum. ``violations`` are the minutes that were throttled or over the
limit: ``ratio`` is rate_max / limit, ``deferred`` the bytes that had to wait.
"""

THROTTLE_INCIDENT: Final = Table(
    "throttle_incident",
    f"""cluster_id string, dt date, incident_id string, key string, bucket_id bigint,
    broker_id int, level tinyint, start timestamp, end timestamp, minutes int, peak_ratio double,
    throttle_ms_p95 double, est_deferred_bytes bigint, brokers_affected int, {_QUOTA_ENTITY},
    first_contributors string, status string""",
    BY_DAY,
    ("start", "key", "bucket_id", "broker_id"),
    has_revisions=True,
)
"""A period in which a bucket was throttled or over its limit on one broker.

``dt`` is the day of its start; ``end`` is exclusive; ``peak_ratio`` is rate_max / limit, null where
nothing limits.
"""

WHATIF_RUN: Final = Table(
    "whatif_run",
    """cluster_id string, run_id string, data_from timestamp, data_through timestamp,
    minutes bigint, buckets int, throttled_now int, throttled_new int, indeterminate int,
    censored int, at_risk int, delivery_timeout_s double, alterations string""",
    BY_RUN,
    (),
)
"""What a run was asked, and what it found; a row.

``minutes`` are those of buckets on brokers that were looked at; ``buckets`` are the rows of
``whatif_entity``, the following say how many of them are throttled under the current quotas and
under the new ones, and so on. ``alterations`` is JSON, as the API takes it.
"""

WHATIF_ENTITY: Final = Table(
    "whatif_entity",
    f"""cluster_id string, run_id string, bucket_id bigint, key string, bucket_user string,
    bucket_client string, broker_id int, {_QUOTA_ENTITY}, level_now tinyint, level_new tinyint,
    limit_now double, limit_new double, minutes int, throttled_s_now double,
    throttled_s_new_low double, throttled_s_new double, throttled_s_new_high double,
    minutes_throttled_now int, minutes_throttled int, max_delay_s double,
    deferred_bytes_max bigint, refused double, at_risk boolean, fidelity string, censored boolean,
    censored_minutes int""",
    BY_RUN,
    ("key", "bucket_id", "broker_id"),
)
"""What the new quotas would have done to a bucket on a broker; a row for each that they touch.

The quota entity is that of the new limit. Limits and levels are those of the bucket's members: null
where they are of several. ``throttled_s_…`` are seconds of the period, null where nobody knows: of
``…_now`` where these members share another bucket under the current quotas, of ``…_new`` where they
leave this one, or where ``fidelity`` is ``indeterminate``. It is ``exact`` where users and
client-ids were measured, ``bucket`` where only their sum was, and that suffices. ``max_delay_s``
and ``deferred_bytes_max`` are of the time when most waited, of keys of bytes alone; ``refused``
are mutations. Where clients were throttled (``censored_minutes``), figures are lower bounds.
"""

WHATIF_TIMELINE: Final = Table(
    "whatif_timeline",
    """cluster_id string, run_id string, bucket_id bigint, broker_id int, ts timestamp, key string,
    rate_avg double, rate_max double, limit_now double, limit_new double, waiting double,
    waiting_max double, throttled_s_now double, throttled_s_new_low double, throttled_s_new double,
    throttled_s_new_high double, censored boolean""",
    BY_RUN,
    ("key", "bucket_id", "broker_id", "ts"),
)
"""The minutes of those buckets that would be throttled longest.

``waiting`` is what waits under the new limit at the end of the minute, ``waiting_max`` the most in
it: nobody knows when in its minute a burst was, so that the truth is between them.
"""

DQ_RESULT: Final = Table(
    "dq_result",
    """cluster_id string, dt date, hour int, check string, value double, threshold double,
    passed boolean, detail string""",
    BY_HOUR,
    ("check",),
)
"""One data-quality check of a run, in its first hour."""

RECOMMENDATION: Final = Table(
    "recommendation",
    f"""cluster_id string, key string, bucket_id bigint, bucket_user string,
    bucket_client string, level tinyint, {_QUOTA_ENTITY}, buckets int, action string,
    reason string, limit double, value double, target double, factor double, broker_id int,
    brokers int, p95 double, percentile double, peak double, cluster_total double, skew double,
    days int, coverage double, minutes bigint, throttled_minutes bigint, censored boolean,
    saving double, throttled_s_now double, throttled_s_low double, throttled_s_mid double,
    throttled_s_high double, since timestamp, until timestamp, body string""",
    BY_CLUSTER,
    ("key", "bucket_id"),
    has_revisions=True,
)
"""What a stored value should be, from what its buckets used.

``action`` is ``raise``, ``lower``, ``keep`` or ``insufficient``, ``reason`` a sentence. The quota's
entity is the one that has ``limit`` now; ``buckets`` spend from values of it, and the one of the
row is the busiest of those judged with it. A bucket that needs more than a default has a row of its
own. ``target`` is what its busiest broker (``broker_id``) needs, ``value`` the next step there,
null without a change; ``factor`` is how many times ``value`` is above or below ``limit``.
``percentile`` is the rate that the target rests on, ``cluster_total`` the sum of it over
``brokers``, ``skew`` the busiest broker's beside the median. ``saving`` is in the key's unit, over
all brokers. ``throttled_s_…`` are seconds of throttling in the same history under ``limit`` and
under ``value`` (low, mid, high). ``body`` is what ``POST /quotas/alterations`` takes, null without
a change.
"""

STALE_QUOTA: Final = Table(
    "stale_quota",
    f"""cluster_id string, kind string, key string, {_QUOTA_ENTITY}, level tinyint, value double,
    reason string, winners string, last_seen timestamp, days int, since timestamp,
    until timestamp, body string""",
    BY_CLUSTER,
    ("kind", "key", "quota_user", "quota_user_default", "quota_client_id", "quota_client_default"),
    has_revisions=True,
)
"""A stored value that does nothing.

``kind`` is ``shadowed``, ``redundant``, ``orphan``, ``idle`` or ``default_unused``; ``winners`` are
the entities that go before it, as JSON; ``last_seen`` is when a client of these names was seen
last, null if it was not. ``days`` have data from ``since`` to ``until``. ``body`` removes the
value.
"""

UNCOVERED_CLIENT: Final = Table(
    "uncovered_client",
    f"""cluster_id string, key string, bucket_id bigint, bucket_user string,
    bucket_client string, level tinyint, {_QUOTA_ENTITY}, limit double, broker_id int, p99 double,
    peak double, bytes bigint, share double, minutes bigint, days int, reason string,
    value double, since timestamp, until timestamp, body string""",
    BY_CLUSTER,
    ("key", "bucket_id"),
    has_revisions=True,
)
"""Who uses most without a value of their own: under a default, or without any limit (level 0).

``p99`` is that of the busiest broker (``broker_id``), ``share`` the share of all that was used of
the key, 0 to 1. ``body`` sets ``value``, null where no entity has these names.
"""

BROKER_COMMIT: Final = Table(
    "broker_commit",
    """cluster_id string, broker_id int, direction string, capacity double,
    limits_sum double, p99_sum double, p99_of_sums double, limits_ratio double,
    p99_sum_ratio double, p99_of_sums_ratio double, unlimited_share double, buckets int,
    unlimited_buckets int, replication_factor double, over boolean, since timestamp,
    until timestamp""",
    BY_CLUSTER,
    ("broker_id", "direction"),
    has_revisions=True,
)
"""What a broker has promised beside what it can do.

``direction`` is ``in`` (produce and what is replicated to it), ``out`` (fetch and what is
replicated from it), both in bytes/s, or ``request`` in percent of one thread. ``limits_sum`` are
the limits of the buckets that were active there, ``p99_sum`` their p99s, ``p99_of_sums`` the p99 of
the minutes' sums: what they really need at once. Ratios are to ``capacity``. ``unlimited_share`` is
the share of the traffic that nothing limits, 0 to 1. ``over`` says that ``limits_ratio`` is over 1.
"""

DRIFT_FINDING: Final = Table(
    "drift_finding",
    f"""cluster_id string, kind string, key string, {_QUOTA_ENTITY}, desired double,
    logged double, live double, at timestamp, reason string, alteration_id string, body string""",
    BY_CLUSTER,
    ("kind", "key", "quota_user", "quota_user_default", "quota_client_id", "quota_client_default"),
    has_revisions=True,
)
"""Where the desired document, the log and the live quotas differ.

``kind`` is ``missing``, ``unexpected`` or ``value_differs`` (of the document), ``out_of_band`` (the
live value is not what the log says) or ``failed_but_applied`` (the log says that it failed).
``at`` is when the live quotas were described. Of a value that is not set the column is null.
"""

TABLES: Final = {item.name: item for item in tuple(globals().values()) if isinstance(item, Table)}
"""All of them, by name."""

RESOURCES: Final = {
    "producer_byte_rate": "Produce",
    "consumer_byte_rate": "Fetch",
    "request_percentage": "Request",
    "controller_mutation_rate": "ControllerMutation",
}
"""Each key's resource, as brokers call it."""
