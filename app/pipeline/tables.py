"""The tables between the jobs: names, columns with types, and how their files are laid out.

A column is added as nullable, never removed; readers project by name. All times are UTC.
``docs/pipeline-tables.md`` says what the columns hold.
"""

import re
from dataclasses import dataclass
from typing import Final

BY_CLUSTER: Final = ("cluster_id",)
BY_DAY: Final = ("cluster_id", "dt")
BY_HOUR: Final = ("cluster_id", "dt", "hour")
"""What a run replaces: ``hour`` is 0 to 23. Days are summed up anew from their hours."""

BEGIN_OF_HOUR: Final = "timestamp_seconds(unix_date(dt) * 86400L + hour * 3600)"
"""In SQL."""

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
"""Who was seen in an hour. Names are never null: '' is absent or empty."""

RATE_MINUTE: Final = Table(
    "rate_minute",
    """cluster_id string, dt date, hour int, series_id bigint, broker_id int, ts timestamp,
    rate_avg double, rate_max double, throttle_ms_avg double, throttle_ms_max double,
    samples int""",
    BY_HOUR,
    ("series_id", "broker_id", "ts"),
)
"""Rates of one series in one minute, which begins at ``ts``, on one broker."""

SERIES_LIMIT: Final = Table(
    "series_limit",
    """cluster_id string, dt date, hour int, series_id bigint, valid_from timestamp,
    valid_to timestamp, bucket_id bigint, level tinyint, limit double""",
    BY_HOUR,
    ("series_id", "valid_from"),
)
"""What limits a series in an hour, and the bucket that it spends from."""

OBSERVATION_MINUTE: Final = Table(
    "observation_minute",
    """cluster_id string, dt date, ts timestamp, broker_id int, key string, user string,
    client_id string, grain string, rate_avg double, rate_max double, throttle_ms_avg double,
    throttle_ms_max double, samples int, bytes_est bigint, source string, ingest_run_id string""",
    BY_DAY,
    ("key", "user", "client_id", "broker_id", "ts", "grain", "source"),
)
"""``RATE_MINUTE`` with the names of its ``SERIES``."""

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
"""The newest alteration of a key that the audit log says has failed, where none was made later."""

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
"""Input that could not be used: its position, its text, why, and how many rows that is."""

BUCKET_MINUTE: Final = Table(
    "bucket_minute",
    """cluster_id string, dt date, ts timestamp, broker_id int, key string, bucket_id bigint,
    rate_avg double, rate_max double, throttle_ms_avg double, throttle_ms_max double,
    bytes_est bigint, limit double, level tinyint, contributors int""",
    BY_DAY,
    ("key", "bucket_id", "broker_id", "ts"),
)
"""What one bucket did in one minute on one broker, beside its limit."""

DIM_BUCKET: Final = Table(
    "dim_bucket",
    f"""cluster_id string, dt date, hour int, bucket_id bigint, key string, level tinyint,
    bucket_user string, bucket_client string, {_QUOTA_ENTITY}, first_seen timestamp,
    last_seen timestamp""",
    BY_HOUR,
    ("key", "bucket_id", "level", "quota_user", "quota_client_id"),
)
"""Who spends from a bucket (the pair of metric tags), and the entity whose quota limits it."""

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
"""A day of a bucket on one broker; ``broker_id`` null pools the minutes of all brokers."""

UTILIZATION_HIST: Final = Table(
    "utilization_hist",
    """cluster_id string, dt date, broker_id int, key string, bucket_id bigint, bin int,
    n bigint""",
    BY_DAY,
    ("key", "bucket_id", "broker_id", "bin"),
)
"""Minutes by rate: a row for each bin of ``hist_bin``."""

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
"""An hour of a bucket on one broker, from which days and incidents follow."""

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
"""A period in which a bucket was throttled or over its limit on one broker."""

WHATIF_RUN: Final = Table(
    "whatif_run",
    """cluster_id string, run_id string, data_from timestamp, data_through timestamp,
    minutes bigint, buckets int, throttled_now int, throttled_new int, indeterminate int,
    censored int, at_risk int, delivery_timeout_s double, alterations string""",
    BY_RUN,
    (),
)
"""What a run was asked, and what it found; a row."""

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
"""What the new quotas would have done to a bucket on a broker; a row for each that they touch."""

WHATIF_TIMELINE: Final = Table(
    "whatif_timeline",
    """cluster_id string, run_id string, bucket_id bigint, broker_id int, ts timestamp, key string,
    rate_avg double, rate_max double, limit_now double, limit_new double, waiting double,
    waiting_max double, throttled_s_now double, throttled_s_new_low double, throttled_s_new double,
    throttled_s_new_high double, censored boolean""",
    BY_RUN,
    ("key", "bucket_id", "broker_id", "ts"),
)
"""The minutes of those buckets that would be throttled longest."""

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
"""What a stored value should be, from what its buckets used."""

STALE_QUOTA: Final = Table(
    "stale_quota",
    f"""cluster_id string, kind string, key string, {_QUOTA_ENTITY}, level tinyint, value double,
    reason string, winners string, last_seen timestamp, days int, since timestamp,
    until timestamp, body string""",
    BY_CLUSTER,
    ("kind", "key", "quota_user", "quota_user_default", "quota_client_id", "quota_client_default"),
    has_revisions=True,
)
"""A stored value that does nothing."""

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
"""Who uses most without a value of their own: under a default, or without any limit (level 0)."""

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
"""What a broker has promised beside what it can do."""

DRIFT_FINDING: Final = Table(
    "drift_finding",
    f"""cluster_id string, kind string, key string, {_QUOTA_ENTITY}, desired double,
    logged double, live double, at timestamp, reason string, alteration_id string, body string""",
    BY_CLUSTER,
    ("kind", "key", "quota_user", "quota_user_default", "quota_client_id", "quota_client_default"),
    has_revisions=True,
)
"""Where the desired document, the log and the live quotas differ."""

TABLES: Final = {item.name: item for item in tuple(globals().values()) if isinstance(item, Table)}
"""All of them, by name."""

RESOURCES: Final = {
    "producer_byte_rate": "Produce",
    "consumer_byte_rate": "Fetch",
    "request_percentage": "Request",
    "controller_mutation_rate": "ControllerMutation",
}
"""Each key's resource, as brokers call it."""
