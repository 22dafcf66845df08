"""A valid run, made by hand: every course that an alteration may take."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Answer, Call, LogRecord, Write
from tests.testkit.history.evidence import Audit, AuditedEntity, AuditEvent, Described, Evidence

BEGINNING = datetime(2026, 11, 21, tzinfo=UTC)
KEY = "producer_byte_rate"


def user(name: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


def write(name: str, value: float | None) -> Write:
    return Write(user(name), KEY, value)


def at(seconds: float) -> datetime:
    return BEGINNING + timedelta(seconds=seconds)


def call(
    number: int, began: float, *writes: Write, ended: float | None = None, **members: object
) -> Call:
    """Return a call that lasts half a second."""
    return Call(
        number,
        "client",
        writes,
        at(began),
        ended=at(began + 0.5 if ended is None else ended),
        **members,  # type: ignore[arg-type]
    )


def answered(alteration_id: str, *outcomes: str, replayed: bool = False) -> Answer:
    status = 200 if set(outcomes) == {"applied"} else 207
    return Answer(status, None, None, None, alteration_id, outcomes, replayed)


def problem(status: int, code: str, sent: str, retry: str, **members: object) -> Answer:
    return Answer(status, code, sent, retry, **members)  # type: ignore[arg-type]


def intent(alteration_id: str, began: float, *writes: Write, ordinal: int = 0) -> AuditedEntity:
    """Return an intent that was committed 20 ms after its lock was held."""
    return AuditedEntity(alteration_id, ordinal, writes, at(began), at(began + 0.02))


def concluded(
    audited: AuditedEntity, after_s: float, outcome: str, *before: AuditEvent
) -> AuditedEntity:
    """Conclude an intent by the outcome of its sending."""
    event = AuditEvent("outcome", audited.at + timedelta(seconds=after_s), outcome, final=True)
    return _with(audited, *before, event)


def recovered(
    audited: AuditedEntity, after_s: float, outcome: str, *, observed: str
) -> AuditedEntity:
    """Conclude an intent by recovery, which has observed something before."""
    concluded_at = audited.at + timedelta(seconds=after_s)
    fenced = audited.at + timedelta(seconds=3)
    return _with(
        audited,
        AuditEvent("outcome", audited.at + timedelta(seconds=1), "unknown"),
        AuditEvent("recovery", fenced + timedelta(seconds=2), observed, False, fenced),
        AuditEvent("recovery", concluded_at, outcome, True, concluded_at),
    )


def _with(audited: AuditedEntity, *events: AuditEvent) -> AuditedEntity:
    return replace(audited, events=events)


def record(seconds: float, of: Write) -> LogRecord:
    return LogRecord(at(seconds), of, at(seconds))


CALLS = (
    call(1, 0, write("ann", 1), answer=answered("a1", "applied")),
    call(2, 1, write("ann", 2), write("bob", 3), answer=answered("a2", "applied", "applied")),
    call(3, 2, write("ann", 4), write("cat", 5), answer=answered("a3", "applied", "refused")),
    call(
        4, 3, write("bob", 6),
        answer=problem(504, "outcome-unknown", "maybe", "same-key-only", alteration_id="a4",
                       outcomes=("unknown",)),
    ),
    call(5, 4, write("cat", 7), ended=9.0),
    call(
        6, 200, write("ann", 8),
        answer=problem(503, "audit-log-unavailable", "no", "safe", alteration_id="a6"),
    ),
    call(
        7, 201, write("ann", 9),
        answer=problem(503, "cluster-unreachable", "no", "safe", alteration_id="a7",
                       outcomes=("not_sent",)),
    ),
    call(
        8, 202, write("ann", 10), expected=(write("ann", 4),), answer=answered("a8", "applied")
    ),
    call(
        9, 203, write("ann", 11), expected=(write("ann", 4),),
        answer=problem(412, "expectation-failed", "no", "never", alteration_id="a9"),
    ),
    call(
        10, 204, write("dan", 12), idempotency_key="k", ended=206.0,
        answer=answered("a10", "applied"),
    ),
    call(
        11, 204, write("dan", 12), idempotency_key="k",
        answer=problem(409, "idempotency-key-running", "no", "same-key-only",
                       alteration_id="a10"),
    ),
    call(
        12, 210, write("dan", 12), idempotency_key="k",
        answer=answered("a10", "applied", replayed=True),
    ),
    call(13, 220, write("eve", 13), ended=221.0),
    call(14, 222, write("eve", 14), answer=answered("a14", "applied")),
    call(15, 223, write("eve", 15), answer=problem(409, "entity-busy", "no", "safe")),
    call(
        16, 230, write("fay", 16),
        answer=problem(503, "outcome-not-recorded", "yes", "same-key-only",
                       alteration_id="a16", outcomes=("applied",)),
    ),
)  # fmt: skip
"""One word, two entities, one refused of two, unknown and found, no answer, nothing sent twice
(once the commit of its intent was in doubt, and never came), an expectation that holds and one
that does not, a key used three times, a supersede, a busy entity, an outcome that was recorded
late."""

AUDITED = (
    concluded(intent("a1", 0.1, write("ann", 1)), 0.1, "applied"),
    concluded(intent("a2", 1.1, write("ann", 2)), 0.1, "applied"),
    concluded(intent("a2", 1.1, write("bob", 3), ordinal=1), 0.1, "applied"),
    concluded(intent("a3", 2.1, write("ann", 4)), 0.1, "applied"),
    concluded(intent("a3", 2.1, write("cat", 5), ordinal=1), 0.1, "refused"),
    recovered(intent("a4", 3.1, write("bob", 6)), 96, "applied", observed="not_applied"),
    recovered(intent("a5", 4.1, write("cat", 7)), 96, "not_applied", observed="not_applied"),
    concluded(intent("a7", 201.1, write("ann", 9)), 0.1, "not_sent"),
    concluded(intent("a8", 202.1, write("ann", 10)), 0.1, "applied"),
    concluded(intent("a9", 203.1, write("ann", 11)), 0.1, "refused"),
    concluded(intent("a10", 204.1, write("dan", 12)), 0.1, "applied"),
    _with(
        intent("a13", 220.1, write("eve", 13)),
        AuditEvent("outcome", at(221.0), "unknown"),
        AuditEvent("superseded", at(222.05), "superseded", final=True),
    ),
    concluded(intent("a14", 222.1, write("eve", 14)), 0.1, "applied"),
    concluded(intent("a16", 230.1, write("fay", 16)), 9.0, "applied"),
)

RECORDS = (
    record(0.15, write("ann", 1)),
    record(1.15, write("ann", 2)),
    record(1.15, write("bob", 3)),
    record(2.15, write("ann", 4)),
    record(30.0, write("bob", 6)),
    record(202.15, write("ann", 10)),
    record(204.15, write("dan", 12)),
    record(221.5, write("eve", 13)),
    record(222.15, write("eve", 14)),
    record(230.15, write("fay", 16)),
)


def values_of(records: tuple[LogRecord, ...]) -> Described:
    values: dict[ClientQuotaEntity, dict[str, float]] = {}
    for item in records:
        entity, key, value = item.write
        if value is not None:
            values.setdefault(entity, {})[key] = value
        else:
            values.get(entity, {}).pop(key, None)
    return values


def evidence(
    calls: tuple[Call, ...] = CALLS,
    audited: tuple[AuditedEntity, ...] = AUDITED,
    records: tuple[LogRecord, ...] = RECORDS,
    **members: object,
) -> Evidence:
    """Return the valid run, or another one; broker and audit log know how its records end."""
    values = values_of(records)
    return Evidence(calls, Audit(audited, (), values), records, values, **members)  # type: ignore[arg-type]
