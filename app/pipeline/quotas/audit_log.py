"""The audit log of the service, in the order of the cluster's metadata log."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from psycopg import IsolationLevel
from psycopg.rows import namedtuple_row

from app.domain.alterations import Op, Outcome, Values
from app.domain.entities import ClientQuotaEntity
from app.pipeline.publish.runs import connect

_ROWS_AT_ONCE: Final = 2_000

_ENTRIES: Final = """
    select started.alteration_id, started.cluster_id, started.at, started.document as start, (
        select later.document from audit_entity_event as later
        where later.received_at = started.received_at
          and later.alteration_id = started.alteration_id and later.ordinal = started.ordinal
          and later.seq > 0 and later.verdict is not null
        order by later.seq desc limit 1
      ) as conclusion
    from audit_entity_event as started
    where started.seq = 0 and started.event_type in ('intent', 'drift')
      and (%(cluster)s::text is null or started.cluster_id = %(cluster)s)
    order by started.at, started.alteration_id, started.ordinal
"""
"""What was sent and what others changed, each with its latest conclusion."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entity of one alteration, or one change that others made.

    Attributes:
        alteration_id: Of the alteration, or of the record of what others made.
        cluster_id: Whose entity.
        at: When it was begun, under the entity's lock.
        entity: What was altered.
        ops: What was asked for.
        before: The entity's values then; null where they are not recorded.
        after: Its values afterwards; null where they are not recorded.
        outcome: What became of it, so far.
    """

    alteration_id: UUID
    cluster_id: str
    at: datetime
    entity: ClientQuotaEntity
    ops: tuple[Op, ...]
    before: Values | None
    after: Values | None
    outcome: Outcome

    @property
    def seq(self) -> int:
        """The first 63 bits of the alteration's id, which begins with its time.

        It grows with the log, and other rows of the log never change it.
        """
        return self.alteration_id.int >> 65


def read_audit_log(url: str, cluster: str | None) -> Iterator[AuditEntry]:
    """Return what the log says, all of it as of one time; nothing is written or locked.

    Args:
        url: Of the database; the service's role suffices.
        cluster: Whose entries; null is those of all clusters.

    Raises:
        UsageError: The address cannot be read.
        InfrastructureError: Postgres cannot be reached, or was not migrated.
    """
    with connect(url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        named = connection.cursor("audit_log", row_factory=namedtuple_row)
        with connection.transaction(), named as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            for row in cursor.execute(_ENTRIES, {"cluster": cluster}):
                yield _entry(row)


def _entry(row: Any) -> AuditEntry:
    start = json.loads(row.start)
    result = (start if row.conclusion is None else json.loads(row.conclusion)).get("result", {})
    before = result.get("before")
    return AuditEntry(
        row.alteration_id,
        row.cluster_id,
        row.at,
        ClientQuotaEntity.of(start["entity"]),
        tuple(_ops(start["ops"])),
        _values(start["before"] if before is None else before),
        _values(result.get("after")),
        Outcome(result.get("outcome", Outcome.UNKNOWN)),
    )


def _values(document: Mapping[str, Any] | None) -> Values | None:
    """Return float64 values; NaN and infinity are stored as text."""
    if document is None:
        return None
    return {key: float(value) for key, value in document.items()}


def _ops(documents: Sequence[Mapping[str, Any]]) -> Iterator[Op]:
    for document in documents:
        value = document.get("value")
        exact = None if value is None else Decimal(str(value))
        yield Op(document["key"], exact, document.get("remove", False))
