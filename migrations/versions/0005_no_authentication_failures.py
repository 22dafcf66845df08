"""Drop the counts of refused credentials: the process's log and a metric have them."""

from collections.abc import Sequence

from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Drop the table with its rows."""
    op.execute("drop table authentication_failure")


def downgrade() -> None:
    """Create the table without rows, append-only as it was."""
    op.execute(
        """
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
    )
    op.execute("create index authentication_failure_newest on authentication_failure (minute desc)")
    for name, events, each in (
        ("row", "update or delete", "row"),
        ("truncate", "truncate", "statement"),
    ):
        op.execute(
            f"create trigger authentication_failure_{name} before {events} "
            f"on authentication_failure for each {each} "
            "execute function refuse_change_of_audit_event()"
        )
        op.execute(
            "alter table authentication_failure enable always trigger "
            f"authentication_failure_{name}"
        )
    op.execute("revoke all on authentication_failure from public")
