"""Valid runs: each is a sequence of courses that an alteration may take, of several users."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Answer, Call, LogRecord, Write
from tests.testkit.history.evidence import Audit, AuditedEntity, AuditEvent, Evidence

KEY: Final = "producer_byte_rate"
COURSE_S: Final = 300.0
"""Courses of one user follow each other so far apart; those of several users overlap."""


def user(name: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


def at(seconds: float) -> datetime:
    return datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=seconds)


def record(seconds: float, write: Write) -> LogRecord:
    return LogRecord(at(seconds), write, at(seconds))


class Event(NamedTuple):
    """What the audit log says of an entity, so many seconds after its alteration began."""

    kind: str
    after_s: float
    outcome: str
    final: bool = True


class Course(NamedTuple):
    """What becomes of an alteration.

    Attributes:
        events: Null where its intent was never committed.
        answers: By the seconds at which they were asked for; null is no answer.
        applied_s: When the cluster applies it, if it does.
        expected: What it expects: null for nothing, -1 for what holds.
    """

    events: tuple[Event, ...] | None
    answers: dict[float, Answer | None]
    applied_s: float | None = None
    expected: float | None = None


def recovered(outcome: str) -> tuple[Event, ...]:
    """Conclude by recovery, which has not seen it applied when its fences were answered."""
    unknown, seen = (
        Event("outcome", 1, "unknown", False),
        Event("recovery", 5, "not_applied", False),
    )
    return (unknown, seen, Event("recovery", 96, outcome))


APPLIED, REFUSED = (Event("outcome", 0.2, "applied"),), (Event("outcome", 0.2, "refused"),)
NOT_SENT = (Event("outcome", 0.2, "not_sent"),)
SUPERSEDED = (Event("outcome", 1, "unknown", False), Event("superseded", 3, "superseded"))
DONE = Answer(200, outcomes=("applied",))
REPLAYED = Answer(200, outcomes=("applied",), replayed=True)
UNREACHABLE = Answer(503, "cluster-unreachable", "no", "safe", outcomes=("not_sent",))
UNKNOWN = Answer(504, "outcome-unknown", "maybe", "same-key-only", outcomes=("unknown",))
LATE = Answer(503, "outcome-not-recorded", "yes", "same-key-only", outcomes=("applied",))

COURSES: Final = {
    "applied": Course(APPLIED, {0: DONE}, 0.15),
    "refused": Course(REFUSED, {0: Answer(207, outcomes=("refused",))}),
    "not sent": Course(NOT_SENT, {0: UNREACHABLE}),
    "not sent by a frozen owner": Course(recovered("not_applied"), {0: UNREACHABLE}),
    "never committed": Course(None, {0: Answer(503, "audit-log-unavailable", "no", "safe")}),
    "found applied": Course(recovered("applied"), {0: UNKNOWN}, 30),
    "found not applied": Course(recovered("not_applied"), {0: None}),
    "expecting": Course(APPLIED, {0: DONE}, 0.15, expected=-1),
    "mistaken": Course(REFUSED, {0: Answer(412, "expectation-failed", "no", "never")}, None, 0.5),
    "repeated": Course(
        APPLIED,
        {0: DONE, 0.1: Answer(409, "idempotency-key-running", "no", "same-key-only"), 9: REPLAYED},
        0.15,
    ),
    "superseded": Course(SUPERSEDED, {0: None}, 1.5),
    "busy": Course(None, {0: Answer(409, "entity-busy", "no", "safe")}),
    "recorded late": Course((Event("outcome", 9, "applied"),), {0: LATE}, 0.15),
}
OTHERS: Final = st.lists(
    st.tuples(st.sampled_from(list(COURSES)), st.sampled_from(["bob", "cat"])), max_size=8
)


def evidence(
    calls: Iterable[Call], audited: Iterable[AuditedEntity], records: Iterable[LogRecord]
) -> Evidence:
    """Return the evidence of a run: broker and audit log know how its records end."""
    logged = list(records)
    values: dict[ClientQuotaEntity, dict[str, float]] = {}
    for entity, key, value in (each.write for each in logged):
        values.setdefault(entity, {}).pop(key, None)
        if value is not None:
            values[entity][key] = value
    intents = sorted(audited, key=lambda item: (item.at, item.alteration_id, item.ordinal))
    return Evidence(list(calls), Audit(intents, (), values), logged, values)


def _of(answer: Answer, number: int, *, busy: bool) -> Answer:
    """Say whose answer it is, and the same of both entities."""
    alteration_id = None if busy else f"a{number}"
    return replace(answer, alteration_id=alteration_id, outcomes=answer.outcomes * 2)


def _event(began: float, event: Event) -> AuditEvent:
    fenced = at(began + event.after_s - 2) if event.kind == "recovery" else None
    return AuditEvent(event.kind, at(began + event.after_s), event.outcome, event.final, fenced)


def run_of(*courses: str, others: Iterable[tuple[str, str]] = ()) -> Evidence:
    """Return a run in which ann takes the courses, then zoe one and others theirs.

    Whoever alters a quota alters one of somebody beside them by the same request.
    """
    calls: list[Call] = []
    audited: list[AuditedEntity] = []
    records: list[LogRecord] = []
    ends: dict[str, float] = {}
    held: dict[ClientQuotaEntity, Write] = {}
    steps = [*((course, "ann") for course in courses), ("applied", "zoe"), *others]
    for number, (course, name) in enumerate(steps, 1):
        events, answers, applied_s, expected = COURSES[course]
        began = ends.get(name, 10.0 * len(ends))
        ends[name] = began + COURSE_S
        writes = tuple(Write(user(each), KEY, float(number)) for each in (name, f"{name} too"))
        wanted = [held.get(of, Write(of, KEY, None)) for of, _, _ in writes if expected is not None]
        if expected != -1:
            wanted = [each._replace(value=expected) for each in wanted]
        for after_s, answer in answers.items():
            named = answer and _of(answer, number, busy=course == "busy")
            times = {"began": at(began + after_s), "ended": at(began + after_s + 0.5)}
            calls.append(
                Call(len(calls), name, writes, **times, expected=tuple(wanted), answer=named)
            )
        for ordinal, write in enumerate(writes):
            if events is not None:
                events_of = tuple(_event(began, event) for event in events)
                times_held = (at(began + 0.1), at(began + 0.12))
                audited.append(
                    AuditedEntity(f"a{number}", ordinal, (write,), *times_held, events_of)
                )
            if applied_s is not None:
                records.append(record(began + applied_s, write))
                held[write.entity] = write
    return evidence(calls, audited, sorted(records, key=lambda item: item.at))
