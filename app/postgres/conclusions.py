"""Conclusions: at most one outcome for each entity of an intent, and repeating one is harmless."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy import ColumnElement, func, or_, select

from app.domain.alterations import AlterationResult, Outcome
from app.domain.errors import NotFoundError
from app.postgres.canonical import canonical_json, result_to_json
from app.postgres.closing import Ended, close_slots
from app.postgres.copying import MANY, SECONDS_PER_ROW, copy_rows, durable
from app.postgres.event_rows import outcome_rows, time_text
from app.postgres.keys import free_key_if_unused
from app.postgres.later_events import RECOVERY, SUPERSEDED
from app.postgres.leases import Lease
from app.postgres.tables import REQUEST_ORDINAL, audit_event
from app.service.audit_records import AuditConclusion
from app.service.identifiers import time_of

_COLUMNS = audit_event.c

_is_found = _COLUMNS.event_type.in_((RECOVERY, SUPERSEDED)) & _COLUMNS.verdict.is_not(None)
_is_end = or_(_COLUMNS.event_type == "outcome", _is_found)


class AlreadyConcludedError(Exception):
    """An entity of the conclusion has an outcome already."""


async def conclude(conclusion: AuditConclusion, lease: Lease) -> None:
    """Write an outcome for each result, and give up what it held.

    The slots come first: where recovery has concluded meanwhile, that is visible once they are
    locked.

    Raises:
        AlreadyConcludedError: There is one already; nothing was written.
        NotFoundError: There is no such intent.
    """
    number = len(conclusion.results)
    if number >= MANY:
        await lease.extend(number * SECONDS_PER_ROW)
    await close_slots([ended_by(conclusion)], lease)
    at, occurred_at = await _started(conclusion, lease)
    rows = outcome_rows(conclusion, time_text(at), time_text(occurred_at))
    try:
        await copy_rows(lease, rows, number)
    except psycopg.errors.UniqueViolation as error:
        raise AlreadyConcludedError from error
    await free_key_if_unused(conclusion.alteration_id, conclusion.results.values(), lease)


def ended_by(conclusion: AuditConclusion) -> Ended:
    """Return what a conclusion ends."""
    return Ended(conclusion.alteration_id, conclusion.results)


async def without_recorded(
    conclusion: AuditConclusion, lease: Lease
) -> tuple[AuditConclusion, str | None]:
    """Return what of the conclusion is not in the log yet, and what there contradicts it.

    What recovery has found stands; an owner that comes late and knows nothing agrees with it.
    """
    query = select(_COLUMNS.ordinal, _COLUMNS.payload).where(
        is_of(conclusion.alteration_id), _is_end
    )
    rows = await lease.connection.execute(query.order_by(_COLUMNS.ordinal, _COLUMNS.seq))
    recorded = {row.ordinal: json.loads(row.payload) for row in rows}
    rest = {key: one for key, one in conclusion.results.items() if key not in recorded}
    other = [
        f"entity {key} is already {recorded[key]['result']['outcome']}, not {one.outcome.value}"
        for key, one in conclusion.results.items()
        if key in recorded and not _agrees(one, recorded[key])
    ]
    contradiction = f"the log says of {conclusion.alteration_id}: {'; '.join(other)}"
    return replace(conclusion, results=rest), contradiction if other else None


def _agrees(result: AlterationResult, recorded: Mapping[str, Any]) -> bool:
    if recorded["event"] != "outcome":
        return result.outcome in {Outcome.UNKNOWN, Outcome(recorded["result"]["outcome"])}
    return bool(json.loads(canonical_json(result_to_json(result))) == recorded["result"])


def is_of(alteration_id: str) -> ColumnElement[bool]:
    """Return the condition for the rows of an alteration, in the words of the primary key."""
    return (_COLUMNS.received_at == time_of(alteration_id)) & (
        _COLUMNS.alteration_id == uuid.UUID(alteration_id)
    )


async def _started(conclusion: AuditConclusion, lease: Lease) -> tuple[datetime, datetime]:
    query = select(
        func.min(_COLUMNS.at),
        func.greatest(func.min(_COLUMNS.at), func.clock_timestamp()),
        func.count().filter(_COLUMNS.event_type == "intent"),
        func.count().filter(_is_found),
        durable,
    ).where(
        is_of(conclusion.alteration_id),
        or_(_COLUMNS.event_type == "intent", _is_found),
        _COLUMNS.ordinal == func.any(_ordinals(conclusion)),
    )
    at, occurred_at, number, found, _ = (await lease.connection.execute(query)).one()
    if number != len(conclusion.results):
        raise NotFoundError(
            f"The log has {number} intents of {conclusion.alteration_id} for "
            f"{len(conclusion.results)} outcomes."
        )
    if found:
        raise AlreadyConcludedError
    return at, occurred_at


def _ordinals(conclusion: AuditConclusion) -> Sequence[int]:
    return [ordinal for ordinal in conclusion.results if ordinal > REQUEST_ORDINAL]
