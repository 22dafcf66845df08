"""The columns that answers show of each published table."""

from collections.abc import Mapping
from typing import Final

from app.service.reading.analytics import Result

BUCKETS: Final = "dim_bucket"
"""The table of who spends from a bucket, which goes along with others."""

_ENTITY: Final = (
    "quota_user",
    "quota_user_default",
    "quota_client_id",
    "quota_client_default",
)

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
    Result.MINUTES: (
        *("cluster_id", "dt", "ts", "broker_id", "key", "bucket_id", "rate_avg", "rate_max"),
        *("throttle_ms_avg", "throttle_ms_max", "bytes_est", "limit", "level", "contributors"),
    ),
    Result.RUNS: (
        *("run_id", "job", "options", "cluster_id", "state", "requested_by", "requested_at"),
        *("cancel_requested", "started_at", "ended_at", "data_through", "coverage", "rows_in"),
        *("rows_out", "published", "progress", "error"),
    ),
    BUCKETS: (
        *("cluster_id", "bucket_id", "key", "level", "bucket_user", "bucket_client"),
        *(*_ENTITY, "first_seen", "last_seen"),
    ),
}
"""In order."""
