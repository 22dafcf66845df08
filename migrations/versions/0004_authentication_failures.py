"""Add the count of refused credentials: append-only, a few rows for each minute.

A row is what one process counted in one minute for one network, kind of credential and reason.
`source` is the /24 of an IPv4 caller or the /64 of an IPv6 one; it is null for what came from more
networks than a process keeps apart, and where the caller's address is not known.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLE = """
create table authentication_failure (
  id uuid primary key,
  minute timestamptz not null check (minute = date_trunc('minute', minute, 'UTC')),
  source cidr,
  method text not null check (length(method) between 1 and 64),
  reason text not null check (length(reason) between 1 and 64),
  n bigint not null check (n > 0),
  recorded_at timestamptz not null default clock_timestamp()
)
"""

INDEX = "create index authentication_failure_newest on authentication_failure (minute desc)"

TRIGGERS = (
    """create trigger authentication_failure_row before update or delete
       on authentication_failure for each row execute function refuse_change_of_audit_event()""",
    "alter table authentication_failure enable always trigger authentication_failure_row",
    """create trigger authentication_failure_truncate before truncate on authentication_failure
       for each statement execute function refuse_change_of_audit_event()""",
    "alter table authentication_failure enable always trigger authentication_failure_truncate",
)


def upgrade() -> None:
    """Create the table, and keep it append-only by the triggers of the log."""
    for statement in (TABLE, INDEX, *TRIGGERS):
        op.execute(statement)
    op.execute("revoke all on authentication_failure from public")


def downgrade() -> None:
    """Drop the counts with everything in them."""
    op.execute("drop table authentication_failure")
