"""Events after the outcome: what recovery found, what was superseded, what was applied late.

Whoever adds one holds the lock of its entity, so their numbers never clash.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import text

from app.domain.alterations import AlterationResult, Outcome
from app.domain.entities import ClientQuotaEntity
from app.postgres.payload import EventRow, EventRows, result_to_json, time_text
from app.postgres.pool import Lease
from app.service.ports.recovery import Recovered, RecoveryKey
from app.service.runtime.clock import time_of

RECOVERY: Final = "recovery"
SUPERSEDED: Final = "superseded"
DRIFT: Final = "drift"

_ANY: Final = ClientQuotaEntity(())
"""A result is written without its entity, which the start of its history names."""

_MARKS: Final[Mapping[str, tuple[str, bool]]] = {
    "indistinguishable": ("indistinguishable", True),
    "unverified": ("verified", False),
}
"""What a reader sees of the evidence: word, and the member that gives rise to it."""

_HISTORIES: Final = text(
    """
    select wanted.alteration_id::text, wanted.ordinal, story.at,
      greatest(story.at, clock_timestamp()) as now, greatest(story.last, 1) + 1 as next_seq,
      story.conclusion
    from unnest(cast(:received_at as timestamptz[]), cast(:alteration_ids as uuid[]),
      cast(:ordinals as smallint[])) as wanted(received_at, alteration_id, ordinal)
    cross join lateral (
      select min(at) as at, max(seq) as last,
        max(payload) filter (where seq > 0 and verdict <> 'unknown') as conclusion
      from audit_event as event
      where event.received_at = wanted.received_at
        and event.alteration_id = wanted.alteration_id and event.ordinal = wanted.ordinal
    ) as story
    where story.at is not null
    """
)
"""The rows of each key are looked up by the primary key, whatever the planner believes."""


class EventHistory(NamedTuple):
    """Where the story of one entity of an alteration stands.

    Attributes:
        at: When it began.
        now: The present time of the database.
        next_seq: The number of its next event.
        conclusion: The payload of its definite outcome, or null while there is none.
    """

    alteration_id: str
    ordinal: int
    at: datetime
    now: datetime
    next_seq: int
    conclusion: str | None


async def read_histories(keys: Collection[RecoveryKey], lease: Lease) -> Sequence[EventHistory]:
    """Return where the stories of these entities stand; what the log does not have is left out."""
    times = {alteration_id: time_of(alteration_id) for alteration_id, _ in keys}
    values = {**by_column(keys), "received_at": [times[one].isoformat() for one, _ in keys]}
    return [EventHistory(*row) for row in await lease.connection.execute(_HISTORIES, values)]


def by_column(keys: Collection[RecoveryKey]) -> dict[str, Any]:
    """Return places as the parameters of a statement; Postgres reads ids from text."""
    return {
        "alteration_ids": [alteration_id for alteration_id, _ in keys],
        "ordinals": [ordinal for _, ordinal in keys],
    }


def recovery_row(history: EventHistory, recovered: Recovered) -> EventRow:
    """Return what recovery found; only what is final has a verdict."""
    document = {
        "final": recovered.final,
        "result": result_to_json(recovered.result),
        "evidence": dict(recovered.evidence),
        "detail": _found(recovered),
    }
    verdict = recovered.result.outcome.value if recovered.final else None
    return _later_row(history, RECOVERY, document, verdict)


def superseded_rows(histories: Sequence[EventHistory], by: str) -> Iterator[EventRow]:
    """Return the end of what another alteration took over; its truth is not known."""
    for history in histories:
        document = {
            "result": result_to_json(AlterationResult(_ANY, Outcome.SUPERSEDED)),
            "superseded_by": by,
            "detail": f"superseded by alteration {by} before its outcome was known",
        }
        yield _later_row(history, SUPERSEDED, document, Outcome.SUPERSEDED.value)


def late_row(history: EventHistory, drift_id: str) -> EventRow:
    """Return a note that the alteration was seen to be applied after all."""
    detail = f"seen to be applied after all, recorded as {drift_id}"
    return _later_row(history, DRIFT, {"drift": drift_id, "detail": detail}, None)


def _later_row(
    history: EventHistory, event: str, document: Mapping[str, Any], verdict: str | None
) -> EventRow:
    rows = EventRows(history.alteration_id, event, time_text(history.at), time_text(history.now))
    return rows.row(history.ordinal, dict(document), {"seq": history.next_seq, "verdict": verdict})


def _found(recovered: Recovered) -> str:
    outcome = recovered.result.outcome.value.replace("_", " ")
    marks = [
        mark for mark, (name, value) in _MARKS.items() if recovered.evidence.get(name) is value
    ]
    found = f"found {outcome}" if recovered.final else f"observed: {outcome} so far"
    return f"{found} ({', '.join(marks)})" if marks else found
