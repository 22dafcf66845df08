"""Outcomes: at most one for each entity of an intent, harmless to repeat; they free the locks."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg
from sqlalchemy import ColumnElement, func, or_, select

from app.domain.alterations import AlterationResult, Outcome
from app.domain.errors import NotFoundError
from app.postgres.bulk import MANY, SECONDS_PER_ROW, committed, copy_rows, durable, joined_by_hash
from app.postgres.entity_locks import entity_text, values_text
from app.postgres.follow_up_events import RECOVERY, SUPERSEDED
from app.postgres.idempotency import free_key_if_unused, may_be_repeated
from app.postgres.intents import BatchRejectedError
from app.postgres.payload import (
    canonical_json,
    new_mark,
    open_rows,
    outcome_rows,
    result_to_json,
    time_text,
)
from app.postgres.pool import Lease
from app.postgres.schema import REQUEST_ORDINAL, audit_event
from app.service.ports.audit_log import AuditConclusion
from app.service.runtime.clock import time_of

_CLOSE: Final = "select close_slots(%(definite)s::json, %(unknown)s::json, %(ids)s)"
"""Without a slot there is no state: then somebody else has concluded.

The places are texts: psycopg writes arrays of JSON ten times slower.
"""

_SEEN: Final = frozenset({Outcome.APPLIED, Outcome.OBSERVED_OTHER})
"""Outcomes whose ``after`` is what the cluster holds now."""


class Ended(NamedTuple):
    """An alteration, or a part of one, that is concluded.

    Attributes:
        alteration_id: Whose slots.
        results: By ordinal; what is unknown keeps its slot, in quarantine.
    """

    alteration_id: str
    results: Mapping[int, AlterationResult]


async def close_slots(every: Sequence[Ended], lease: Lease) -> None:
    """Free slots or quarantine them, keep the states that were seen, renew the keys' lives."""
    if not every:
        return
    number = sum(len(one.results) for one in every)
    parameters = await asyncio.to_thread(closing, every) if number >= MANY else closing(every)
    async with joined_by_hash(number, lease):
        await lease.driver.execute(_CLOSE, parameters)


def closing(every: Sequence[Ended]) -> Mapping[str, Any]:
    """Return the parameters of the statement that closes slots."""
    return {
        "definite": json.dumps(list(_definite(every))),
        "unknown": json.dumps(list(_unknown(every))),
        "ids": [UUID(one.alteration_id) for one in every],
    }


def _definite(every: Iterable[Ended]) -> Iterator[Mapping[str, Any]]:
    for one in every:
        for ordinal, result in one.results.items():
            row = {
                "alteration_id": one.alteration_id,
                "ordinal": ordinal,
                "applied": result.outcome is Outcome.APPLIED,
            }
            if result.outcome in _SEEN and result.after is not None:
                values = values_text(result.after)
                yield {**row, "entity": entity_text(result.entity), "values": values}
            elif result.outcome is not Outcome.UNKNOWN:
                yield row


def _unknown(every: Iterable[Ended]) -> Iterator[Mapping[str, Any]]:
    for one in every:
        for ordinal, result in one.results.items():
            if result.outcome is Outcome.UNKNOWN:
                yield {"alteration_id": one.alteration_id, "ordinal": ordinal}


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


_RECORD: Final = """
    select record_outcomes(%(definite)s::json, %(unknown)s::json, %(ids)s, %(events)s::json,
      %(at_mark)s, %(now_mark)s)
    """

_NOT_EVERYBODYS: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.NoDataFound,
    psycopg.errors.UniqueViolation,
)


class OutcomeBatch:
    """The conclusions of one transaction, while it fills."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._results = 0

    def __call__(self, conclusion: AuditConclusion) -> bool:
        """Take one more in, if it fits."""
        results = self._results + len(conclusion.results)
        fits = results < MANY and conclusion.alteration_id not in self._ids
        if fits or not self._ids:
            self._ids.add(conclusion.alteration_id)
            self._results = results
        return fits


async def conclude_together(conclusions: Sequence[AuditConclusion], lease: Lease) -> None:
    """Write an outcome for each result, give up what was held, and commit.

    The slots are closed before the intents are looked at: what recovery has concluded shows then.

    Raises:
        BatchRejectedError: One of them has no intent, or another conclusion, or a row is locked;
            nothing was written.
    """
    await lease.extend(sum(len(one.results) for one in conclusions) * SECONDS_PER_ROW)
    to_be_repeated = [one for one in conclusions if may_be_repeated(one.results.values())]
    try:
        if not to_be_repeated:
            await committed(_RECORD, _parameters(conclusions), lease)
            return
        await lease.driver.execute(_RECORD, _parameters(conclusions))
    except _NOT_EVERYBODYS as error:
        raise BatchRejectedError from error
    for one in to_be_repeated:
        await free_key_if_unused(one.alteration_id, one.results.values(), lease)


def _parameters(conclusions: Sequence[AuditConclusion]) -> Mapping[str, Any]:
    at_mark, now_mark = new_mark(), new_mark()
    rows = chain.from_iterable(outcome_rows(one, at_mark, now_mark) for one in conclusions)
    return {
        **closing([ended_by(one) for one in conclusions]),
        "events": open_rows(rows),
        "at_mark": at_mark,
        "now_mark": now_mark,
    }
