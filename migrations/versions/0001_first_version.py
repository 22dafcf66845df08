"""Create the schema: the audit log, what alterations lock, plans, results of the pipeline.

The log is two append-only tables with a partition for each month. `audit_event` has a row for each
event of a request: what was asked for (`seq` 0), what became of it, and what was found later.
Its `payload` is JSON that says all of it and is sealed; the first `head_length` bytes are what
concerns the request, without the closing brace. `audit_entity` has a row for each entity of an
event (the ordinal is its position in the request): what it is found by, its verdict, and where in
the payload its document is. All rows of a request lie in the partition of the time inside its id,
`received_at`; `at` is the time of its first event on every row. The views have a row for each
entity. The other tables are working data that the service changes.

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

AUDIT_LOG = r"""
create table audit_event (
  received_at timestamptz not null,
  alteration_id uuid not null,
  seq smallint not null,
  event_type text not null check (event_type in ('intent', 'denied', 'validated', 'outcome',
    'recovery', 'superseded', 'drift')),
  at timestamptz not null,
  occurred_at timestamptz not null,
  cluster_id text check (length(cluster_id) between 1 and 249),
  principal text check (octet_length(principal) <= 1024),
  action text
    check (action in ('alter', 'validate', 'denied', 'revert', 'apply_plan', 'drift')),
  head_length integer not null,
  payload bytea not null check (octet_length(payload) <= 33554432),
  leaf_hash bytea not null
    constraint hash_seals_the_payload check (leaf_hash = sha256('\x00'::bytea || payload)),
  primary key (received_at, alteration_id, seq),
  constraint one_event_of_a_kind check (case
    when event_type in ('outcome', 'recovery', 'superseded') then seq > 0
    else seq = 0 or event_type = 'drift' and seq > 0 end),
  constraint only_a_start_names_the_request
    check (num_nonnulls(cluster_id, principal, action) = case seq when 0 then 3 else 0 end),
  constraint the_head_is_in_the_payload
    check (head_length between 1 and octet_length(payload))
) partition by range (received_at);
alter table audit_event alter column payload set storage external;
create index audit_event_newest
  on audit_event (cluster_id, at desc, alteration_id desc) where seq = 0;
create index audit_event_by_principal
  on audit_event (cluster_id, principal, at desc, alteration_id desc) where seq = 0;
create index audit_event_by_action
  on audit_event (cluster_id, action, at desc, alteration_id desc)
  where seq = 0 and action <> 'alter';
create index audit_event_found_later
  on audit_event (occurred_at) where event_type in ('recovery', 'superseded');
create table audit_entity (
  received_at timestamptz not null,
  alteration_id uuid not null,
  ordinal smallint not null check (ordinal between 0 and 32000),
  seq smallint not null,
  at timestamptz not null,
  cluster_id text,
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
  document_at integer not null,
  document_length integer not null,
  primary key (received_at, alteration_id, ordinal, seq),
  constraint only_a_start_names_the_entity check ((cluster_id is not null) = (seq = 0)
    and num_nonnulls(user_kind, client_id_kind, ip_kind, other_types) in (0, 4)
    and (user_kind is null or seq = 0))
) partition by range (received_at);
create index audit_entity_by_user on audit_entity
  (cluster_id, user_kind, substr(user_name, 1, 64),
  at desc, alteration_id desc, ordinal)
  where user_kind <> 'absent';
create index audit_entity_by_client_id on audit_entity
  (cluster_id, client_id_kind, substr(client_id_name, 1, 64),
  at desc, alteration_id desc, ordinal)
  where client_id_kind <> 'absent';
create index audit_entity_by_ip on audit_entity
  (cluster_id, ip_kind, substr(ip_name, 1, 64),
  at desc, alteration_id desc, ordinal)
  where ip_kind <> 'absent';
create index audit_entity_by_verdict
  on audit_entity (verdict, at desc, alteration_id desc, ordinal) where verdict <> 'applied';
create unique index audit_entity_one_conclusion
  on audit_entity (received_at, alteration_id, ordinal) where seq > 0 and verdict <> 'unknown';
"""

VIEWS = r"""
create view audit_entity_event as
  select entity.received_at, entity.alteration_id, entity.ordinal, entity.seq, event.event_type,
    entity.at, event.occurred_at, entity.cluster_id, event.principal, event.action,
    entity.verdict,
    convert_from(substr(event.payload, document_at, document_length), 'UTF8') as document
  from audit_entity as entity join audit_event as event using (received_at, alteration_id, seq);
create view audit_log as
  with readable as (
    select *, regexp_replace(document, '\\u(0000|d[89a-f][0-9a-f]{2})', '\\ufffd', 'g')::json
      as content
    from audit_entity_event
  )
  select started.cluster_id, started.at, started.alteration_id, started.ordinal,
    started.principal, started.action, started.content -> 'entity' as entity,
    started.content -> 'ops' as ops,
    coalesce(nullif((ended.result -> 'before')::text, 'null')::json, started.content -> 'before')
      as before,
    ended.result -> 'after' as after, coalesce(ended.verdict, 'unknown') as outcome,
    ended.result -> 'error' as error, ended.occurred_at as concluded_at
  from readable as started left join lateral (
    select verdict, occurred_at, content -> 'result' as result from readable as later
    where later.received_at = started.received_at
      and later.alteration_id = started.alteration_id and later.ordinal = started.ordinal
      and later.verdict is not null
    order by later.seq desc limit 1
  ) as ended on true
  where started.seq = 0;
revoke all on audit_entity_event, audit_log from public;
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
  log text;
  partition_name text;
  created integer := 0;
begin
  if months_back not between 0 and 12 or months_ahead not between 0 and 24 then
    raise exception 'at most 12 months back and 24 ahead';
  end if;
  perform pg_advisory_xact_lock(hashtext('ensure_audit_partitions'));
  for step in -months_back .. months_ahead loop
    first_day := this_month + make_interval(months => step);
    foreach log in array array['audit_event', 'audit_entity'] loop
      partition_name := log || to_char(first_day, '"_y"YYYY"m"MM');
      continue when to_regclass(partition_name) is not null;
      execute format('create table %I partition of %I for values from (%L) to (%L)',
                     partition_name, log, first_day, first_day + interval '1 month');
      execute format('revoke all on %I from public', partition_name);
      execute format('alter table %I enable always trigger %I', partition_name, log || '_row');
      execute format('create trigger %I before truncate on %I for each '
                     'statement execute function refuse_change_of_audit_event()',
                     log || '_truncate', partition_name);
      execute format('alter table %I enable always trigger %I', partition_name,
                     log || '_truncate');
      created := created + 1;
    end loop;
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
    "utilization_hist": """
  cluster_id text not null,
  dt date not null,
  broker_id integer,
  key text not null,
  bucket_id bigint not null,
  bin integer not null,
  n bigint not null""",
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
create unique index utilization_hist_once
  on utilization_hist (cluster_id, bucket_id, dt, bin) where broker_id is null;
create index utilization_hist_of_day on utilization_hist (cluster_id, dt);
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
  events json, records bytea[], entities json, ids uuid[], repeatable uuid[],
  out recorded_at timestamptz, out refused json
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
    select * from json_to_recordset(events) as event(n integer, received_at timestamptz,
      alteration_id uuid, event_type text, cluster_id text, principal text, action text,
      head_length integer)
  ), given as materialized (
    select received_at, alteration_id, event_type, cluster_id, entity.*
    from event join json_to_recordset(entities) as entity(n integer, ordinal smallint,
      user_kind text, user_name bytea, client_id_kind text, client_id_name bytea, ip_kind text,
      ip_name bytea, other_types boolean, verdict text, document_at integer,
      document_length integer, "values" text) using (n)
  ), dubious as materialized (
    select given.received_at, given.alteration_id, given.ordinal, event_type, verdict, observed
    from given left join quota_entity as held on held.alteration_id = any(ids)
      and held.alteration_id = given.alteration_id and held.ordinal = given.ordinal
    where given.cluster_id is null
      and (held.alteration_id is null or quarantined and event_type = 'outcome' or observed)
  ), left_out as materialized (
    select alteration_id, ordinal, standing.event_type, document
    from dubious cross join lateral (
      select count(*) as number, max(earlier.seq) as last_seq,
        max(earlier.seq) filter (where earlier.seq > 0 and earlier.verdict is not null
          and dubious.event_type <> 'drift'
          and (earlier.verdict <> 'unknown' or dubious.event_type = 'outcome')) as concluded_seq
      from audit_entity as earlier
      where earlier.received_at = dubious.received_at
        and earlier.alteration_id = dubious.alteration_id and earlier.ordinal = dubious.ordinal
    ) as history left join lateral (
      select event_type, document from audit_entity_event as event
      where event.received_at = dubious.received_at
        and event.alteration_id = dubious.alteration_id
        and event.ordinal = dubious.ordinal and event.seq = coalesce(concluded_seq, last_seq)
      offset 0
    ) as standing on true
    where number = 0 or concluded_seq is not null
      or dubious.event_type = 'recovery' and verdict is null and observed
  ), dated as materialized (
    select numbered.*, '{"at":"' || payload_time(at) || '","occurred_at":"'
      || payload_time(occurred_at) || '",' as times
    from (
      select event.*, coalesce(started_at, recorded_at) as at,
        greatest(started_at, recorded_at) as occurred_at,
        coalesce(last_seq + row_number() over (partition by alteration_id order by n), 0) as seq
      from event cross join lateral (
        select min(at) as started_at, max(seq) as last_seq from audit_event as earlier
        where event.cluster_id is null and earlier.received_at = event.received_at
          and earlier.alteration_id = event.alteration_id
      ) as history
      where not exists (select from left_out)
    ) as numbered
  ), inserted as (
    insert into audit_event (received_at, alteration_id, seq, event_type, at, occurred_at,
      cluster_id, principal, action, head_length, payload, leaf_hash)
    select received_at, alteration_id, seq, event_type, at, occurred_at, cluster_id, principal,
      action, head_length + length(times) - 1, payload, sha256('\\x00'::bytea || payload)
    from dated join unnest(records) with ordinality as given(record, n) using (n)
      cross join lateral (
        select convert_to(times, 'UTF8') || substr(record, 2) as payload offset 0) as sealed
  ), entity as materialized (
    select given.*, dated.seq, dated.at, document_at + length(times) - 1 as begins_at
    from given join dated using (n)
  ), listed as (
    insert into audit_entity (received_at, alteration_id, ordinal, seq, at, cluster_id,
      user_kind, user_name, client_id_kind, client_id_name, ip_kind, ip_name, other_types, verdict,
      document_at, document_length)
    select received_at, alteration_id, ordinal, seq, at, cluster_id,
      case when other_types is not null then coalesce(user_kind, 'absent') end, user_name,
      case when other_types is not null then coalesce(client_id_kind, 'absent') end,
      client_id_name, case when other_types is not null then coalesce(ip_kind, 'absent') end,
      ip_name, other_types, verdict, begins_at, document_length
    from entity
  ), settled as materialized (
    select held.cluster_id, held.entity_hash, held.alteration_id, held.claim, held.entity
    from entity join quota_entity as held using (alteration_id, ordinal)
    where held.alteration_id = any(ids) and entity.verdict = 'applied' and held.claim is not null
  ), freed as (
    update quota_entity as held set alteration_id = null, claim = null,
      "values" = coalesce(entity."values", held."values"),
      version = held.version + (entity."values" is not null)::integer,
      changed_by = case when entity."values" is null then changed_by else held.alteration_id end,
      changed_at = case when entity."values" is null then changed_at else recorded_at end
    from entity
    where held.alteration_id = any(ids) and held.alteration_id = entity.alteration_id
      and held.ordinal = entity.ordinal and entity.verdict <> 'unknown'
  ), quarantined as (
    update quota_entity as held set quarantined = true, handed_over_by =
      greatest(taken_at, least(handed_over_by, clock_timestamp()))
    from entity
    where held.alteration_id = any(ids) and held.alteration_id = entity.alteration_id
      and held.ordinal = entity.ordinal and entity.verdict = 'unknown'
  ), observed as (
    update quota_entity as held set observed = true, claimed_by = null, claimed_until = null
    from entity
    where held.alteration_id = any(ids) and held.alteration_id = entity.alteration_id
      and held.ordinal = entity.ordinal and entity.verdict is null
      and entity.event_type = 'recovery'
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
      (pair).value::double precision, entity, alteration_id, clock_timestamp()
    from (select settled.*, json_each_text(claim -> 'values') as pair from settled) as wanted
    order by cluster_id, entity_hash, (pair).key
    on conflict (cluster_id, entity_hash, key) do update set
      owner = excluded.owner,
      value = excluded.value,
      alteration_id = excluded.alteration_id,
      applied_at = excluded.applied_at
  )
  select array_agg(distinct received_at), (select json_agg(left_out) from left_out)
  into starts, refused from event;
  if refused is not null or cardinality(ids) = 0 then
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
        select alteration_id from audit_entity
        where received_at = any(starts) and alteration_id = any(repeatable) and seq > 0
          and verdict not in ('not_sent', 'refused', 'not_applied', 'unknown')));
  end if;
end
$$;
"""

RECORD_INTENTS = """
create function record_intents(
  keys json, requests json, locks json, events json, records bytea[], entities json,
  handed_over_within double precision, patient boolean,
  out lost uuid[]
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
      select request.*, ordinal, entity, sha256(convert_to(entity, 'UTF8')) as entity_hash, claim
      from json_to_recordset(locks) as wanted(n integer, ordinal smallint, entity text, claim json)
      join json_to_recordset(requests) as request(n integer, alteration_id uuid, cluster_id text,
        received_at timestamptz, owner text, broker_id integer) using (n)
    ), clock as materialized (select clock_timestamp() as now), taken as (
      insert into quota_entity as held (cluster_id, entity_hash, alteration_id, ordinal,
        received_at, owner, broker_id, taken_at, handed_over_by, claim, entity)
      select cluster_id, entity_hash, alteration_id, ordinal, received_at, owner, broker_id, now,
        now + make_interval(secs => handed_over_within), claim, entity
      from clock, wanted
      order by cluster_id, entity_hash
      on conflict (cluster_id, entity_hash) do update set
        (alteration_id, ordinal, received_at, owner, broker_id, taken_at, handed_over_by, claim,
          quarantined, observed, claimed_by, claimed_until)
        = (excluded.alteration_id, excluded.ordinal, excluded.received_at, excluded.owner,
          excluded.broker_id, excluded.taken_at, excluded.handed_over_by, excluded.claim,
          false, false, null, null)
      where held.alteration_id is null
      returning alteration_id, ordinal
    )
    select array_cat(lost, array_agg(distinct wanted.alteration_id)) into lost
    from wanted left join taken using (alteration_id, ordinal) where taken.ordinal is null;
  exception when lock_not_available or deadlock_detected then
    raise lock_not_available using message = 'another transaction is taking it', table = locking;
  end;
  if cardinality(lost) > 0 then
    update quota_entity set alteration_id = null, claim = null where alteration_id = any(lost);
    delete from idempotency where alteration_id = any(lost);
    events := (select coalesce(json_agg(event), '[]') from json_array_elements(events) as event
      where (event ->> 'alteration_id')::uuid <> all (lost));
  end if;
  perform append_events(events, records, entities, '{}', '{}');
end
$$;
"""

VIEW_NAMES = ("audit_log", "audit_entity_event")

TABLES = (
    "audit_event",
    "audit_entity",
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
    "record_intents(json, json, json, json, bytea[], json, double precision, boolean)",
    "append_events(json, bytea[], json, uuid[], uuid[])",
    "payload_time(timestamptz)",
    "ensure_audit_partitions(integer, integer)",
    "refuse_change_of_audit_event()",
)


def upgrade() -> None:
    """Create everything but the partitions, which `ensure_audit_partitions` makes."""
    for script in (AUDIT_LOG, VIEWS, LOCKS_AND_PLANS, AUTHENTICATION_FAILURE, APPEND_ONLY):
        op.execute(script)
    for table in ("audit_event", "audit_entity", "authentication_failure"):
        op.execute(GUARD.format(table=table))
    schema = op.get_bind().scalar(text("select quote_ident(current_schema())"))
    op.execute(PARTITIONS.replace("{schema}", schema))
    for name, columns in RESULTS.items():
        op.execute(f"create table {name} ({columns})")
    for script in (RESULT_INDEXES, PIPELINE_RUN, PAYLOAD_TIME, APPEND_EVENTS, RECORD_INTENTS):
        op.execute(script.replace("{settings}", SETTINGS))


def downgrade() -> None:
    """Drop everything, the log with its rows."""
    op.execute(f"drop view {', '.join(VIEW_NAMES)}")
    op.execute(f"drop table {', '.join(TABLES)}")
    for function in FUNCTIONS:
        op.execute(f"drop function {function}")
