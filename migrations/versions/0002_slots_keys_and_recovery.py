"""Add what keeps one alteration at a time for each entity, and what recovery and drift leave.

Slots, keys, states and heartbeats are working data that the service changes; the log itself stays
append-only and learns three kinds of events: what recovery found, what was superseded, and what
others changed.
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = (
    """
    create table entity_slot (
      cluster_id text not null check (length(cluster_id) between 1 and 249),
      entity_hash bytea not null check (octet_length(entity_hash) = 32),
      alteration_id uuid not null,
      ordinal smallint not null check (ordinal between 0 and 32000),
      received_at timestamptz not null,
      owner text not null check (length(owner) between 1 and 255),
      state text not null default 'open' check (state in ('open', 'quarantined')),
      broker_id integer,
      taken_at timestamptz not null default clock_timestamp(),
      handed_over_by timestamptz not null,
      observed boolean not null default false,
      claimed_by text,
      claimed_until timestamptz,
      primary key (cluster_id, entity_hash),
      constraint handed_over_under_the_slot check (handed_over_by >= taken_at),
      constraint a_claim_has_an_end check ((claimed_by is null) = (claimed_until is null))
    ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)
    """,
    "create unique index entity_slot_of_alteration on entity_slot (alteration_id, ordinal)",
    "create index entity_slot_by_age on entity_slot (cluster_id, handed_over_by)",
    """
    create table idempotency (
      key_hash bytea primary key check (octet_length(key_hash) = 32),
      fingerprint bytea not null check (octet_length(fingerprint) = 32),
      alteration_id uuid not null,
      expires_at timestamptz not null
    )
    """,
    "create index idempotency_of_alteration on idempotency (alteration_id)",
    "create index idempotency_by_expiry on idempotency (expires_at)",
    """
    create table entity_state (
      cluster_id text not null check (length(cluster_id) between 1 and 249),
      entity_hash bytea not null check (octet_length(entity_hash) = 32),
      entity text not null,
      "values" text not null,
      version bigint not null check (version > 0),
      alteration_id uuid,
      updated_at timestamptz not null,
      primary key (cluster_id, entity_hash)
    )
    """,
    """
    create table worker (
      cluster_id text not null check (length(cluster_id) between 1 and 249),
      owner text not null,
      seen_at timestamptz not null,
      primary key (cluster_id, owner)
    )
    """,
    "create table drift_baseline (cluster_id text primary key, taken_at timestamptz not null)",
)

NEW_CHECKS = {
    "audit_event_event_type_check": """event_type in ('intent', 'denied', 'validated', 'rejected',
      'outcome', 'recovery', 'superseded', 'drift')""",
    "audit_event_verdict_check": """verdict in ('applied', 'validated', 'refused', 'not_applied',
      'unknown', 'not_sent', 'observed_other', 'superseded')""",
    "one_event_of_a_kind": """case
      when event_type = 'outcome' then seq = 1
      when event_type in ('recovery', 'superseded') then seq >= 2
      when event_type = 'drift' then seq = 0 or seq >= 2
      else seq = 0 end""",
    "an_end_has_a_verdict": """case
      when ordinal < 0 or event_type = 'intent' then verdict is null
      when event_type = 'drift' then (verdict is null) = (seq > 0)
      else verdict is not null or event_type = 'recovery' end""",
}
OLD_CHECKS = {
    "audit_event_event_type_check": """event_type in
      ('intent', 'denied', 'validated', 'rejected', 'outcome')""",
    "audit_event_verdict_check": """verdict in
      ('applied', 'validated', 'refused', 'not_applied', 'unknown', 'not_sent')""",
    "one_event_of_a_kind": "seq = case event_type when 'outcome' then 1 else 0 end",
    "an_end_has_a_verdict": "(verdict is null) = (ordinal < 0 or event_type = 'intent')",
}

INDEXES = (
    """create unique index audit_event_one_conclusion
       on audit_event (received_at, alteration_id, ordinal)
       where seq > 0 and verdict <> 'unknown'""",
    "create index audit_event_found_later on audit_event (occurred_at) where seq > 1",
)


def upgrade() -> None:
    """Create the tables, and allow the new events."""
    for statement in TABLES:
        op.execute(statement)
    for name, check in NEW_CHECKS.items():
        _replace(name, check)
    for statement in INDEXES:
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables; the log keeps its rows, and refuses further ones of the new kinds.

    What was open is open no more: nobody will conclude it.
    """
    op.execute("drop index audit_event_found_later")
    op.execute("drop index audit_event_one_conclusion")
    for name, check in OLD_CHECKS.items():
        _replace(name, check, "not valid")
    op.execute("drop table drift_baseline, worker, entity_state, idempotency, entity_slot")


def _replace(name: str, check: str, validity: str = "") -> None:
    op.execute(f"alter table audit_event drop constraint {name}")
    op.execute(f"alter table audit_event add constraint {name} check ({check}) {validity}")
