"""The log's table, as the queries see it; the migrations are what makes it."""

from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)

metadata = MetaData()

audit_event: Final = Table(
    "audit_event",
    metadata,
    Column("received_at", DateTime(timezone=True), primary_key=True),
    Column("alteration_id", Uuid, primary_key=True),
    Column("ordinal", SmallInteger, primary_key=True),
    Column("seq", SmallInteger, primary_key=True),
    Column("event_type", Text, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("cluster_id", Text),
    Column("principal", Text),
    Column("action", Text),
    Column("user_kind", Text),
    Column("user_name", LargeBinary),
    Column("client_id_kind", Text),
    Column("client_id_name", LargeBinary),
    Column("ip_kind", Text),
    Column("ip_name", LargeBinary),
    Column("other_types", Boolean),
    Column("verdict", Text),
    Column("payload", Text, nullable=False),
    Column("leaf_hash", LargeBinary, nullable=False),
    Column("listed", Boolean, nullable=False),
)
"""One row for each event of a request (ordinal -1) or of one of its entities.

`seq` 0 is the start of an entity's story, 1 its outcome; higher ones are what recovery found, what
superseded it, and that it was applied late after all. `at` is the time of the start on every
row. What names the request and the entity stands on the starts only. `payload` is the record and
`leaf_hash` its seal; the other columns are there to find it by. `listed` marks the rows of
``GET /audit``: the starts of entities, without those that our own rules refused.
"""

REQUEST_ORDINAL: Final = -1
"""The ordinal of the row that stands for the request itself."""

ANALYTICS_TABLES: Final = (
    "utilization_daily",
    "throttle_incident",
    "bucket_minute",
    "dim_bucket",
    "pipeline_run",
    "staged_utilization_daily",
    "staged_throttle_incident",
    "staged_bucket_minute",
    "staged_dim_bucket",
)
"""What the pipeline publishes, by way of what is staged, and its runs."""

WORKING_TABLES: Final = (
    "entity_slot",
    "idempotency",
    "entity_state",
    "worker",
    "drift_baseline",
    "quota_plan",
    "quota_owner",
    *ANALYTICS_TABLES,
)
"""What the service may change. Their rows come and go; what they lead to is in the log."""
