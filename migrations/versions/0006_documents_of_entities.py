"""Store an entity's document in its own row, and write the log with functions of one task each.

`audit_event.payload` is the record of the request alone, in canonical JSON, without times. What it
says of an entity is `audit_entity.document`, and what it says of those that our own rules refused,
`rejected`. `documents_hash` is the SHA-256 of an event's documents in the order of their ordinals,
and of `rejected` where that is not null, joined by commas. `leaf_hash` seals all: SHA-256 over a
zero byte, both times in microseconds since 2000 in 8 bytes each, the hash of the documents, and
the record.

A lock of what a plan only rests on says so in a column: its ordinal is its position among these.

Both directions convert all rows, to the same bytes and back. Each table is written again, locked
meanwhile, and needs as much free space as it has.
"""

from collections.abc import Sequence

from alembic import context, op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

CONVERSION = r"""
create table converted_entity as
  select alteration_id, seq, ordinal,
    convert_from(substr(payload, document_at, document_length), 'UTF8') as document
  from audit_entity join audit_event using (received_at, alteration_id, seq);
alter table converted_entity add primary key (alteration_id, seq, ordinal);
create table converted_event as
  select alteration_id, seq, (sum(document_length + 1) - 1)::integer as length
  from audit_entity group by alteration_id, seq;
alter table converted_event add primary key (alteration_id, seq);
analyze converted_entity, converted_event;
create function document_of(uuid, smallint, smallint) returns text language plpgsql stable as $$
begin
  return (select document from converted_entity
    where alteration_id = $1 and seq = $2 and ordinal = $3);
end
$$;
create function documents_length(uuid, smallint) returns integer language plpgsql stable as $$
begin
  return coalesce((select length from converted_event where alteration_id = $1 and seq = $2), 0);
end
$$;
create function rejected_of(payload bytea, head_length integer, length integer) returns text
language sql stable as $$
  select nullif(convert_from(substr(payload, head_length + length + 27,
    octet_length(payload) - head_length - length - 27), 'UTF8'), '[]')
$$;
create function hash_of_documents(payload bytea, head_length integer, length integer)
returns bytea language sql stable as $$
  select sha256(substr(payload, head_length + 14, length)
    || convert_to(coalesce(',' || rejected_of(payload, head_length, length), ''), 'UTF8'))
$$;
create function record_of(payload bytea, head_length integer) returns bytea
language sql immutable as $$
  select '{'::bytea || substr(payload, 91, head_length - 90) || '}'::bytea
$$;
"""
"""A payload began with a brace and the times, 90 bytes, and went on up to `head_length`. Then came
`,"entities":[`, their documents, `],"rejected":`, these, and a brace."""

DOCUMENTS = r"""
alter table audit_entity
  alter column document_at type text
    using document_of(alteration_id, seq, ordinal);
alter table audit_entity rename column document_at to document;
alter table audit_event add column rejected text;
alter table audit_event
  drop constraint the_head_is_in_the_payload, drop constraint hash_seals_the_payload,
  alter column rejected type text using rejected_of(payload, head_length,
    documents_length(alteration_id, seq)),
  alter column head_length type bytea using hash_of_documents(payload, head_length,
    documents_length(alteration_id, seq)),
  alter column payload type bytea using record_of(payload, head_length),
  alter column leaf_hash type bytea using sha256('\x00'::bytea || timestamptz_send(at)
    || timestamptz_send(occurred_at) || hash_of_documents(payload, head_length,
      documents_length(alteration_id, seq))
    || record_of(payload, head_length));
alter table audit_event rename column head_length to documents_hash;
alter table audit_event
  add constraint hash_seals_the_event check (leaf_hash = sha256('\x00'::bytea
    || timestamptz_send(at) || timestamptz_send(occurred_at) || documents_hash || payload)),
  add constraint a_hash_of_documents check (octet_length(documents_hash) = 32);
alter table audit_entity drop column document_length;
"""

END_OF_CONVERSION = """
alter table audit_entity alter column document set not null;
drop function document_of, documents_length;
drop table converted_entity, converted_event;
drop function hash_of_documents, rejected_of, record_of;
"""

RESTS_ON = """
drop index quota_entity_locked;
alter table quota_entity
  add column rests_on boolean not null default false, drop constraint quota_entity_ordinal_check;
update quota_entity set rests_on = true, ordinal = -2 - ordinal where ordinal < 0;
alter table quota_entity
  add constraint quota_entity_ordinal_check check (ordinal between 0 and 32000);
create unique index quota_entity_locked on quota_entity (alteration_id, rests_on, ordinal)
  where alteration_id is not null;
"""

VIEWS = r"""
create view audit_entity_event as
  select entity.received_at, entity.alteration_id, entity.ordinal, entity.seq, event.event_type,
    entity.at, event.occurred_at, entity.cluster_id, event.principal, event.action,
    entity.verdict, {document} as document
  from audit_entity as entity join audit_event as event using (received_at, alteration_id, seq);
create view audit_log as
  with readable as (
    select *, regexp_replace(document, '\\u(0000|d[89a-f][0-9a-f]{{2}})', '\\ufffd', 'g')::json
      as content
    from audit_entity_event
  )
  select started.cluster_id, started.at, started.alteration_id, started.ordinal,
    started.principal, started.action, started.content -> 'entity' as entity,
    started.content -> 'ops' as ops,
    case when ended.final is null or ended.evidence -> 'late_answer' is not null
      or ended.evidence ->> 'before_is_proven' = 'true'
      then nullif((ended.result -> 'before')::text, 'null')::json end as before,
    ended.result -> 'after' as after, coalesce(ended.verdict, 'unknown') as outcome,
    ended.result -> 'error' as error, ended.occurred_at as concluded_at
  from readable as started left join lateral (
    select verdict, occurred_at, content -> 'result' as result, content -> 'final' as final,
      content -> 'evidence' as evidence
    from readable as later
    where later.received_at = started.received_at
      and later.alteration_id = started.alteration_id and later.ordinal = started.ordinal
      and later.verdict is not null
    order by later.seq desc limit 1
  ) as ended on true
  where started.seq = 0;
revoke all on audit_entity_event, audit_log from public;
"""

SETTINGS = """
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off
  set enable_mergejoin = off set enable_hashjoin = on
"""
"""Locks come and go with each alteration. Where the planner believes that there is none, it
compares all with all; joined by hash, on what an index finds, thousands are as quick as few."""

TYPES = """
create type new_event as (n integer, received_at timestamptz, alteration_id uuid, event_type text,
  cluster_id text, principal text, action text, documents_hash bytea, rejected text,
  record text);
create type new_entity as (n integer, ordinal smallint, user_kind text, user_name bytea,
  client_id_kind text, client_id_name bytea, ip_kind text, ip_name bytea, other_types boolean,
  verdict text, "values" text, document text);
create type conclusion as (received_at timestamptz, alteration_id uuid, ordinal smallint,
  is_start boolean, event_type text, verdict text, "values" text);
"""
"""`n` says to which event of the call an entity belongs. Of a `conclusion` without a verdict the
lock stays."""

ADD_EVENTS = r"""
create function add_events(events new_event[], entities new_entity[], now timestamptz)
returns void language plpgsql as $$
#variable_conflict use_column
begin
  with event as materialized (
    select event.*, convert_to(record, 'UTF8') as payload,
      coalesce(started_at, now) as at, greatest(started_at, now) as occurred_at,
      coalesce(last_seq + row_number() over (partition by alteration_id order by n), 0) as seq
    from unnest(events) as event cross join lateral (
      select min(at) as started_at, max(seq) as last_seq from audit_event as earlier
      where event.cluster_id is null and earlier.received_at = event.received_at
        and earlier.alteration_id = event.alteration_id
    ) as history
  ), added as (
    insert into audit_event (received_at, alteration_id, seq, event_type, at, occurred_at,
      cluster_id, principal, action, documents_hash, rejected, payload, leaf_hash)
    select received_at, alteration_id, seq, event_type, at, occurred_at, cluster_id, principal,
      action, documents_hash, rejected, payload, sha256('\x00'::bytea || timestamptz_send(at)
        || timestamptz_send(occurred_at) || documents_hash || payload)
    from event
  )
  insert into audit_entity (received_at, alteration_id, ordinal, seq, at, cluster_id, user_kind,
    user_name, client_id_kind, client_id_name, ip_kind, ip_name, other_types, verdict, document)
  select received_at, alteration_id, ordinal, seq, at, cluster_id, user_kind,
    user_name, client_id_kind, client_id_name, ip_kind, ip_name, other_types, verdict, document
  from unnest(entities) as entity join event using (n);
end
$$;
"""

CLAIM_KEYS = """
create function claim_keys(keys json, keep_s double precision, out lost uuid[])
language plpgsql as $$
#variable_conflict use_column
begin
  with wanted as materialized (
    select * from json_populate_recordset(null::idempotency, keys)
  ), claimed as (
    insert into idempotency (key_hash, fingerprint, alteration_id, expires_at)
    select key_hash, fingerprint, alteration_id, clock_timestamp() + make_interval(secs => keep_s)
    from wanted order by key_hash
    on conflict (key_hash) do update set
      fingerprint = excluded.fingerprint,
      alteration_id = excluded.alteration_id,
      expires_at = excluded.expires_at
    where idempotency.expires_at <= clock_timestamp()
    returning alteration_id
  )
  select array_agg(alteration_id) into lost from wanted
  where alteration_id not in (select alteration_id from claimed);
end
$$;
"""

TAKE_LOCKS = """
create function take_locks(requests json, locks json, handed_over_within double precision,
  out lost uuid[])
language plpgsql as $$
#variable_conflict use_column
begin
  with wanted as materialized (
    select request.*, ordinal, rests_on, entity, claim,
      sha256(convert_to(entity, 'UTF8')) as entity_hash
    from json_to_recordset(locks) as wanted(n integer, ordinal smallint, rests_on boolean,
      entity text, claim json)
    join json_to_recordset(requests) as request(n integer, alteration_id uuid, cluster_id text,
      received_at timestamptz, owner text, broker_id integer) using (n)
  ), clock as materialized (select clock_timestamp() as now), taken as (
    insert into quota_entity as held (cluster_id, entity_hash, alteration_id, ordinal, rests_on,
      received_at, owner, broker_id, taken_at, handed_over_by, claim, entity)
    select cluster_id, entity_hash, alteration_id, ordinal, rests_on, received_at, owner,
      broker_id, now, now + make_interval(secs => handed_over_within), claim, entity
    from clock, wanted
    order by cluster_id, entity_hash
    on conflict (cluster_id, entity_hash) do update set
      (alteration_id, ordinal, rests_on, received_at, owner, broker_id, taken_at, handed_over_by,
        claim, quarantined, observed, claimed_by, claimed_until)
      = (excluded.alteration_id, excluded.ordinal, excluded.rests_on, excluded.received_at,
        excluded.owner, excluded.broker_id, excluded.taken_at, excluded.handed_over_by,
        excluded.claim, false, false, null, null)
    where held.alteration_id is null
    returning alteration_id, rests_on, ordinal
  )
  select array_agg(distinct wanted.alteration_id) into lost
  from wanted left join taken using (alteration_id, rests_on, ordinal)
  where taken.ordinal is null;
end
$$;
"""

RECORD_INTENTS = """
create function record_intents(
  keys json, requests json, locks json, events json, entities json,
  handed_over_within double precision, keep_key_s double precision, lock_timeout_ms integer,
  out lost uuid[]
) language plpgsql {settings} as $$
#variable_conflict use_column
declare
  locking text := 'idempotency';
  event_rows new_event[] := array(
    select event from json_populate_recordset(null::new_event, events) as event);
  entity_rows constant new_entity[] := array(
    select entity from json_populate_recordset(null::new_entity, entities) as entity);
begin
  perform commit_durably();
  perform set_config('lock_timeout', lock_timeout_ms::text, true);
  begin
    if json_array_length(keys) > 0 then
      lost := claim_keys(keys, keep_key_s);
    end if;
    locking := 'quota_entity';
    lost := lost || take_locks(requests, locks, handed_over_within);
  exception when lock_not_available or deadlock_detected then
    raise lock_not_available using message = 'another transaction is taking it', table = locking;
  end;
  if cardinality(lost) > 0 then
    update quota_entity set alteration_id = null, claim = null where alteration_id = any(lost);
    delete from idempotency where alteration_id = any(lost);
    event_rows := array(select event from unnest(event_rows) as event
      where (event).alteration_id <> all (lost));
  end if;
  perform add_events(event_rows, entity_rows, clock_timestamp());
end
$$;
"""

FIND_REFUSED = """
create function find_refused(conclusions conclusion[], alterations uuid[]) returns json
language plpgsql as $$
#variable_conflict use_column
declare
  refused json;
begin
  with unlocked as materialized (
    select conclusion.*, observed
    from unnest(conclusions) as conclusion left join (
      select * from quota_entity where alteration_id = any(alterations) and not rests_on
    ) as held using (alteration_id, ordinal)
    where not is_start
      and (held.owner is null or quarantined and event_type = 'outcome' or observed)
  )
  select json_agg(json_build_object('alteration_id', alteration_id, 'ordinal', ordinal,
    'event_type', recorded.event_type, 'document', recorded.document)) into refused
  from unlocked cross join lateral (
    select count(*) as number, max(earlier.seq) as last_seq,
      max(earlier.seq) filter (where earlier.seq > 0 and earlier.verdict is not null
        and unlocked.event_type <> 'drift'
        and (earlier.verdict <> 'unknown' or unlocked.event_type = 'outcome')) as concluded_seq
    from audit_entity as earlier
    where earlier.received_at = unlocked.received_at
      and earlier.alteration_id = unlocked.alteration_id and earlier.ordinal = unlocked.ordinal
  ) as history left join lateral (
    select event_type, document from audit_entity_event as event
    where event.received_at = unlocked.received_at
      and event.alteration_id = unlocked.alteration_id
      and event.ordinal = unlocked.ordinal and event.seq = coalesce(concluded_seq, last_seq)
    offset 0
  ) as recorded on true
  where number = 0 or concluded_seq is not null
    or unlocked.event_type = 'recovery' and verdict is null and observed;
  return refused;
end
$$;
"""

CHANGE_OWNERS = """
create function change_owners(conclusions conclusion[], alterations uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
  with applied as materialized (
    select cluster_id, entity_hash, held.alteration_id, claim, entity
    from unnest(conclusions) as conclusion join quota_entity as held using (alteration_id, ordinal)
    where held.alteration_id = any(alterations) and not rests_on and claim is not null
      and verdict = 'applied'
  ), removed as (
    delete from quota_owner where ctid = any(array(
      select (select owned.ctid from quota_owner as owned
        where owned.cluster_id = applied.cluster_id
          and owned.entity_hash = applied.entity_hash and owned.key = removed.key)
      from applied, json_array_elements_text(claim -> 'removed') as removed(key)))
  )
  insert into quota_owner
    (cluster_id, entity_hash, key, owner, value, entity, alteration_id, applied_at)
  select cluster_id, entity_hash, (pair).key, claim ->> 'owner',
    (pair).value::double precision, entity, alteration_id, clock_timestamp()
  from (select applied.*, json_each_text(claim -> 'values') as pair from applied) as wanted
  order by cluster_id, entity_hash, (pair).key
  on conflict (cluster_id, entity_hash, key) do update set
    owner = excluded.owner,
    value = excluded.value,
    alteration_id = excluded.alteration_id,
    applied_at = excluded.applied_at;
end
$$;
"""

FREE_LOCKS = """
create function free_locks(conclusions conclusion[], alterations uuid[], now timestamptz)
returns void language plpgsql as $$
#variable_conflict use_column
begin
  update quota_entity as held set alteration_id = null, claim = null,
    "values" = coalesce(conclusion."values", held."values"),
    version = version + (conclusion."values" is not null)::integer,
    changed_by = case when conclusion."values" is null then changed_by else held.alteration_id end,
    changed_at = case when conclusion."values" is null then changed_at else now end
  from unnest(conclusions) as conclusion
  where held.alteration_id = any(alterations) and not rests_on
    and held.alteration_id = conclusion.alteration_id and held.ordinal = conclusion.ordinal
    and verdict <> 'unknown';
  update quota_entity as held set quarantined = true,
    handed_over_by = greatest(taken_at, least(handed_over_by, clock_timestamp()))
  from unnest(conclusions) as conclusion
  where held.alteration_id = any(alterations) and not rests_on
    and held.alteration_id = conclusion.alteration_id and held.ordinal = conclusion.ordinal
    and verdict = 'unknown';
  update quota_entity as held set observed = true, claimed_by = null, claimed_until = null
  from unnest(conclusions) as conclusion
  where held.alteration_id = any(alterations) and not rests_on
    and held.alteration_id = conclusion.alteration_id and held.ordinal = conclusion.ordinal
    and verdict is null and event_type = 'recovery';
  update quota_entity set alteration_id = null
  where alteration_id = any(alterations) and rests_on and alteration_id <> all (array(
    select alteration_id from quota_entity
    where alteration_id = any(alterations) and not rests_on));
end
$$;
"""

KEEP_KEYS = """
create function keep_keys(alterations uuid[], repeatable uuid[], starts timestamptz[],
  keep_s double precision)
returns void language plpgsql as $$
#variable_conflict use_column
begin
  update idempotency set expires_at = clock_timestamp() + make_interval(secs => keep_s)
  where alteration_id = any(alterations);
  delete from idempotency where alteration_id = any(repeatable)
    and alteration_id <> all (array(
      select alteration_id from quota_entity where alteration_id = any(repeatable)))
    and alteration_id <> all (array(
      select alteration_id from audit_entity
      where received_at = any(starts) and alteration_id = any(repeatable) and seq > 0
        and verdict not in ('not_sent', 'refused', 'not_applied', 'unknown')));
end
$$;
"""

RECORD_CONCLUSIONS = """
create function record_conclusions(
  events json, entities json, alterations uuid[], repeatable uuid[], keep_key_s double precision,
  out recorded_at timestamptz, out refused json
) language plpgsql {settings} as $$
#variable_conflict use_column
declare
  event_rows constant new_event[] := array(
    select event from json_populate_recordset(null::new_event, events) as event);
  entity_rows constant new_entity[] := array(
    select entity from json_populate_recordset(null::new_entity, entities) as entity);
  conclusions constant conclusion[] := array(
    select (received_at, alteration_id, ordinal, cluster_id is not null, event_type, verdict,
      "values")::conclusion
    from unnest(entity_rows) as entity join unnest(event_rows) as event using (n));
begin
  perform commit_durably();
  perform from quota_entity where alteration_id = any(alterations)
  order by cluster_id, entity_hash for update;
  recorded_at := clock_timestamp();
  refused := find_refused(conclusions, alterations);
  if refused is null then
    perform add_events(event_rows, entity_rows, recorded_at);
    if cardinality(alterations) > 0 then
      perform change_owners(conclusions, alterations);
      perform free_locks(conclusions, alterations, recorded_at);
      perform keep_keys(alterations, repeatable,
        array(select received_at from unnest(event_rows)), keep_key_s);
    end if;
  end if;
end
$$;
"""

COMMIT_DURABLY = """
create function commit_durably() returns void language plpgsql as $$
begin
  perform set_config('synchronous_commit', case current_setting('synchronous_commit')
    when 'remote_apply' then 'remote_apply' else 'on' end, true);
end
$$;
"""

SCRIPTS = (
    COMMIT_DURABLY,
    ADD_EVENTS,
    CLAIM_KEYS,
    TAKE_LOCKS,
    RECORD_INTENTS,
    FIND_REFUSED,
    CHANGE_OWNERS,
    FREE_LOCKS,
    KEEP_KEYS,
    RECORD_CONCLUSIONS,
)

FUNCTIONS = (
    "record_intents",
    "record_conclusions",
    "claim_keys",
    "take_locks",
    "find_refused",
    "change_owners",
    "free_locks",
    "keep_keys",
    "add_events",
    "commit_durably",
)

BEFORE_DOCUMENTS = r"""
create table converted_entity as
  select alteration_id, seq, ordinal, (octet_length(payload) + 102
    + sum(octet_length(document) + 1) over (partition by alteration_id, seq order by ordinal)
    - octet_length(document) - 1)::integer as document_at
  from audit_entity join audit_event using (received_at, alteration_id, seq);
alter table converted_entity add primary key (alteration_id, seq, ordinal);
create table converted_event as
  select alteration_id, seq, string_agg(document, ',' order by ordinal) as documents
  from audit_entity group by alteration_id, seq;
alter table converted_event add primary key (alteration_id, seq);
analyze converted_entity, converted_event;
create function position_of(uuid, smallint, smallint) returns integer language plpgsql stable as $$
begin
  return (select document_at from converted_entity
    where alteration_id = $1 and seq = $2 and ordinal = $3);
end
$$;
create function whole_payload(uuid, smallint, started_at timestamptz, added_at timestamptz,
  record bytea, rejected text)
returns bytea language plpgsql stable as $$
begin
  return convert_to(concat('{"at":"', payload_time(started_at), '","occurred_at":"',
      payload_time(added_at), '",'), 'UTF8')
    || substr(record, 2, octet_length(record) - 2)
    || convert_to(concat(',"entities":[',
      (select documents from converted_event where alteration_id = $1 and seq = $2),
      '],"rejected":', coalesce(rejected, '[]'), '}'), 'UTF8');
end
$$;
alter table audit_event
  drop constraint hash_seals_the_event, drop constraint a_hash_of_documents,
  alter column payload set storage external,
  alter column documents_hash type integer using octet_length(payload) + 88,
  alter column payload type bytea
    using whole_payload(alteration_id, seq, at, occurred_at, payload, rejected),
  alter column leaf_hash type bytea using sha256('\x00'::bytea
    || whole_payload(alteration_id, seq, at, occurred_at, payload, rejected));
alter table audit_event drop column rejected;
alter table audit_event rename column documents_hash to head_length;
alter table audit_event
  add constraint hash_seals_the_payload check (leaf_hash = sha256('\x00'::bytea || payload)),
  add constraint the_head_is_in_the_payload
    check (head_length between 1 and octet_length(payload)),
  alter column payload set storage external;
alter table audit_entity add column document_length integer;
alter table audit_entity
  alter column document_length type integer using octet_length(document),
  alter column document type integer using position_of(alteration_id, seq, ordinal);
alter table audit_entity rename column document to document_at;
alter table audit_entity alter column document_length set not null;
drop function position_of, whole_payload;
drop table converted_entity, converted_event;
"""

BEFORE_RESTS_ON = """
drop index quota_entity_locked;
alter table quota_entity drop constraint quota_entity_ordinal_check;
update quota_entity set ordinal = -2 - ordinal where rests_on;
alter table quota_entity drop column rests_on,
  add constraint quota_entity_ordinal_check check (ordinal between -32000 and 32000);
create unique index quota_entity_locked on quota_entity (alteration_id, ordinal)
  where alteration_id is not null;
"""

DROP_VIEWS = "drop view audit_log, audit_entity_event"


def upgrade() -> None:
    """Convert the log and the locks, and replace the functions that write them."""
    op.execute(DROP_VIEWS)
    for name in ("record_intents", "append_events", "payload_time"):
        op.execute(f"drop function {name}")
    for script in (CONVERSION, DOCUMENTS, END_OF_CONVERSION, RESTS_ON, TYPES):
        op.execute(script)
    op.execute(VIEWS.format(document="entity.document"))
    for script in SCRIPTS:
        op.execute(script.replace("{settings}", SETTINGS))


def downgrade() -> None:
    """Convert the log and the locks, and write them as before."""
    op.execute(DROP_VIEWS)
    for name in FUNCTIONS:
        op.execute(f"drop function {name}")
    op.execute("drop type new_event, new_entity, conclusion")
    first = context.script.get_revision("0001").module
    for script in (first.PAYLOAD_TIME, BEFORE_DOCUMENTS, BEFORE_RESTS_ON):
        op.execute(script)
    op.execute(
        VIEWS.format(
            document="convert_from(substr(event.payload, document_at, document_length), 'UTF8')"
        )
    )
    for script in (first.APPEND_EVENTS, first.RECORD_INTENTS):
        op.execute(script.replace("{settings}", first.SETTINGS))
