"""What the log says, from the versions of quotas, the snapshots and their conflicts; no Spark."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.domain.alterations import Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_drift import drifts
from app.pipeline.advice.drift import Sources, states_of
from app.pipeline.quota_history import AuditEntry, QuotaHistory, Snapshot

P = "producer_byte_rate"
ALICE, BOB = (ClientQuotaEntity.of({"user": name}) for name in ("alice", "bob"))
BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
Live = Mapping[ClientQuotaEntity, float]


def at(hour: float) -> datetime:
    return BEGIN + timedelta(hours=hour)


def altered(
    hour: float,
    entity: ClientQuotaEntity,
    before: float | None,
    after: float | None,
    outcome: Outcome = Outcome.APPLIED,
) -> AuditEntry:
    """An alteration by the service; one that failed has what was asked for as ``after``."""
    values = [{} if value is None else {P: value} for value in (before, after)]
    op = Op(P, None, True) if after is None else Op(P, after)  # type: ignore[arg-type]
    ended = values[1] if outcome is Outcome.APPLIED else values[0]
    return AuditEntry(uuid4(), "c1", at(hour), entity, (op,), values[0], ended, outcome)


def folded(log: Sequence[AuditEntry], *snapshots: tuple[float, Live]) -> Sources:
    """Return what ``history`` and ``snapshot`` have written, ``history`` last."""
    entities = {entity for _, live in snapshots for entity in live}
    seen = [
        Snapshot("c1", entity, at(hour), {P: live[entity]} if entity in live else {})
        for hour, live in snapshots
        for entity in sorted(entities, key=ClientQuotaEntity.sort_key)
    ]
    history = QuotaHistory(log, seen)
    _, live = snapshots[-1]
    current = [{**_columns(entity), "value": value} for entity, value in live.items()]
    return Sources(
        list(history.rows()),
        current,
        [at(hour) for hour, _ in snapshots],
        list(history.failed()),
        list(history.conflicts()),
    )


def _columns(entity: ClientQuotaEntity) -> dict[str, Any]:
    user = entity.as_dict()["user"]
    return {"user": user, "user_default": False, "client_id": "", "client_default": False, "key": P}


def found(source: Sources) -> list[tuple[str, str | None, float | None, float | None]]:
    return [
        (each.kind.value, each.quota.entity.as_dict()["user"], each.logged, each.live)
        for each in drifts(states_of(source, None))
    ]


def test_what_the_service_did_is_no_drift():
    log = [altered(1, ALICE, None, 5.0), altered(3, ALICE, 5.0, 7.0), altered(5, BOB, 1.0, None)]
    assert found(folded(log, (0, {BOB: 1.0}), (2, {ALICE: 5.0, BOB: 1.0}), (6, {ALICE: 7.0}))) == []


@pytest.mark.parametrize(
    ("live", "drift"),
    [
        ({ALICE: 9.0}, ("out_of_band", "alice", 5.0, 9.0)),
        ({}, ("out_of_band", "alice", 5.0, None)),
        ({ALICE: 5.0, BOB: 3.0}, ("out_of_band", "bob", None, 3.0)),
    ],
)
def test_what_came_from_elsewhere_stays_a_drift_until_the_log_has_it(live: Live, drift: Any):
    log = [altered(1, ALICE, None, 5.0)]
    snapshots = [(2.0, {ALICE: 5.0}), (4.0, live), (6.0, live)]
    assert found(folded(log, *snapshots)) == [drift]
    entity = BOB if BOB in live else ALICE
    later = altered(7, entity, live.get(entity), 8.0)
    after = {**live, entity: 8.0}
    assert found(folded([*log, later], *snapshots, (9.0, after))) == []


def test_a_change_that_history_has_not_read_yet_is_not_judged():
    """The snapshot shows what the service did after `history` ran."""
    before = folded([altered(1, ALICE, None, 5.0)], (2, {ALICE: 5.0}))
    ended = [{**row, "valid_to": at(4)} for row in before.versions]
    current = {**_columns(ALICE), "value": 9.0}
    begun = {**current, "valid_from": at(4), "valid_to": None, "origin": "snapshot"}
    stale = Sources([*ended, begun], [current], [at(2), at(4)], [], before.conflicts)
    assert found(stale) == []


def test_what_only_snapshots_have_is_not_judged_by_a_log():
    rows = [
        {**_columns(BOB), "value": 3.0, "valid_from": at(4), "valid_to": None, "origin": "snapshot"}
    ]
    assert found(Sources(rows, [{**_columns(BOB), "value": 3.0}], [at(2), at(4)], [], [])) == []


def test_what_failed_by_the_log_and_holds_is_named():
    log = [altered(1, ALICE, None, 5.0), altered(3, ALICE, 5.0, 9.0, Outcome.REFUSED)]
    source = folded(log, (2, {ALICE: 5.0}), (4, {ALICE: 9.0}))
    assert found(source) == [("failed_but_applied", "alice", 5.0, 9.0)]
    assert found(folded(log, (2, {ALICE: 5.0}), (4, {ALICE: 5.0}))) == []


def test_a_snapshot_right_after_an_alteration_may_show_what_held_before():
    log = [altered(1, ALICE, None, 5.0), altered(4, ALICE, 5.0, 7.0)]
    assert found(folded(log, (2, {ALICE: 5.0}), (4 + 10 / 3600, {ALICE: 5.0}))) == []
