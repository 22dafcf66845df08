"""Serve what the pipeline advises: right sizes, what is stale or uncovered, promises, drift.

Each table has the rows of the newest run about its cluster, which replaces them all. Those of
what-if have the rows of many runs.
"""

from collections.abc import Sequence
from typing import Final

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ENTITY: Final = """
  quota_user text not null,
  quota_user_default boolean not null,
  quota_client_id text not null,
  quota_client_default boolean not null"""

_BUCKET: Final = f"""
  cluster_id text not null,
  key text not null,
  bucket_id bigint not null,
  bucket_user text not null,
  bucket_client text not null,
  level smallint not null,{_ENTITY}"""

_RUN: Final = """
  cluster_id text not null,
  run_id text not null"""

_PERIOD: Final = """
  since timestamptz,
  until timestamptz"""

TABLES: Final = {
    "recommendation": f"""{_BUCKET},
  buckets integer,
  action text not null check (action in ('raise', 'lower', 'keep', 'insufficient')),
  reason text,
  "limit" double precision,
  value double precision,
  target double precision,
  factor double precision,
  broker_id integer,
  brokers integer,
  p95 double precision,
  percentile double precision,
  peak double precision,
  cluster_total double precision,
  skew double precision,
  days integer,
  coverage double precision,
  minutes bigint,
  throttled_minutes bigint,
  censored boolean,
  saving double precision,
  throttled_s_now double precision,
  throttled_s_low double precision,
  throttled_s_mid double precision,
  throttled_s_high double precision,{_PERIOD},
  body json""",
    "stale_quota": f"""
  cluster_id text not null,
  kind text not null
    check (kind in ('shadowed', 'redundant', 'orphan', 'idle', 'default_unused')),
  key text not null,{_ENTITY},
  level smallint,
  value double precision,
  reason text,
  winners json,
  last_seen timestamptz,
  days integer,{_PERIOD},
  body json""",
    "uncovered_client": f"""{_BUCKET},
  "limit" double precision,
  broker_id integer,
  p99 double precision,
  peak double precision,
  bytes bigint,
  share double precision,
  minutes bigint,
  days integer,
  reason text,
  value double precision,{_PERIOD},
  body json""",
    "broker_commit": f"""
  cluster_id text not null,
  broker_id integer not null,
  direction text not null check (direction in ('in', 'out', 'request')),
  capacity double precision,
  limits_sum double precision,
  p99_sum double precision,
  p99_of_sums double precision,
  limits_ratio double precision,
  p99_sum_ratio double precision,
  p99_of_sums_ratio double precision,
  unlimited_share double precision,
  buckets integer,
  unlimited_buckets integer,
  replication_factor double precision,
  over boolean,{_PERIOD}""",
    "drift_finding": f"""
  cluster_id text not null,
  kind text not null check (kind in
    ('missing', 'unexpected', 'value_differs', 'out_of_band', 'failed_but_applied')),
  key text not null,{_ENTITY},
  desired double precision,
  logged double precision,
  live double precision,
  at timestamptz,
  reason text,
  alteration_id text,
  body json""",
    "whatif_run": f"""{_RUN},
  data_from timestamptz,
  data_through timestamptz,
  minutes bigint,
  buckets integer,
  throttled_now integer,
  throttled_new integer,
  indeterminate integer,
  censored integer,
  at_risk integer,
  delivery_timeout_s double precision,
  alterations json""",
    "whatif_entity": f"""{_RUN},
  bucket_id bigint not null,
  key text not null,
  bucket_user text,
  bucket_client text,
  broker_id integer not null,{_ENTITY.replace(" not null", "")},
  level_now smallint,
  level_new smallint,
  limit_now double precision,
  limit_new double precision,
  minutes integer,
  throttled_s_now double precision,
  throttled_s_new_low double precision,
  throttled_s_new double precision,
  throttled_s_new_high double precision,
  minutes_throttled_now integer,
  minutes_throttled integer,
  max_delay_s double precision,
  deferred_bytes_max bigint,
  refused double precision,
  at_risk boolean,
  fidelity text,
  censored boolean,
  censored_minutes integer""",
    "whatif_timeline": f"""{_RUN},
  bucket_id bigint not null,
  broker_id integer not null,
  ts timestamptz not null,
  key text not null,
  rate_avg double precision,
  rate_max double precision,
  limit_now double precision,
  limit_new double precision,
  waiting double precision,
  waiting_max double precision,
  throttled_s_now double precision,
  throttled_s_new_low double precision,
  throttled_s_new double precision,
  throttled_s_new_high double precision,
  censored boolean""",
}

_BY_ENTITY: Final = """(cluster_id, kind, quota_user_default desc, quota_user,
  quota_client_default desc, quota_client_id, key)"""

INDEXES: Final = f"""
create unique index recommendation_by_factor
  on recommendation (cluster_id, coalesce(factor, -1) desc, bucket_id);
create unique index stale_quota_by_entity on stale_quota {_BY_ENTITY};
create unique index uncovered_client_by_share
  on uncovered_client (cluster_id, coalesce(share, -1) desc, bucket_id);
create unique index broker_commit_once on broker_commit (cluster_id, broker_id, direction);
create unique index drift_finding_by_entity on drift_finding {_BY_ENTITY};
create unique index whatif_run_once on whatif_run (cluster_id, run_id);
create unique index whatif_entity_by_seconds on whatif_entity
  (cluster_id, run_id, coalesce(throttled_s_new, -1) desc, bucket_id, broker_id);
create unique index whatif_timeline_once
  on whatif_timeline (cluster_id, run_id, bucket_id, broker_id, ts);
"""


def upgrade() -> None:
    """Create the tables, and an index for the order of each listing."""
    for name, columns in TABLES.items():
        op.execute(f"create table {name} ({columns})")
    op.execute(INDEXES)


def downgrade() -> None:
    """Drop what can be published again."""
    op.execute(f"drop table {', '.join(TABLES)}")
