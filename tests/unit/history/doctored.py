"""The honest run with something changed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from tests.testkit.history.events import Call, Write
from tests.testkit.history.evidence import AuditedEntity, AuditEvent, Evidence
from tests.testkit.history.metadata_log import LogRecord
from tests.unit.history.honest import (
    AUDITED,
    CALLS,
    RECORDS,
    at,
    concluded,
    evidence,
    intent,
    record,
    recovered,
    write,
)


def without(number: int) -> tuple[LogRecord, ...]:
    """Return the records without the one that has this value."""
    return tuple(one for one in RECORDS if one.write.value != number)


def with_record(seconds: float, of: Write) -> tuple[LogRecord, ...]:
    """Return the records with one more, at its place."""
    return tuple(sorted([*RECORDS, record(seconds, of)], key=lambda one: one.at))


def audit(
    alteration_id: str, change: Callable[[AuditedEntity], AuditedEntity]
) -> tuple[AuditedEntity, ...]:
    """Return the audit log with the first entity of an alteration changed."""
    place = next(i for i, one in enumerate(AUDITED) if one.alteration_id == alteration_id)
    return (*AUDITED[:place], change(AUDITED[place]), *AUDITED[place + 1 :])


def saying(alteration_id: str, outcome: str) -> tuple[AuditedEntity, ...]:
    """Return the audit log with another last word on an alteration."""
    return audit(
        alteration_id,
        lambda one: replace(
            one, events=(*one.events[:-1], replace(one.events[-1], outcome=outcome))
        ),
    )


def calls(number: int, **members: object) -> tuple[Call, ...]:
    """Return the calls with the answer to one of them changed."""
    return tuple(
        replace(one, answer=replace(one.answer, **members))  # type: ignore[type-var, arg-type]
        if one.number == number
        else one
        for one in CALLS
    )


def with_audit(**members: object) -> Evidence:
    """Return the run with something changed beside the log."""
    honest = evidence()
    return replace(honest, audit=replace(honest.audit, **members))  # type: ignore[arg-type]


def unfinished(one: AuditedEntity) -> AuditedEntity:
    return replace(one, events=one.events[:-1])


def committed_later(one: AuditedEntity) -> AuditedEntity:
    return replace(one, committed_at=one.committed_at + timedelta(seconds=1))


def twice(one: AuditedEntity) -> AuditedEntity:
    return replace(one, events=(*one.events, *one.events))


def overlapping(one: AuditedEntity) -> AuditedEntity:
    """Conclude it only when the next one of the same entity has begun."""
    return replace(one, events=(replace(one.events[-1], at=at(1.5)),))


def observed_applied(one: AuditedEntity) -> AuditedEntity:
    return recovered(replace(one, events=()), 96, "not_applied", observed="applied")


def late_drift(one: AuditedEntity) -> AuditedEntity:
    return replace(one, events=(*one.events, AuditEvent("drift", at(190))))


def sent_anew(began: float) -> tuple[AuditedEntity, ...]:
    """Return the audit log with a repeat of ``a10``, of which nothing was sent."""
    again = concluded(intent("b10", began, write("dan", 12)), 1, "applied")
    return (*saying("a10", "not_sent"), again)
