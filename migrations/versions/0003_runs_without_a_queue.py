"""Drop what the queue of pipeline runs stored: a scheduler starts them, and nobody asks for one."""

from collections.abc import Sequence

from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Remove runs that never began, and four columns."""
    op.execute("delete from pipeline_run where started_at is null")
    op.execute(
        """
        alter table pipeline_run
          drop column requested_by, drop column requested_at, drop column cancel_requested,
          drop column progress, alter column started_at set not null,
          drop constraint pipeline_run_state_check,
          add constraint pipeline_run_state_check
            check (state in ('running', 'succeeded', 'failed', 'cancelled')),
          drop constraint an_ended_run_has_an_end,
          add constraint an_ended_run_has_an_end check ((ended_at is null) = (state = 'running'))
        """
    )


def downgrade() -> None:
    """Add the columns; whoever ran a job is not recorded."""
    op.execute(
        """
        alter table pipeline_run
          add column requested_by text,
          add column requested_at timestamptz not null default clock_timestamp(),
          add column cancel_requested boolean not null default false,
          add column progress text, alter column started_at drop not null,
          drop constraint pipeline_run_state_check,
          add constraint pipeline_run_state_check
            check (state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
          drop constraint an_ended_run_has_an_end,
          add constraint an_ended_run_has_an_end
            check ((ended_at is null) = (state in ('queued', 'running')))
        """
    )
    op.execute("update pipeline_run set requested_at = started_at")
