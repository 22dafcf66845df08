"""What is asked of the log: one alteration, or a page of rows."""

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from sqlalchemy import Row, select

from app.postgres.audit_query import audit_statement
from app.postgres.conclusions import is_of
from app.postgres.event_records import audit_row
from app.postgres.leases import Lease
from app.postgres.tables import audit_event
from app.service.audit_records import AuditPage, AuditQuery


async def payloads_of(alteration_id: str, lease: Lease) -> Sequence[str]:
    """Return the payloads of an alteration, in the order of (ordinal, seq)."""
    query = (
        select(audit_event.c.payload)
        .where(is_of(alteration_id))
        .order_by(audit_event.c.ordinal, audit_event.c.seq)
    )
    return (await lease.connection.scalars(query)).all()


async def rows_of(query: AuditQuery, lease: Lease) -> Sequence[Row[Any]]:
    """Return the rows of a page, and one more where more follow."""
    result = await lease.connection.execute(audit_statement(query))
    rows: Sequence[Row[Any]] = result.all()
    return rows


def page_of(rows: Sequence[Row[Any]], limit: int) -> AuditPage:
    """Return the page that the rows make."""
    page = rows[:limit]
    requests = {row.alteration_id: row.request for row in page}
    read = {alteration_id: json.loads(payload) for alteration_id, payload in requests.items()}
    listed = [
        audit_row(
            row.at,
            read[row.alteration_id],
            json.loads(row.start),
            None if row.conclusion is None else json.loads(row.conclusion),
        )
        for row in page
    ]
    if len(rows) <= limit:
        return AuditPage(listed, None)
    last = page[-1]
    return AuditPage(listed, (last.at.astimezone(UTC), str(last.alteration_id), last.ordinal))
