"""Add plans, and who applied which key from one.

A slot may carry a claim: who will hold which keys if the alteration is applied. It is written with
the slot and ends with it. The slot of an entity is freed in the transaction that writes the
entity's conclusion, whoever writes that; when that transaction commits, the trigger makes the claim
true if the log says `applied`, and forgets it otherwise. So no owner holds what did not happen, and
nobody who concludes an alteration needs to know of plans.

A claim is `{"owner", "entity", "values": {key: value}, "removed": [key]}`.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = (
    """
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
    )
    """,
    "create index quota_plan_by_expiry on quota_plan (expires_at)",
    """
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
    )
    """,
    "create index quota_owner_by_owner on quota_owner (cluster_id, owner)",
    "alter table entity_slot add column claim json",
)

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
    """Create the tables, and what settles claims."""
    for statement in (*TABLES, SETTLE, TRIGGER):
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables: plans cannot be applied any more, and nobody holds anything.

    The log keeps what was applied from them.
    """
    op.execute("drop trigger entity_slot_claim on entity_slot")
    op.execute("drop function settle_claim()")
    op.execute("alter table entity_slot drop column claim")
    op.execute("drop table quota_owner, quota_plan")
