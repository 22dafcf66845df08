"""Add what writes the intents, and the outcomes, of small alterations in one journey.

A journey to the server and back takes as long as the work there. These functions take rows as
JSON, with marks in the place of the times, which the database alone knows: the time of an intent is
taken when its slots are held. They fill them in and seal the rows. They run with the rights of who
calls them.

Plans for few rows are made once for a connection. What closes slots is also called for thousands,
by statements that let it join by hash; then its plan is made anew.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

SETTINGS = """
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
  set enable_mergejoin = off
"""

TIME_TEXT = """
create function payload_time(at timestamptz) returns text language sql stable as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
$$
"""

DURABLE = """
create function commit_durably() returns void language sql volatile as $$
  select set_config('synchronous_commit', case current_setting('synchronous_commit')
    when 'remote_apply' then 'remote_apply' else 'on' end, true)
$$
"""

INTENTS = """
create function record_intents(
  ids uuid[], keys json, slots json, events json, handed_over_within double precision, mark text,
  out at timestamptz, out granted uuid[], out known json
) language plpgsql {settings} as $$
#variable_conflict use_column
declare
  holding uuid[];
  now_text text;
begin
  perform commit_durably(), set_config('lock_timeout', '50ms', true);
  with wanted as materialized (
    select decode(key_hash, 'hex') as key_hash, decode(fingerprint, 'hex') as fingerprint,
      alteration_id
    from json_to_recordset(keys)
      as wanted(key_hash text, fingerprint text, alteration_id uuid)
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
  select array_agg(id) into granted from unnest(ids) as id
  where id not in (select alteration_id from wanted) or id in (select alteration_id from taken);
  with wanted as materialized (
    select * from json_to_recordset(slots) as wanted(cluster_id text, entity_hash text,
      alteration_id uuid, ordinal smallint, received_at timestamptz, owner text, broker_id integer)
  ), clock as materialized (select clock_timestamp() as now), taken as (
    insert into entity_slot (cluster_id, entity_hash, alteration_id, ordinal, received_at, owner,
      broker_id, taken_at, handed_over_by)
    select cluster_id, decode(entity_hash, 'hex'), alteration_id, ordinal, received_at, owner,
      broker_id, now, now + make_interval(secs => handed_over_within)
    from clock, wanted
    order by cluster_id, entity_hash
    on conflict (cluster_id, entity_hash) do nothing
    returning alteration_id
  )
  select array_agg(id) into holding from unnest(ids) as id
  where (select count(*) from taken where alteration_id = id)
    = (select count(*) from wanted where alteration_id = id);
  at := clock_timestamp();
  granted := array(select unnest(granted) intersect select unnest(holding));
  if cardinality(granted) < cardinality(ids) then
    delete from entity_slot where alteration_id = any(ids) and alteration_id <> all(granted);
    delete from idempotency where alteration_id = any(ids) and alteration_id <> all(granted);
  end if;
  now_text := payload_time(at);
  insert into audit_event (received_at, alteration_id, ordinal, seq, event_type, at, occurred_at,
    payload, leaf_hash, verdict, cluster_id, principal, action, user_kind, user_name,
    client_id_kind, client_id_name, ip_kind, ip_name, other_types)
  select received_at, alteration_id, ordinal, 0, event_type, at, at,
    filled, sha256('\\x00'::bytea || convert_to(filled, 'UTF8')), verdict, cluster_id, principal,
    action, user_kind, decode(user_name, 'hex'), client_id_kind, decode(client_id_name, 'hex'),
    ip_kind, decode(ip_name, 'hex'), other_types
  from json_to_recordset(events) as event(received_at timestamptz, alteration_id uuid,
      ordinal smallint, event_type text, payload text, verdict text, cluster_id text,
      principal text, action text, user_kind text, user_name text, client_id_kind text,
      client_id_name text, ip_kind text, ip_name text, other_types boolean),
    lateral (select replace(payload, mark, now_text) as filled) as sealed
  where alteration_id = any(granted);
  select json_agg(json_build_array(wanted.cluster_id, wanted.entity_hash, state."values",
    extract(epoch from clock_timestamp() - state.updated_at)::float8)) into known
  from json_to_recordset(slots) as wanted(cluster_id text, entity_hash text)
    join entity_state as state on state.cluster_id = wanted.cluster_id
      and state.entity_hash = decode(wanted.entity_hash, 'hex');
end
$$
"""

CLOSE = """
create function close_slots(definite json, unknown json, ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
  with freed as (
    delete from entity_slot as slot
    using json_to_recordset(definite)
      as ended(alteration_id uuid, ordinal smallint, entity text, "values" text)
    where slot.alteration_id = ended.alteration_id and slot.ordinal = ended.ordinal
    returning slot.cluster_id, slot.entity_hash, slot.alteration_id, ended.entity, ended."values"
  ), quarantined as (
    update entity_slot as slot set state = 'quarantined', handed_over_by =
      greatest(taken_at, least(handed_over_by, silent.sent_at, clock_timestamp()))
    from json_to_recordset(unknown)
      as silent(alteration_id uuid, ordinal smallint, sent_at timestamptz)
    where slot.alteration_id = silent.alteration_id and slot.ordinal = silent.ordinal
  ), renewed as (
    update idempotency set expires_at = clock_timestamp() + interval '24 hours'
    where alteration_id = any(ids)
  )
  insert into entity_state as known
    (cluster_id, entity_hash, entity, "values", version, alteration_id, updated_at)
  select cluster_id, entity_hash, entity, "values", 1, alteration_id, clock_timestamp()
  from freed where entity is not null
  order by cluster_id, entity_hash
  on conflict (cluster_id, entity_hash) do update set
    "values" = excluded."values",
    version = known.version + 1,
    alteration_id = excluded.alteration_id,
    updated_at = excluded.updated_at;
end
$$
"""

OUTCOMES = """
create function record_outcomes(
  definite json, unknown json, ids uuid[], events json, at_mark text, now_mark text
) returns void language plpgsql {settings} as $$
#variable_conflict use_column
declare
  written bigint;
begin
  perform commit_durably(), close_slots(definite, unknown, ids);
  with ended as materialized (
    select * from json_to_recordset(events) as ended(received_at timestamptz, alteration_id uuid,
      ordinal smallint, payload text, verdict text)
  ), started as materialized (
    select alteration_id, min(at) as at, greatest(min(at), clock_timestamp()) as now,
      count(*) filter (where event_type = 'intent') as intents,
      count(*) filter (where event_type <> 'intent') as found
    from ended join audit_event using (received_at, alteration_id, ordinal)
    where event_type = 'intent'
      or event_type in ('recovery', 'superseded') and audit_event.verdict is not null
    group by alteration_id
  ), sealed as (
    select received_at, alteration_id, ordinal, at, now, verdict, replace(
      replace(payload, at_mark, payload_time(at)), now_mark, payload_time(now)) as payload
    from ended join started using (alteration_id)
    where found = 0 and intents =
      (select count(*) from ended as own where own.alteration_id = started.alteration_id)
  ), inserted as (
    insert into audit_event (received_at, alteration_id, ordinal, seq, event_type, at, occurred_at,
      payload, leaf_hash, verdict)
    select received_at, alteration_id, ordinal, 1, 'outcome', at, now,
      payload, sha256('\\x00'::bytea || convert_to(payload, 'UTF8')), verdict
    from sealed
    returning 1
  )
  select count(*) into written from inserted;
  if written <> json_array_length(events) then
    raise no_data_found using message = 'an intent is missing or has a conclusion already';
  end if;
end
$$
"""

FUNCTIONS = (
    "record_outcomes(json, json, uuid[], json, text, text)",
    "close_slots(json, json, uuid[])",
    "record_intents(uuid[], json, json, json, double precision, text)",
    "commit_durably()",
    "payload_time(timestamptz)",
)


def upgrade() -> None:
    """Create the functions."""
    for statement in (TIME_TEXT, DURABLE, INTENTS, CLOSE, OUTCOMES):
        op.execute(statement.format(settings=SETTINGS))


def downgrade() -> None:
    """Drop the functions; they hold nothing."""
    for function in FUNCTIONS:
        op.execute(f"drop function {function}")
