"""Let an alteration hold the entities that it only rests on, until all of it is concluded.

Their slots have negative ordinals, of which the log has no rows, so recovery has nothing to find.
Whoever frees the last other slot of the alteration frees them too. Two transactions may each free
some of the others at once: the second waits for the first, and then sees what is left.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ORDINALS = """
alter table entity_slot drop constraint entity_slot_ordinal_check,
  add constraint entity_slot_ordinal_check check (ordinal between {first} and 32000)
"""

FREE = """
create function free_rests(ids uuid[]) returns void language plpgsql as $$
begin
  perform from entity_slot where alteration_id = any(ids) and ordinal < 0
  order by cluster_id, entity_hash for update;
  if found then
    delete from entity_slot as slot
    where alteration_id = any(ids) and ordinal < 0 and not exists (
      select from entity_slot as other
      where other.alteration_id = slot.alteration_id and other.ordinal >= 0);
  end if;
end
$$
"""

CLOSE = """
do $do$
begin
  execute replace(pg_get_functiondef('close_slots(json, json, uuid[])'::regprocedure),
    E'{old}end\\n', E'{new}end\\n');
end
$do$
"""
BEFORE = "excluded.updated_at;\\n"
AFTER = f"{BEFORE}  perform free_rests(ids);\\n"


def upgrade() -> None:
    """Allow such slots, and free them with the others."""
    op.execute(ORDINALS.format(first=-32000))
    op.execute(FREE)
    op.execute(CLOSE.format(old=BEFORE, new=AFTER))


def downgrade() -> None:
    """Free them now: what is open rests on nothing any more."""
    op.execute(CLOSE.format(old=AFTER, new=BEFORE))
    op.execute("drop function free_rests(uuid[])")
    op.execute("delete from entity_slot where ordinal < 0")
    op.execute(ORDINALS.format(first=0))
