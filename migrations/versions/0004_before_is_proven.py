"""Show what held before an alteration only where the log proves it."""

from collections.abc import Sequence

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

AUDIT_LOG = r"""
create or replace view audit_log as
  with readable as (
    select *, regexp_replace(document, '\\u(0000|d[89a-f][0-9a-f]{{2}})', '\\ufffd', 'g')::json
      as content
    from audit_entity_event
  )
  select started.cluster_id, started.at, started.alteration_id, started.ordinal,
    started.principal, started.action, started.content -> 'entity' as entity,
    started.content -> 'ops' as ops,
    {before} as before,
    ended.result -> 'after' as after, coalesce(ended.verdict, 'unknown') as outcome,
    ended.result -> 'error' as error, ended.occurred_at as concluded_at
  from readable as started left join lateral (
    select verdict, occurred_at, content -> 'result' as result, content -> 'final' as final,
      content -> 'evidence' as evidence
    from readable as later
    where later.received_at = started.received_at
      and later.alteration_id = started.alteration_id and later.ordinal = started.ordinal
      and later.verdict is not null
    order by later.seq desc limit 1
  ) as ended on true
  where started.seq = 0
"""

PROVEN = """case when ended.final is null or ended.evidence -> 'late_answer' is not null
      or ended.evidence ->> 'before_is_proven' = 'true'
      then nullif((ended.result -> 'before')::text, 'null')::json end"""
"""What recovery found, without what it knew of the values before, is no proof of them."""

OF_THE_INTENT = """coalesce(nullif((ended.result -> 'before')::text, 'null')::json,
      started.content -> 'before')"""


def upgrade() -> None:
    """Replace the view."""
    op.execute(AUDIT_LOG.format(before=PROVEN))


def downgrade() -> None:
    """Show the intent's values where the conclusion has none, as before."""
    op.execute(AUDIT_LOG.format(before=OF_THE_INTENT))
