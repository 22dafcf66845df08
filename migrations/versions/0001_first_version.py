"""Create the schema: the audit log, what alterations lock, plans, results of the pipeline.

The log is one append-only table with a partition for each month. A request is a row of ordinal -1
and one row for each entity (its ordinal is its position in the request). What became of an entity
is a further row of the same ordinal. All rows of a request lie in the partition of the time inside
its id, `received_at`. The other tables are working data that the service changes.

`quota_entity` has each entity's lock and its last audited state. It is locked where it has an
`alteration_id`; without one, what stands of a lock is of the last. Version 0 is no state.
"""

from collections.abc import Sequence

from alembic import op
from sqlalchemy import text

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

AUDIT_EVENT = r"""
create table audit_event (
  received_at timestamptz not null,
  alteration_id uuid not null,
  ordinal smallint not null check (ordinal between -1 and 32000),
  seq smallint not null,
  event_type text not null check (event_type in ('intent', 'denied', 'validated', 'rejected',
    'outcome', 'recovery', 'superseded', 'drift')),
  at timestamptz not null,
  occurred_at timestamptz not null,
  cluster_id text check (length(cluster_id) between 1 and 249),
  principal text check (octet_length(principal) <= 1024),
  action text
    check (action in ('alter', 'validate', 'denied', 'revert', 'apply_plan', 'drift')),
  user_kind text check (user_kind in ('absent', 'default', 'name')),
  user_name bytea check ((user_kind is not distinct from 'name') = (user_name is not null)),
  client_id_kind text check (client_id_kind in ('absent', 'default', 'name')),
  client_id_name bytea
    check ((client_id_kind is not distinct from 'name') = (client_id_name is not null)),
  ip_kind text check (ip_kind in ('absent', 'default', 'name')),
  ip_name bytea check ((ip_kind is not distinct from 'name') = (ip_name is not null)),
  other_types boolean,
  verdict text check (verdict in ('applied', 'validated', 'refused', 'not_applied', 'unknown',
    'not_sent', 'observed_other', 'superseded')),
  payload text not null check (octet_length(payload) <= 33554432),
  leaf_hash bytea not null
    constraint hash_seals_the_payload
    check (leaf_hash = sha256('\x00'::bytea || convert_to(payload, 'UTF8'))),
  listed boolean not null
    generated always as (seq = 0 and ordinal >= 0 and event_type <> 'rejected') stored,
  primary key (received_at, alteration_id, ordinal, seq),
  constraint one_event_of_a_kind check (case
    when event_type = 'outcome' then seq = 1
    when event_type in ('recovery', 'superseded') then seq >= 2
    when event_type = 'drift' then seq = 0 or seq >= 2
    else seq = 0 end),
  constraint only_a_start_names_the_request
    check (num_nonnulls(cluster_id, principal, action) = case seq when 0 then 3 else 0 end),
  constraint only_an_entity_has_kinds check (
    num_nonnulls(user_kind, client_id_kind, ip_kind, other_types) in (0, 4)
    and (user_kind is null or (seq = 0 and ordinal >= 0))),
  constraint an_end_has_a_verdict check (case
    when ordinal < 0 or event_type = 'intent' then verdict is null
    when event_type = 'drift' then (verdict is null) = (seq > 0)
    else verdict is not null or event_type = 'recovery' end)
) partition by range (received_at);
create index audit_event_newest
  on audit_event (cluster_id, at desc, alteration_id desc, ordinal) where listed;
create index audit_event_by_principal
  on audit_event (cluster_id, principal, at desc, alteration_id desc, ordinal) where listed;
create index audit_event_by_user on audit_event
  (cluster_id, user_kind, substr(user_name, 1, 64),
  at desc, alteration_id desc, ordinal)
  where user_kind <> 'absent';
create index audit_event_by_client_id on audit_event
  (cluster_id, client_id_kind, substr(client_id_name, 1, 64),
  at desc, alteration_id desc, ordinal)
  where client_id_kind <> 'absent';
create index audit_event_by_ip on audit_event
  (cluster_id, ip_kind, substr(ip_name, 1, 64),
  at desc, alteration_id desc, ordinal)
  where ip_kind <> 'absent';
create index audit_event_by_action
  on audit_event (cluster_id, action, at desc, alteration_id desc, ordinal)
  where listed and action <> 'alter';
create index audit_event_by_verdict
  on audit_event (verdict, at desc, alteration_id desc, ordinal)
  where verdict <> 'applied' and event_type <> 'rejected';
create unique index audit_event_one_conclusion
  on audit_event (received_at, alteration_id, ordinal)
  where seq > 0 and verdict <> 'unknown';
create index audit_event_found_later on audit_event (occurred_at) where seq > 1;
"""

LOCKS_AND_PLANS = """
create table quota_entity (
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  entity_hash bytea not null check (octet_length(entity_hash) = 32),
  alteration_id uuid,
  ordinal smallint check (ordinal between -32000 and 32000),
  received_at timestamptz,
  owner text check (length(owner) between 1 and 255),
  quarantined boolean not null default false,
  broker_id integer,
  taken_at timestamptz,
  handed_over_by timestamptz,
  observed boolean not null default false,
  claimed_by text,
  claimed_until timestamptz,
  claim json,
  entity text,
  "values" text not null default '{}',
  version bigint not null default 0 check (version >= 0),
  changed_by uuid,
  changed_at timestamptz not null default clock_timestamp(),
  primary key (cluster_id, entity_hash),
  constraint a_lock_is_whole check (alteration_id is null
    or num_nulls(ordinal, received_at, owner, taken_at, handed_over_by) = 0),
  constraint handed_over_under_the_lock check (handed_over_by >= taken_at),
  constraint a_claim_has_an_end check ((claimed_by is null) = (claimed_until is null)),
  constraint a_state_names_its_entity check (version = 0 or entity is not null)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
create unique index quota_entity_locked on quota_entity (alteration_id, ordinal)
  where alteration_id is not null;
create table idempotency (
  key_hash bytea primary key check (octet_length(key_hash) = 32),
  fingerprint bytea not null check (octet_length(fingerprint) = 32),
  alteration_id uuid not null,
  expires_at timestamptz not null
);
create index idempotency_of_alteration on idempotency (alteration_id);
create index idempotency_by_expiry on idempotency (expires_at);
create table worker (
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  owner text not null,
  seen_at timestamptz not null,
  primary key (cluster_id, owner)
);
create table drift_baseline (cluster_id text primary key, taken_at timestamptz not null);
create table quota_plan (
  plan_id uuid primary key,
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  author text not null check (octet_length(author) <= 1024),
  owner text not null check (length(owner) between 1 and 128),
  base text not null check (base ~ '^[0-9a-f]{64}$'),
  created_at timestamptz not null,
  expires_at timestamptz not null check (expires_at > created_at),
  plan text not null,
  document text not null
);
create index quota_plan_by_expiry on quota_plan (expires_at);
create table quota_owner (
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  entity_hash bytea not null check (octet_length(entity_hash) = 32),
  key text not null,
  owner text not null check (length(owner) between 1 and 128),
  value double precision not null,
  entity text not null,
  alteration_id uuid not null,
  applied_at timestamptz not null,
  primary key (cluster_id, entity_hash, key)
);
create index quota_owner_by_owner on quota_owner (cluster_id, owner);
"""

AUTHENTICATION_FAILURE = """
create table authentication_failure (
  id uuid primary key,
  minute timestamptz not null check (minute = date_trunc('minute', minute, 'UTC')),
  source cidr,
  method text not null check (length(method) between 1 and 64),
  reason text not null check (length(reason) between 1 and 64),
  n bigint not null check (n > 0),
  recorded_at timestamptz not null default clock_timestamp()
);
create index authentication_failure_newest on authentication_failure (minute desc);
"""

APPEND_ONLY = """
create function refuse_change_of_audit_event() returns trigger language plpgsql as $$
begin
  raise exception 'The audit log is append-only: % on % is refused.', tg_op, tg_table_name
    using errcode = 'insufficient_privilege';
end
$$;
"""

GUARD = """
create trigger {table}_row before update or delete on {table}
  for each row execute function refuse_change_of_audit_event();
alter table {table} enable always trigger {table}_row;
create trigger {table}_truncate before truncate on {table}
  for each statement execute function refuse_change_of_audit_event();
alter table {table} enable always trigger {table}_truncate;
revoke all on {table} from public;
"""

PARTITIONS = """
create function ensure_audit_partitions(months_back integer, months_ahead integer)
returns integer language plpgsql security definer
set search_path to {schema}, pg_temp set timezone = 'UTC' as $$
declare
  this_month constant timestamptz := date_trunc('month', now());
  first_day timestamptz;
  partition_name text;
  created integer := 0;
begin
  if months_back not between 0 and 12 or months_ahead not between 0 and 24 then
    raise exception 'at most 12 months back and 24 ahead';
  end if;
  perform pg_advisory_xact_lock(hashtext('ensure_audit_partitions'));
  for step in -months_back .. months_ahead loop
    first_day := this_month + make_interval(months => step);
    partition_name := to_char(first_day, '"audit_event_y"YYYY"m"MM');
    if to_regclass(partition_name) is null then
      execute format('create table %I partition of audit_event for values from (%L) to (%L)',
                     partition_name, first_day, first_day + interval '1 month');
      execute format('revoke all on %I from public', partition_name);
      execute format('alter table %I enable always trigger audit_event_row', partition_name);
      execute format('create trigger audit_event_truncate before truncate on %I for each '
                     'statement execute function refuse_change_of_audit_event()', partition_name);
      execute format('alter table %I enable always trigger audit_event_truncate', partition_name);
      created := created + 1;
    end if;
  end loop;
  return created;
end
$$;
revoke all on function ensure_audit_partitions(integer, integer) from public;
"""

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
    "bucket_hour": """
  cluster_id text not null,
  dt date not null,
  hour timestamptz not null,
  broker_id integer not null,
  key text not null,
  bucket_id bigint not null,
  rate_avg double precision,
  rate_max double precision,
  "limit" double precision,
  throttle_ms_max double precision,
  minutes integer""",
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

RESULT_INDEXES = """
create unique index utilization_daily_once
  on utilization_daily (cluster_id, dt, key, bucket_id, coalesce(broker_id, -1));
create index utilization_daily_fullest on utilization_daily
  (cluster_id, dt desc, coalesce(util_p99, -1) desc, bucket_id, coalesce(broker_id, -1));
create index utilization_daily_of_bucket
  on utilization_daily (cluster_id, bucket_id, dt desc);
create unique index throttle_incident_once on throttle_incident (cluster_id, incident_id);
create index throttle_incident_newest
  on throttle_incident (cluster_id, start desc, incident_id);
create unique index bucket_hour_once
  on bucket_hour (cluster_id, bucket_id, hour, broker_id);
create index bucket_hour_of_day on bucket_hour (cluster_id, dt);
create unique index dim_bucket_once on dim_bucket
  (cluster_id, bucket_id, level, coalesce(quota_user, ''), coalesce(quota_user_default, false),
  coalesce(quota_client_id, ''), coalesce(quota_client_default, false));
create index dim_bucket_by_names on dim_bucket
  (cluster_id, bucket_user, bucket_client, key);
"""

PIPELINE_RUN = """
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
);
create index pipeline_run_by_id on pipeline_run (run_id, seq desc);
create index pipeline_run_open on pipeline_run (state, seq) where ended_at is null;
"""

SETTINGS = """
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off
  set enable_mergejoin = off set enable_hashjoin = on
"""
"""Locks come and go with each alteration. Where the planner believes that there is none, it
compares all with all; joined by hash, on what an index finds, thousands are as quick as few."""

PAYLOAD_TIME = """
create function payload_time(at timestamptz) returns text language sql stable as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
$$;
"""

APPEND_EVENTS = """
create function append_events(
  events json, ids uuid[], repeatable uuid[], out recorded_at timestamptz, out refused json
) language plpgsql {settings} as $$
#variable_conflict use_column
declare
  starts timestamptz[];
begin
  perform set_config('synchronous_commit', case current_setting('synchronous_commit')
    when 'remote_apply' then 'remote_apply' else 'on' end, true);
  perform from quota_entity where alteration_id = any(ids)
  order by cluster_id, entity_hash for update;
  recorded_at := clock_timestamp();
  with event as materialized (
    select * from json_to_recordset(events) as event(received_at timestamptz, alteration_id uuid,
      ordinal smallint, event_type text, verdict text, record text, cluster_id text,
      principal text, action text, user_kind text, user_name bytea, client_id_kind text,
      client_id_name bytea, ip_kind text, ip_name bytea, other_types boolean, entity text,
      "values" text)
  ), judged as materialized (
    select event.*, case when cluster_id is null then started_at else recorded_at end as at,
      greatest(started_at, recorded_at) as occurred_at,
      case when cluster_id is not null then 0 when event_type = 'outcome' then 1
        else greatest(last_seq, 1) + 1 end as seq,
      conclusion, event_type = 'recovery' and verdict is null and exists (
        select from quota_entity as held where held.alteration_id = event.alteration_id
          and held.ordinal = event.ordinal and observed) as is_repeated
    from event cross join lateral (
      select min(earlier.at) as started_at, max(earlier.seq) as last_seq,
        (array_agg(earlier.payload order by earlier.seq desc) filter (where earlier.seq > 0
          and earlier.verdict is not null and event.event_type <> 'drift'
          and (earlier.verdict <> 'unknown' or event.event_type = 'outcome')))[1] as conclusion
      from audit_event as earlier
      where event.cluster_id is null and earlier.received_at = event.received_at
        and earlier.alteration_id = event.alteration_id and earlier.ordinal = event.ordinal
    ) as history
  ), fresh as materialized (
    select *, '{"at":"' || payload_time(at) || '","occurred_at":"' || payload_time(occurred_at)
      || '",' || substr(record, 2) as payload
    from judged where at is not null and conclusion is null and not is_repeated
  ), inserted as (
    insert into audit_event (received_at, alteration_id, ordinal, seq, event_type, at, occurred_at,
      payload, leaf_hash, verdict, cluster_id, principal, action, user_kind, user_name,
      client_id_kind, client_id_name, ip_kind, ip_name, other_types)
    select received_at, alteration_id, ordinal, seq, event_type, at, occurred_at, payload,
      sha256('\\x00'::bytea || convert_to(payload, 'UTF8')), verdict, cluster_id, principal,
      action, user_kind, user_name, client_id_kind, client_id_name, ip_kind, ip_name, other_types
    from fresh
  ), settled as materialized (
    select held.cluster_id, held.entity_hash, held.alteration_id, held.claim
    from fresh join quota_entity as held using (alteration_id, ordinal)
    where held.alteration_id = any(ids) and fresh.verdict = 'applied' and held.claim is not null
  ), freed as (
    update quota_entity as held set alteration_id = null, claim = null,
      entity = coalesce(fresh.entity, held.entity),
      "values" = coalesce(fresh."values", held."values"),
      version = held.version + (fresh.entity is not null)::integer,
      changed_by = case when fresh.entity is null then changed_by else held.alteration_id end,
      changed_at = case when fresh.entity is null then changed_at else recorded_at end
    from fresh
    where held.alteration_id = any(ids) and held.alteration_id = fresh.alteration_id
      and held.ordinal = fresh.ordinal and fresh.verdict <> 'unknown'
  ), quarantined as (
    update quota_entity as held set quarantined = true, handed_over_by =
      greatest(taken_at, least(handed_over_by, clock_timestamp()))
    from fresh
    where held.alteration_id = any(ids) and held.alteration_id = fresh.alteration_id
      and held.ordinal = fresh.ordinal and fresh.verdict = 'unknown'
  ), observed as (
    update quota_entity as held set observed = true, claimed_by = null, claimed_until = null
    from fresh
    where held.alteration_id = any(ids) and held.alteration_id = fresh.alteration_id
      and held.ordinal = fresh.ordinal and fresh.verdict is null and fresh.event_type = 'recovery'
  ), renewed as (
    update idempotency set expires_at = clock_timestamp() + interval '24 hours'
    where alteration_id = any(ids)
  ), let_go as (
    delete from quota_owner where ctid = any(array(
      select (select held.ctid from quota_owner as held where held.cluster_id = settled.cluster_id
        and held.entity_hash = settled.entity_hash and held.key = removed.key)
      from settled, json_array_elements_text(claim -> 'removed') as removed(key)))
  ), owned as (
    insert into quota_owner
      (cluster_id, entity_hash, key, owner, value, entity, alteration_id, applied_at)
    select cluster_id, entity_hash, (pair).key, claim ->> 'owner',
      (pair).value::double precision, claim ->> 'entity', alteration_id, clock_timestamp()
    from (select settled.*, json_each_text(claim -> 'values') as pair from settled) as wanted
    order by cluster_id, entity_hash, (pair).key
    on conflict (cluster_id, entity_hash, key) do update set
      owner = excluded.owner,
      value = excluded.value,
      alteration_id = excluded.alteration_id,
      applied_at = excluded.applied_at
  )
  select json_agg(json_build_array(alteration_id, ordinal, conclusion))
      filter (where at is null or conclusion is not null),
    array_agg(distinct received_at)
  into refused, starts from judged;
  if cardinality(ids) = 0 then
    return;
  end if;
  update quota_entity set alteration_id = null
  where alteration_id = any(ids) and ordinal < 0 and alteration_id <> all (
    array(select alteration_id from quota_entity where alteration_id = any(ids) and ordinal >= 0));
  if cardinality(repeatable) > 0 then
    delete from idempotency where alteration_id = any(repeatable)
      and alteration_id <> all (array(
        select alteration_id from quota_entity where alteration_id = any(repeatable)))
      and alteration_id <> all (array(
        select alteration_id from audit_event
        where received_at = any(starts) and alteration_id = any(repeatable) and seq > 0
          and verdict not in ('not_sent', 'refused', 'not_applied', 'unknown')));
  end if;
end
$$;
"""

RECORD_INTENTS = """
create function record_intents(
  keys json, requests json, locks json, events json, handed_over_within double precision,
  patient boolean, out at timestamptz, out lost uuid[], out states json
) language plpgsql {settings} as $$
#variable_conflict use_column
declare
  locking text := 'idempotency';
begin
  begin
    if json_array_length(keys) > 0 then
      perform set_config('lock_timeout', case when patient then '1200ms' else '50ms' end, true);
      with wanted as materialized (
        select * from json_populate_recordset(null::idempotency, keys)
      ), taken as (
        insert into idempotency (key_hash, fingerprint, alteration_id, expires_at)
        select key_hash, fingerprint, alteration_id, clock_timestamp() + interval '24 hours'
        from wanted order by key_hash
        on conflict (key_hash) do update set
          fingerprint = excluded.fingerprint,
          alteration_id = excluded.alteration_id,
          expires_at = excluded.expires_at
        where idempotency.expires_at <= clock_timestamp()
        returning alteration_id
      )
      select array_agg(alteration_id) into lost from wanted
      where alteration_id not in (select alteration_id from taken);
    end if;
    locking := 'quota_entity';
    perform set_config('lock_timeout', case when patient then '500ms' else '50ms' end, true);
    with wanted as materialized (
      select * from json_to_recordset(locks)
        as wanted(alteration_id uuid, ordinal smallint, entity_hash bytea, claim json)
      join json_to_recordset(requests) as request(alteration_id uuid, cluster_id text,
        received_at timestamptz, owner text, broker_id integer) using (alteration_id)
    ), clock as materialized (select clock_timestamp() as now), taken as (
      insert into quota_entity as held (cluster_id, entity_hash, alteration_id, ordinal,
        received_at, owner, broker_id, taken_at, handed_over_by, claim)
      select cluster_id, entity_hash, alteration_id, ordinal,
        received_at, owner, broker_id, now, now + make_interval(secs => handed_over_within), claim
      from clock, wanted
      order by cluster_id, entity_hash
      on conflict (cluster_id, entity_hash) do update set
        (alteration_id, ordinal, received_at, owner, broker_id, taken_at, handed_over_by, claim,
          quarantined, observed, claimed_by, claimed_until)
        = (excluded.alteration_id, excluded.ordinal, excluded.received_at, excluded.owner,
          excluded.broker_id, excluded.taken_at, excluded.handed_over_by, excluded.claim,
          false, false, null, null)
      where held.alteration_id is null
      returning alteration_id, ordinal, version, "values", changed_at
    )
    select array_cat(lost, array_agg(distinct alteration_id) filter (where version is null)),
      json_agg(json_build_array(alteration_id, ordinal, "values",
        extract(epoch from clock_timestamp() - changed_at)::float8)) filter (where version > 0)
    into lost, states
    from wanted left join taken using (alteration_id, ordinal);
  exception when lock_not_available or deadlock_detected then
    raise lock_not_available using message = 'another transaction is taking it', table = locking;
  end;
  if cardinality(lost) > 0 then
    update quota_entity set alteration_id = null, claim = null where alteration_id = any(lost);
    delete from idempotency where alteration_id = any(lost);
    events := (select coalesce(json_agg(event), '[]') from json_array_elements(events) as event
      where (event ->> 'alteration_id')::uuid <> all (lost));
  end if;
  at := (append_events(events, '{}', '{}')).recorded_at;
end
$$;
"""

TABLES = (
    "audit_event",
    "quota_entity",
    "idempotency",
    "worker",
    "drift_baseline",
    "quota_plan",
    "quota_owner",
    "authentication_failure",
    "pipeline_run",
    *RESULTS,
)

FUNCTIONS = (
    "record_intents(json, json, json, json, double precision, boolean)",
    "append_events(json, uuid[], uuid[])",
    "payload_time(timestamptz)",
    "ensure_audit_partitions(integer, integer)",
    "refuse_change_of_audit_event()",
)


def upgrade() -> None:
    """Create everything but the partitions, which `ensure_audit_partitions` makes."""
    for script in (AUDIT_EVENT, LOCKS_AND_PLANS, AUTHENTICATION_FAILURE, APPEND_ONLY):
        op.execute(script)
    for table in ("audit_event", "authentication_failure"):
        op.execute(GUARD.format(table=table))
    schema = op.get_bind().scalar(text("select quote_ident(current_schema())"))
    op.execute(PARTITIONS.replace("{schema}", schema))
    for name, columns in RESULTS.items():
        op.execute(f"create table {name} ({columns})")
    for script in (RESULT_INDEXES, PIPELINE_RUN, PAYLOAD_TIME, APPEND_EVENTS, RECORD_INTENTS):
        op.execute(script.replace("{settings}", SETTINGS))


def downgrade() -> None:
    """Drop everything, the log with its rows."""
    op.execute(f"drop table {', '.join(TABLES)}")
    for function in FUNCTIONS:
        op.execute(f"drop function {function}")
