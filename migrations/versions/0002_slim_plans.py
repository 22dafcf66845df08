"""Drop what was stored of a plan and never read; the plans of before, which end in a day, go."""

from collections.abc import Sequence

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Remove the plans, whose text has another form now, and four columns."""
    op.execute("delete from quota_plan")
    op.execute(
        "alter table quota_plan drop column owner, drop column base, drop column created_at, "
        "drop column document"
    )


def downgrade() -> None:
    """Remove the plans, and add the columns."""
    op.execute("delete from quota_plan")
    op.execute(
        """
        alter table quota_plan
          add column owner text not null check (length(owner) between 1 and 128),
          add column base text not null check (base ~ '^[0-9a-f]{64}$'),
          add column created_at timestamptz not null check (expires_at > created_at),
          add column document text not null
        """
    )
