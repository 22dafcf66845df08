"""Add what the pipeline publishes, and the queue and record of its runs.

The four result tables have the columns of the pipeline's own, and belong to no log: a run replaces
the days that it is about. Rows are copied into an unlogged table first, so that the transaction
that replaces them is short; `run` there is the run's `seq`.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ENTITY = """
  quota_user text,
  quota_user_default boolean,
  quota_client_id text,
  quota_client_default boolean"""

RESULTS = {
    "utilization_daily": """
  cluster_id text not null,
  dt date not null,
  broker_id integer,
  key text not null,
  bucket_id bigint not null,
  level smallint,
  "limit" double precision,
  minutes_present integer,
  minutes_expected integer,
  coverage double precision,
  bytes bigint,
  p50 double precision,
  p95 double precision,
  p99 double precision,
  peak double precision,
  minutes_over_80 integer,
  minutes_over_100 integer,
  throttled_minutes integer,
  throttle_ms_max double precision,
  util_p99 double precision,
  headroom double precision""",
    "throttle_incident": f"""
  cluster_id text not null,
  incident_id text not null,
  key text not null,
  bucket_id bigint not null,
  broker_id integer,
  level smallint,
  start timestamptz not null,
  "end" timestamptz not null,
  minutes integer,
  peak_ratio double precision,
  throttle_ms_p95 double precision,
  est_deferred_bytes bigint,
  brokers_affected integer,{_ENTITY},
  first_contributors text,
  status text""",
    "bucket_minute": """
  cluster_id text not null,
  dt date not null,
  ts timestamptz not null,
  broker_id integer not null,
  key text not null,
  bucket_id bigint not null,
  rate_avg double precision,
  rate_max double precision,
  throttle_ms_avg double precision,
  throttle_ms_max double precision,
  bytes_est bigint,
  "limit" double precision,
  level smallint,
  contributors integer""",
    "dim_bucket": f"""
  cluster_id text not null,
  bucket_id bigint not null,
  key text not null,
  level smallint not null,
  bucket_user text not null,
  bucket_client text not null,{_ENTITY},
  first_seen timestamptz,
  last_seen timestamptz""",
}

INDEXES = (
    """create unique index utilization_daily_once
       on utilization_daily (cluster_id, dt, key, bucket_id, coalesce(broker_id, -1))""",
    """create index utilization_daily_fullest on utilization_daily
       (cluster_id, dt desc, coalesce(util_p99, -1) desc, bucket_id, coalesce(broker_id, -1))""",
    """create index utilization_daily_of_bucket
       on utilization_daily (cluster_id, bucket_id, dt desc)""",
    "create unique index throttle_incident_once on throttle_incident (cluster_id, incident_id)",
    """create index throttle_incident_newest
       on throttle_incident (cluster_id, start desc, incident_id)""",
    """create unique index bucket_minute_once
       on bucket_minute (cluster_id, bucket_id, ts, broker_id)""",
    "create index bucket_minute_of_day on bucket_minute using brin (dt)",
    """create unique index dim_bucket_once on dim_bucket
       (cluster_id, bucket_id, level, coalesce(quota_user, ''), coalesce(quota_user_default, false),
        coalesce(quota_client_id, ''), coalesce(quota_client_default, false))""",
    """create index dim_bucket_by_names on dim_bucket
       (cluster_id, bucket_user, bucket_client, key)""",
)

RUNS = (
    """
    create table pipeline_run (
      seq bigint generated always as identity primary key,
      run_id text not null check (length(run_id) between 1 and 64),
      job text not null,
      options jsonb not null default '{}',
      cluster_id text,
      state text not null
        check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
      requested_by text,
      requested_at timestamptz not null default clock_timestamp(),
      cancel_requested boolean not null default false,
      started_at timestamptz,
      ended_at timestamptz,
      data_through timestamptz,
      coverage double precision check (coverage between 0 and 1),
      rows_in bigint,
      rows_out bigint,
      published text[] not null default '{}',
      progress text,
      error text,
      constraint an_ended_run_has_an_end check
        ((ended_at is null) = (state in ('queued', 'running')))
    )
    """,
    "create index pipeline_run_by_id on pipeline_run (run_id, seq desc)",
    "create index pipeline_run_open on pipeline_run (state, seq) where ended_at is null",
)


def upgrade() -> None:
    """Create the tables, and for each result the one that it is copied into first."""
    for name, columns in RESULTS.items():
        op.execute(f"create table {name} ({columns})")
        op.execute(f"create unlogged table staged_{name} (run bigint not null, {columns})")
        op.execute(f"create index staged_{name}_of_run on staged_{name} (run)")
    for statement in (*INDEXES, *RUNS):
        op.execute(statement)


def downgrade() -> None:
    """Drop the results; the pipeline can publish them again from its files."""
    for name in RESULTS:
        op.execute(f"drop table staged_{name}, {name}")
    op.execute("drop table pipeline_run")
