"""The tables between the jobs: names, columns with types, and how their files are laid out.

A column is added as nullable, never removed; readers project by name. All times are UTC.
"""

from dataclasses import dataclass
from typing import Final

BY_CLUSTER: Final = ("cluster_id",)
BY_DAY: Final = ("cluster_id", "dt")

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
    """

    name: str
    ddl: str
    partitions: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.split()[0] for column in self.ddl.split(",")]


OBSERVATION_MINUTE: Final = Table(
    "observation_minute",
    """cluster_id string, dt date, ts timestamp, broker_id int, key string, user string,
    client_id string, grain string, rate_avg double, rate_max double, throttle_ms_avg double,
    throttle_ms_max double, samples int, bytes_est bigint, source string, ingest_run_id string""",
    BY_DAY,
    ("key", "user", "client_id", "broker_id", "ts", "grain", "source"),
)
"""Rates of one user and client-id in one minute on one broker.

``ts`` is the start of the minute; ``user`` and ``client_id`` are never null ('' is absent or
empty); ``grain`` is ``pair`` (both names are real) or ``bucket`` (the tags of a metric); rates are
bytes/s, percent of one thread, or mutations/s; throttle times are ms, null where no throttling was
recorded; ``samples`` are the scrapes of the minute that had the name, 0 where the broker was
scraped without it, so that its rate was 0; ``bytes_est`` is round(rate_avg x 60) for byte
rates, else null.
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
    "source string, line bigint, raw string, reason string, n bigint",
    (),
    ("source", "line", "reason", "raw"),
)
"""Input that could not be used: where it stands, its text, why, and how many rows that is."""

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
    f"""cluster_id string, bucket_id bigint, key string, level tinyint, bucket_user string,
    bucket_client string, {_QUOTA_ENTITY}, first_seen timestamp, last_seen timestamp""",
    BY_CLUSTER,
    ("key", "bucket_id", "level", "quota_user", "quota_client_id"),
)
"""Who spends from a bucket (the pair of metric tags), and the entity whose quota limits it."""

UTILIZATION_DAILY: Final = Table(
    "utilization_daily",
    """cluster_id string, dt date, broker_id int, key string, bucket_id bigint, level tinyint,
    limit double, minutes_present int, minutes_expected int, coverage double, bytes bigint,
    p50 double, p95 double, p99 double, peak double, minutes_over_80 int, minutes_over_100 int,
    throttled_minutes int, throttle_ms_max double, util_p99 double, headroom double""",
    BY_DAY,
    ("key", "bucket_id", "broker_id"),
)
"""A day of a bucket on one broker; ``broker_id`` null pools the minutes of all brokers.

``util_p99`` is p99 / limit, ``headroom`` limit - p99; both null where nothing limits.
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
    """cluster_id string, dt date, hour timestamp, broker_id int, key string, bucket_id bigint,
    rate_avg double, rate_max double, limit double, throttle_ms_max double, minutes int""",
    BY_DAY,
    ("key", "bucket_id", "broker_id", "hour"),
)
"""An hour of a bucket on one broker.

``hour`` is its start; ``rate_avg`` is over the ``minutes`` with traffic, ``rate_max`` of the
highest of them; ``limit`` is that of the last.
"""

THROTTLE_INCIDENT: Final = Table(
    "throttle_incident",
    f"""cluster_id string, incident_id string, key string, bucket_id bigint, broker_id int,
    level tinyint, start timestamp, end timestamp, minutes int, peak_ratio double,
    throttle_ms_p95 double, est_deferred_bytes bigint, brokers_affected int, {_QUOTA_ENTITY},
    first_contributors string, status string""",
    BY_CLUSTER,
    ("start", "key", "bucket_id", "broker_id"),
)
"""A stretch of minutes in which a bucket was throttled or over its limit on one broker.

``end`` is exclusive; ``peak_ratio`` is rate_max / limit, null where nothing limits.
"""

DQ_RESULT: Final = Table(
    "dq_result",
    "check string, value double, threshold double, passed boolean, detail string",
    (),
    ("check",),
)
"""One data-quality check of the run."""

TABLES: Final = {item.name: item for item in tuple(globals().values()) if isinstance(item, Table)}
"""All of them, by name."""

RESOURCES: Final = {
    "producer_byte_rate": "Produce",
    "consumer_byte_rate": "Fetch",
    "request_percentage": "Request",
    "controller_mutation_rate": "ControllerMutation",
}
"""Each key's resource, as brokers call it."""
