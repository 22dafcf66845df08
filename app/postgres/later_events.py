"""Events after the outcome: what recovery found, what was superseded, what was applied late.

Whoever adds one holds the slot of its entity, so their numbers never clash.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import text

from app.domain.alterations import AlterationResult, Outcome
from app.domain.entities import ClientQuotaEntity
from app.postgres.canonical import result_to_json
from app.postgres.event_rows import EventRow, EventRows
from app.postgres.leases import Lease
from app.service.identifiers import time_of
from app.service.ports import Recovered

RECOVERY: Final = "recovery"
SUPERSEDED: Final = "superseded"
DRIFT: Final = "drift"

_ANY: Final = ClientQuotaEntity(())
"""A result is written without its entity, which the start of its story names."""

_MARKS: Final[Mapping[str, tuple[str, bool]]] = {
    "indistinguishable": ("indistinguishable", True),
    "unverified": ("verified", False),
}
"""What a reader is told of the evidence: word, and the member that gives rise to it."""

_STORIES: Final = text(
    """
    select ordinal, at, greatest(at, clock_timestamp()) as now, greatest(last, 1) + 1 as next_seq,
      conclusion
    from (
      select ordinal, min(at) as at, max(seq) as last,
        max(payload) filter (where seq > 0 and verdict <> 'unknown') as conclusion
      from audit_event
      where received_at = :received_at and alteration_id = :alteration_id
        and ordinal = any(cast(:ordinals as smallint[]))
      group by ordinal
    ) as story
    """
)


class Story(NamedTuple):
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


async def stories(alteration_id: str, ordinals: Sequence[int], lease: Lease) -> Sequence[Story]:
    """Return where the stories of these entities stand; what the log does not have is left out."""
    values = {
        "received_at": time_of(alteration_id),
        "alteration_id": UUID(alteration_id),
        "ordinals": list(ordinals),
    }
    rows = await lease.connection.execute(_STORIES, values)
    return [Story(alteration_id, *row) for row in rows]


def recovery_row(story: Story, recovered: Recovered) -> EventRow:
    """Return what recovery found; only what is final has a verdict."""
    document = {
        "final": recovered.final,
        "result": result_to_json(recovered.result),
        "evidence": dict(recovered.evidence),
        "detail": _found(recovered),
    }
    verdict = recovered.result.outcome.value if recovered.final else None
    return _later_row(story, RECOVERY, document, verdict)


def superseded_rows(told: Sequence[Story], by: str) -> Iterator[EventRow]:
    """Return the end of what another alteration took over; its truth is not known."""
    for story in told:
        document = {
            "result": result_to_json(AlterationResult(_ANY, Outcome.SUPERSEDED)),
            "superseded_by": by,
            "detail": f"superseded by alteration {by} before its outcome was known",
        }
        yield _later_row(story, SUPERSEDED, document, Outcome.SUPERSEDED.value)


def late_row(story: Story, drift_id: str) -> EventRow:
    """Return a note that the alteration was seen to be applied after all."""
    detail = f"seen to be applied after all, recorded as {drift_id}"
    return _later_row(story, DRIFT, {"drift": drift_id, "detail": detail}, None)


def _later_row(
    story: Story, event: str, document: Mapping[str, Any], verdict: str | None
) -> EventRow:
    rows = EventRows(story.alteration_id, event, story.at, story.now)
    return rows.row(story.ordinal, dict(document), {"seq": story.next_seq, "verdict": verdict})


def _found(recovered: Recovered) -> str:
    outcome = recovered.result.outcome.value.replace("_", " ")
    marks = [
        mark for mark, (name, value) in _MARKS.items() if recovered.evidence.get(name) is value
    ]
    found = f"found {outcome}" if recovered.final else f"observed: {outcome} so far"
    return f"{found} ({', '.join(marks)})" if marks else found
