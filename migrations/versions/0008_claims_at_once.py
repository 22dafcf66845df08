"""Settle the claims of plans with the slots, in one statement for all entities.

A deferred trigger looked for each entity's conclusion in the log: 10,000 look-ups for a large plan.
Whoever closes slots says what was applied, and writes the log's rows in the same transaction. A
slot that ends otherwise takes its claim with it, as before.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

CLOSE = """
create or replace function close_slots(definite json, unknown json, ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
begin
  with freed as (
    delete from entity_slot as slot
    using json_to_recordset(definite)
      as ended(alteration_id uuid, ordinal smallint, entity text, "values" text{applied})
    where slot.alteration_id = ended.alteration_id and slot.ordinal = ended.ordinal
    returning slot.cluster_id, slot.entity_hash, slot.alteration_id, ended.entity,
      ended."values"{claim}
  ), quarantined as (
    update entity_slot as slot set state = 'quarantined', handed_over_by =
      greatest(taken_at, least(handed_over_by, clock_timestamp()))
    from json_to_recordset(unknown) as silent(alteration_id uuid, ordinal smallint)
    where slot.alteration_id = silent.alteration_id and slot.ordinal = silent.ordinal
  ), renewed as (
    update idempotency set expires_at = clock_timestamp() + interval '24 hours'
    where alteration_id = any(ids)
  ){settled}
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

SETTLED = """, settled as materialized (
    select * from freed where applied and claim is not null
  ), let_go as (
    delete from quota_owner as held
    using (select cluster_id, entity_hash, json_array_elements_text(claim -> 'removed') as key
      from settled) as removed
    where held.cluster_id = removed.cluster_id and held.entity_hash = removed.entity_hash
      and held.key = removed.key
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
  )"""

SETTLE = """
create function settle_claim() returns trigger language plpgsql as $$
begin
  if not exists (
    select from audit_event
    where received_at = old.received_at and alteration_id = old.alteration_id
      and ordinal = old.ordinal and seq > 0 and verdict = 'applied'
  ) then
    return null;
  end if;
  delete from quota_owner
  where cluster_id = old.cluster_id and entity_hash = old.entity_hash
    and key in (select json_array_elements_text(old.claim -> 'removed'));
  insert into quota_owner
    (cluster_id, entity_hash, key, owner, value, entity, alteration_id, applied_at)
  select old.cluster_id, old.entity_hash, applied.key, old.claim ->> 'owner',
    applied.value::double precision, old.claim ->> 'entity', old.alteration_id, clock_timestamp()
  from json_each_text(old.claim -> 'values') as applied
  on conflict (cluster_id, entity_hash, key) do update set
    owner = excluded.owner,
    value = excluded.value,
    alteration_id = excluded.alteration_id,
    applied_at = excluded.applied_at;
  return null;
end
$$
"""

TRIGGER = """
create constraint trigger entity_slot_claim after delete on entity_slot
deferrable initially deferred for each row when (old.claim is not null)
execute function settle_claim()
"""


def upgrade() -> None:
    """Let the function that closes slots settle their claims, and drop the trigger."""
    op.execute("drop trigger entity_slot_claim on entity_slot")
    op.execute("drop function settle_claim()")
    both = {"applied": ", applied boolean", "claim": ", ended.applied, slot.claim"}
    op.execute(CLOSE.format(**both, settled=SETTLED))


def downgrade() -> None:
    """Let the trigger settle each claim by itself again."""
    op.execute(CLOSE.format(applied="", claim="", settled=""))
    op.execute(SETTLE)
    op.execute(TRIGGER)
