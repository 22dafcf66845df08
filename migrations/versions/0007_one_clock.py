"""Judge the age of what is in quarantine by the database's clock alone.

The service's own time of the sending is left out: where that clock is slow, recovery would be final
too early. What is recorded as unknown was handed over before it was recorded, or never.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
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
      as ended(alteration_id uuid, ordinal smallint, entity text, "values" text)
    where slot.alteration_id = ended.alteration_id and slot.ordinal = ended.ordinal
    returning slot.cluster_id, slot.entity_hash, slot.alteration_id, ended.entity, ended."values"
  ), quarantined as (
    update entity_slot as slot set state = 'quarantined', handed_over_by =
      greatest(taken_at, least(handed_over_by, {sent_at}clock_timestamp()))
    from json_to_recordset(unknown)
      as silent(alteration_id uuid, ordinal smallint{column})
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


def upgrade() -> None:
    """Replace the function; what it is given stays the same."""
    op.execute(CLOSE.format(sent_at="", column=""))


def downgrade() -> None:
    """Take the service's time into account again."""
    op.execute(CLOSE.format(sent_at="silent.sent_at, ", column=", sent_at timestamptz"))
