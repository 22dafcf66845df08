"""Keep values that end by themselves, and what they return to.

The lock of an entity carries what its conclusion is to do with them, beside what it does with
owners: `temporary` where the alteration is for a time, `expires` where it ends another one.
"""

from collections.abc import Sequence

from alembic import context, op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ACTIONS = "'alter', 'validate', 'denied', 'revert', 'apply_plan', 'drift'"
EVENTS = "'intent', 'denied', 'validated', 'outcome', 'recovery', 'superseded', 'drift'"
LATER_EVENTS = "'outcome', 'recovery', 'superseded'"

CHECKS = """
alter table audit_event
  drop constraint audit_event_action_check, drop constraint audit_event_event_type_check,
  drop constraint one_event_of_a_kind,
  add constraint audit_event_action_check check (action in ({actions})),
  add constraint audit_event_event_type_check check (event_type in ({events})),
  add constraint one_event_of_a_kind check (case when event_type in ({later}) then seq > 0
    else seq = 0 or event_type = 'drift' and seq > 0 end);
"""

TEMPORARY_VALUE = """
create table temporary_value (
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  entity_hash bytea not null check (octet_length(entity_hash) = 32),
  key text not null,
  entity text not null,
  alteration_id uuid not null,
  value double precision,
  returns_to double precision,
  expires_at timestamptz not null,
  principal text not null check (octet_length(principal) <= 1024),
  reason text,
  claimed_by text,
  claimed_until timestamptz,
  primary key (cluster_id, entity_hash, key)
);
create index temporary_value_due on temporary_value (cluster_id, expires_at);
create index temporary_value_of_alteration on temporary_value (alteration_id);
"""
"""A null value, or one that it returns to, is a key that is not set."""

CHANGE_OWNERS = ("and claim is not null", "and claim ->> 'owner' is not null")
"""What a lock carries is not of owners alone."""

CHANGE_TEMPORARY = r"""
create function change_temporary(conclusions conclusion[], alterations uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
  if not exists (select from temporary_value) and not exists (select from quota_entity
    where alteration_id = any(alterations) and claim is not null)
  then
    return;
  end if;
  with ended as materialized (
    select cluster_id, entity_hash, held.alteration_id, held.ordinal, held.received_at, entity,
      verdict, claim -> 'temporary' as wanted, (claim ->> 'expires')::uuid as expires
    from unnest(conclusions) as conclusion join quota_entity as held using (alteration_id, ordinal)
    where held.alteration_id = any(alterations) and not rests_on
      and verdict in ('applied', 'observed_other', 'superseded')
  ), over as (
    delete from temporary_value where ctid = any(array(
      select temporary.ctid
      from ended cross join lateral (
        select ctid, key, alteration_id from temporary_value as held
        where held.cluster_id = ended.cluster_id and held.entity_hash = ended.entity_hash offset 0
      ) as temporary
      where wanted is null and case
        when expires is not null
          then temporary.alteration_id = expires and verdict <> 'superseded'
        else verdict = 'applied' and key = any(array(
          select op ->> 'key' from audit_entity as start cross join json_array_elements(
            regexp_replace(document, '\\u(0000|d[89a-f][0-9a-f]{2})', '\\ufffd', 'g')::json
            -> 'ops') as op
          where start.received_at = ended.received_at
            and start.alteration_id = ended.alteration_id
            and start.ordinal = ended.ordinal and start.seq = 0))
        end))
  )
  insert into temporary_value (cluster_id, entity_hash, key, entity, alteration_id, value,
    returns_to, expires_at, principal, reason)
  select cluster_id, entity_hash, (pair).key, entity, ended.alteration_id,
    (pair).value::double precision,
    (wanted -> 'returns_to' ->> (pair).key)::double precision,
    (wanted ->> 'expires_at')::timestamptz, wanted ->> 'principal', wanted ->> 'reason'
  from (select ended.*, json_each_text(wanted -> 'values') as pair from ended) as ended
  where case when exists (select from temporary_value as earlier
      where earlier.cluster_id = ended.cluster_id and earlier.entity_hash = ended.entity_hash
        and earlier.key = (pair).key)
    then verdict = 'applied' else wanted -> 'returns_to' is not null end
  order by cluster_id, entity_hash, (pair).key
  on conflict (cluster_id, entity_hash, key) do update set
    alteration_id = excluded.alteration_id,
    value = excluded.value,
    expires_at = excluded.expires_at,
    principal = excluded.principal,
    reason = excluded.reason,
    claimed_by = null,
    claimed_until = null;
end
$$;
"""
"""What is set again is over, and what it returned to goes on where the new value is for a time,
too. An outcome that leaves open whether the value holds keeps it in mind: its expiry compares.
Where the values that a key returns to were never recorded, nothing was sent.
"""

RECORD_CONCLUSIONS = (
    "perform change_owners(conclusions, alterations);",
    """perform change_owners(conclusions, alterations);
      perform change_temporary(conclusions, alterations);""",
)


def _replace(name: str, *changes: tuple[str, str]) -> None:
    """Create a function of the migration before again, with changes."""
    before = context.script.get_revision("0006").module
    script = getattr(before, name).replace("create function", "create or replace function")
    for old, new in changes:
        script = script.replace(old, new)
    op.execute(script.replace("{settings}", before.SETTINGS))


def _check(actions: str, events: str, later: str) -> None:
    op.execute(CHECKS.format(actions=actions, events=events, later=later))


def upgrade() -> None:
    """Create the table, let conclusions fill it, and let the log have its actions and events."""
    _check(f"{ACTIONS}, 'expire'", f"{EVENTS}, 'expiry'", f"{LATER_EVENTS}, 'expiry'")
    op.execute(TEMPORARY_VALUE)
    op.execute(CHANGE_TEMPORARY)
    _replace("CHANGE_OWNERS", CHANGE_OWNERS)
    _replace("RECORD_CONCLUSIONS", RECORD_CONCLUSIONS)


def downgrade() -> None:
    """Drop it with its values, which are for good then.

    It stops where the log has such actions and events already: they are not to be removed.
    """
    _replace("RECORD_CONCLUSIONS")
    _replace("CHANGE_OWNERS")
    op.execute("drop function change_temporary")
    op.execute("drop table temporary_value")
    _check(ACTIONS, EVENTS, LATER_EVENTS)
