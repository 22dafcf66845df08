"""Number the events of the log, so that a reader can follow it; keep how far the topic has them.

`log_position` is drawn from a sequence when an event is added, under the locks of its entities: of
one entity, events stand in the order of their numbers. Numbers of transactions that were rolled
back are missing. A number is drawn before its transaction commits, and whoever adds events holds a
lock on the log until then: a reader that has seen a number waits for those who held it.

What the log has already is numbered by time. The table is written again, locked meanwhile.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

POSITIONS = """
create sequence audit_event_log_position;
revoke all on sequence audit_event_log_position from public;
create table numbered_event as
  select alteration_id, seq, row_number() over (order by occurred_at, alteration_id, seq) as number
  from audit_event;
alter table numbered_event add primary key (alteration_id, seq);
analyze numbered_event;
create function number_of(uuid, smallint) returns bigint language plpgsql stable as $$
begin
  return (select number from numbered_event where alteration_id = $1 and seq = $2);
end
$$;
alter table audit_event add column log_position bigint;
alter table audit_event alter column log_position type bigint using number_of(alteration_id, seq);
select setval('audit_event_log_position', (select count(*) + 1 from numbered_event), false);
alter table audit_event
  alter column log_position set default nextval('audit_event_log_position'),
  alter column log_position set not null;
create index audit_event_by_position on audit_event (log_position);
drop function number_of;
drop table numbered_event;
"""

EVENTS_TOPIC = """
create table events_topic (
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  topic text not null check (length(topic) between 1 and 249),
  log_position bigint not null default 0,
  ordinal smallint not null default 0,
  owner text not null check (length(owner) between 1 and 255),
  owned_until timestamptz not null,
  primary key (cluster_id, topic)
);
revoke all on events_topic from public;
"""


def upgrade() -> None:
    """Number what there is, and what will be added."""
    op.execute(POSITIONS)
    op.execute(EVENTS_TOPIC)


def downgrade() -> None:
    """Drop the numbers."""
    op.execute("drop table events_topic")
    op.execute("alter table audit_event drop column log_position")
    op.execute("drop sequence audit_event_log_position")
