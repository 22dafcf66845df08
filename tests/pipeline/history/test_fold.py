"""The fold of one log, entry by entry."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from app.domain.alterations import Op, Outcome, Values
from app.domain.entities import ClientQuotaEntity
from app.pipeline.quota_history import (
    UNKNOWN_BEGIN,
    AuditEntry,
    QuotaHistory,
    entity_columns,
    snapshots_of,
)

BEGIN = datetime(2026, 11, 21, 8, tzinfo=UTC)
P = "producer_byte_rate"
ALICE = {"user": "alice"}


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


def entry(
    minute: int,
    before: float | None,
    after: float | None,
    outcome: Outcome = Outcome.APPLIED,
    entity: Mapping[str, str | None] = ALICE,
) -> AuditEntry:
    op = Op(P, remove=True) if after is None else Op(P, Decimal(after))
    is_applied = outcome is Outcome.APPLIED
    return AuditEntry(
        alteration_id(minute),
        "c",
        at(minute),
        ClientQuotaEntity.of(entity),
        (op,),
        values(before),
        values(after) if is_applied else None,
        outcome,
    )


def alteration_id(minute: int) -> UUID:
    return UUID(int=minute << 65)


def values(value: float | None) -> Values:
    return {} if value is None else {P: value}


def snapshot(minute: int, value: float, entity: Mapping[str, str | None] = ALICE) -> dict[str, Any]:
    names = entity_columns(ClientQuotaEntity.of(entity))
    return {"cluster_id": "c", "taken_at": at(minute), **names, "key": P, "value": value}


def folded(*entries: AuditEntry, snapshots: tuple[dict[str, Any], ...] = ()) -> QuotaHistory:
    return QuotaHistory(entries, snapshots_of(snapshots))


def versions(history: QuotaHistory) -> list[tuple[Any, ...]]:
    rows = sorted(history.rows(), key=lambda row: row["valid_from"])
    names = ("value", "valid_from", "valid_to", "origin", "audit_seq")
    return [tuple(row[name] for name in names) for row in rows]


def conflicts(history: QuotaHistory) -> list[tuple[datetime, str]]:
    return [(row["at"], row["conflict"]) for row in history.conflicts()]


def test_each_alteration_ends_one_value_and_begins_the_next():
    history = folded(entry(1, None, 5), entry(2, 5, 7), entry(3, 7, None), entry(4, None, 9))
    assert versions(history) == [
        (5, at(1), at(2), "audit", 1),
        (7, at(2), at(3), "audit", 2),
        (9, at(4), None, "audit", 4),
    ]
    assert conflicts(history) == []


def test_setting_what_holds_already_begins_nothing():
    assert versions(folded(entry(1, None, 5), entry(2, 5, 5))) == [(5, at(1), None, "audit", 1)]


def test_what_held_before_the_first_alteration_is_inferred():
    assert versions(folded(entry(1, 3, 5))) == [
        (3, UNKNOWN_BEGIN, at(1), "inferred", None),
        (5, at(1), None, "audit", 1),
    ]


def test_what_was_refused_or_not_applied_changes_nothing():
    history = folded(
        entry(1, None, 5),
        entry(2, 5, 7, Outcome.REFUSED),
        entry(3, 5, 8, Outcome.NOT_APPLIED),
        entry(4, 5, 9, Outcome.NOT_SENT),
    )
    assert versions(history) == [(5, at(1), None, "audit", 1)]


def test_an_unknown_outcome_counts_once_the_next_alteration_finds_it_applied():
    history = folded(entry(1, None, 5), entry(2, 5, 7, Outcome.UNKNOWN), entry(3, 7, 8))
    assert versions(history) == [
        (5, at(1), at(2), "audit", 1),
        (7, at(2), at(3), "audit", 2),
        (8, at(3), None, "audit", 3),
    ]
    assert conflicts(history) == []


def test_an_unknown_outcome_that_the_next_alteration_does_not_find_counts_for_nothing():
    history = folded(entry(1, None, 5), entry(2, 5, 7, Outcome.SUPERSEDED), entry(3, 5, 8))
    assert versions(history) == [(5, at(1), at(3), "audit", 1), (8, at(3), None, "audit", 3)]
    assert conflicts(history) == []


def test_a_change_that_the_log_does_not_have_is_a_conflict():
    history = folded(entry(1, None, 5), entry(3, 6, 8))
    assert versions(history) == [(5, at(1), at(3), "audit", 1), (8, at(3), None, "audit", 3)]
    conflict = f"an alteration found {P}=6, the log says {P}=5"
    assert conflicts(history) == [(at(3), conflict)]


def test_snapshots_fill_the_gaps_and_conflict_where_the_log_says_otherwise():
    history = folded(
        entry(10, 4, 5),
        snapshots=(snapshot(1, 3), snapshot(5, 4), snapshot(20, 5), snapshot(30, 6)),
    )
    assert versions(history) == [
        (3, at(1), at(5), "snapshot", None),
        (4, at(5), at(10), "snapshot", None),
        (5, at(10), at(30), "audit", 10),
        (6, at(30), None, "snapshot", None),
    ]
    assert [time for time, _ in conflicts(history)] == [at(5), at(30)]


def test_an_entity_that_a_later_snapshot_lacks_was_removed():
    bob = {"user": None, "client-id": "x"}
    history = folded(snapshots=(snapshot(1, 3), snapshot(1, 9, bob), snapshot(5, 3)))
    rows = {(row["user"], row["user_default"], row["client_id"]): row for row in history.rows()}
    assert rows["", True, "x"]["valid_to"] == at(5)
    assert rows["alice", False, ""]["valid_to"] is None


def test_a_snapshot_taken_while_an_alteration_was_in_flight_proves_nothing():
    late = snapshot(1, 3) | {"taken_at": at(1) + timedelta(seconds=5)}
    history = folded(entry(1, 3, 5), snapshots=(late,))
    assert versions(history)[-1] == (5, at(1), None, "audit", 1)
    assert conflicts(history) == []


def test_an_ip_is_left_out():
    assert versions(folded(entry(1, None, 5, entity={"ip": "10.0.0.1"}))) == []
