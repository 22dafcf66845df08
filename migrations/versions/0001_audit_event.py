"""Create the audit log: one append-only table, a partition for each month.

A request is a row of ordinal -1 and one row for each entity (its ordinal is its place in the
request). What became of an entity is a further row of the same ordinal. All rows of a request
lie in the partition of the time inside its id, `received_at`.
"""

from collections.abc import Sequence

from alembic import op
from sqlalchemy import text

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLE = r"""
create table audit_event (
  received_at timestamptz not null,
  alteration_id uuid not null,
  ordinal smallint not null check (ordinal between -1 and 32000),
  seq smallint not null,
  event_type text not null
    check (event_type in ('intent', 'denied', 'validated', 'rejected', 'outcome')),
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
  verdict text check (verdict in
    ('applied', 'validated', 'refused', 'not_applied', 'unknown', 'not_sent')),
  payload text not null check (octet_length(payload) <= 33554432),
  leaf_hash bytea not null
    constraint hash_seals_the_payload
    check (leaf_hash = sha256('\x00'::bytea || convert_to(payload, 'UTF8'))),
  xid bigint not null default (pg_current_xact_id()::text)::bigint,
  listed boolean not null
    generated always as (seq = 0 and ordinal >= 0 and event_type <> 'rejected') stored,
  primary key (received_at, alteration_id, ordinal, seq),
  constraint one_event_of_a_kind check (seq = case event_type when 'outcome' then 1 else 0 end),
  constraint only_a_start_names_the_request
    check (num_nonnulls(cluster_id, principal, action) = case seq when 0 then 3 else 0 end),
  constraint only_an_entity_has_kinds check (
    num_nonnulls(user_kind, client_id_kind, ip_kind, other_types) in (0, 4)
    and (user_kind is null or (seq = 0 and ordinal >= 0))),
  constraint an_end_has_a_verdict
    check ((verdict is null) = (ordinal < 0 or event_type = 'intent'))
) partition by range (received_at)
"""

INDEXES = (
    """create index audit_event_newest
       on audit_event (cluster_id, at desc, alteration_id desc, ordinal) where listed""",
    """create index audit_event_by_principal
       on audit_event (cluster_id, principal, at desc, alteration_id desc, ordinal) where listed""",
    """create index audit_event_by_user on audit_event
       (cluster_id, user_kind, substr(user_name, 1, 64),
       at desc, alteration_id desc, ordinal)
       where user_kind <> 'absent'""",
    """create index audit_event_by_client_id on audit_event
       (cluster_id, client_id_kind, substr(client_id_name, 1, 64),
       at desc, alteration_id desc, ordinal)
       where client_id_kind <> 'absent'""",
    """create index audit_event_by_ip on audit_event
       (cluster_id, ip_kind, substr(ip_name, 1, 64),
       at desc, alteration_id desc, ordinal)
       where ip_kind <> 'absent'""",
    """create index audit_event_by_action
       on audit_event (cluster_id, action, at desc, alteration_id desc, ordinal)
       where listed and action <> 'alter'""",
    """create index audit_event_by_verdict
       on audit_event (verdict, at desc, alteration_id desc, ordinal)
       where verdict <> 'applied' and event_type <> 'rejected'""",
)

REFUSAL = """
create function refuse_change_of_audit_event() returns trigger language plpgsql as $$
begin
  raise exception 'The audit log is append-only: % on % is refused.', tg_op, tg_table_name
    using errcode = 'insufficient_privilege';
end
$$
"""

TRIGGERS = (
    """create trigger audit_event_row before update or delete on audit_event
       for each row execute function refuse_change_of_audit_event()""",
    "alter table audit_event enable always trigger audit_event_row",
    """create trigger audit_event_truncate before truncate on audit_event
       for each statement execute function refuse_change_of_audit_event()""",
    "alter table audit_event enable always trigger audit_event_truncate",
)

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
$$
"""


def upgrade() -> None:
    """Create the table without partitions; `ensure_audit_partitions` makes those."""
    op.execute(TABLE)
    for statement in (*INDEXES, REFUSAL, *TRIGGERS):
        op.execute(statement)
    schema = op.get_bind().scalar(text("select quote_ident(current_schema())"))
    op.execute(PARTITIONS.replace("{schema}", schema))
    op.execute("revoke all on function ensure_audit_partitions(integer, integer) from public")
    op.execute("revoke all on audit_event from public")


def downgrade() -> None:
    """Drop the log with everything in it."""
    op.execute("drop function ensure_audit_partitions(integer, integer)")
    op.execute("drop table audit_event")
    op.execute("drop function refuse_change_of_audit_event()")
