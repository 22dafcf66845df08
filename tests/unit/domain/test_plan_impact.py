"""The impact of planned changes, against resolution itself."""

from decimal import Decimal

import pytest

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.plan_impact import Impacts, KeyImpact, summary
from app.domain.plans import DesiredQuota, Holding, PlanRequest, make_plan

P, I = "producer_byte_rate", "connection_creation_rate"  # noqa: E741
TEAM = "team"


def entity(**names: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({kind.replace("_", "-"): name for kind, name in names.items()})


STORED: Quotas = {
    entity(user="alice"): {P: 100.0},
    entity(user="alice", client_id="etl"): {P: 10.0},
    entity(user="alice", client_id="app"): {P: 20.0},
    entity(user="bob", client_id=None): {P: 30.0},
    entity(user=None): {P: 5.0},
    entity(client_id="etl"): {P: 7.0},
    entity(ip="10.0.0.1"): {I: 3.0},
    entity(ip=None): {I: 9.0},
}


def impact(of: ClientQuotaEntity, key: str, value: int | None) -> KeyImpact:
    """Return the impact of setting a key, or of removing it."""
    quotas = () if value is None else (DesiredQuota(of, {key: Decimal(value)}),)
    held = {of: {key: Holding(TEAM, STORED[of][key])}} if value is None else {}
    plan = make_plan(PlanRequest(quotas, TEAM, prune=value is None), STORED, held)
    (change,) = plan.changes
    return Impacts(STORED, plan.changes).of(change)[key]


def test_it_says_what_applies_before_and_after(subtests: pytest.Subtests):
    for of, key, value, expected in [
        (entity(user="alice"), P, 200, ("raised", 2.0, (100.0, 200.0), 2)),
        (entity(user="alice"), P, 25, ("lowered", 0.25, (100.0, 25.0), 2)),
        (entity(user="alice"), P, None, ("removed", None, (100.0, 5.0), 2)),
        (entity(user="carol"), P, 8, ("set", None, (5.0, 8.0), 0)),
        (entity(user="alice", client_id=None), P, 8, ("set", None, (100.0, 8.0), 2)),
        (entity(user="alice", client_id="etl"), P, None, ("removed", None, (10.0, 100.0), 0)),
        (entity(user=None), P, None, ("removed", None, (5.0, None), 4)),
        (entity(client_id="etl"), P, 70, ("raised", 10.0, (5.0, 5.0), 4)),
        (entity(client_id=None), P, 70, ("set", None, (5.0, 5.0), 6)),
        (entity(user=None, client_id="etl"), P, 70, ("set", None, (5.0, 70.0), 3)),
        (entity(ip="10.0.0.1"), I, None, ("removed", None, (3.0, 9.0), 0)),
        (entity(ip="10.0.0.2"), I, 4, ("set", None, (9.0, 4.0), 0)),
        (entity(ip=None), I, 18, ("raised", 2.0, (9.0, 18.0), 1)),
        (entity(ip=None), I, None, ("removed", None, (9.0, None), 1)),
    ]:
        with subtests.test(key=key, value=value):
            key_impact = impact(of, key, value)
            effective = (key_impact.effective_before, key_impact.effective_after)
            assert (
                key_impact.change,
                key_impact.factor,
                effective,
                key_impact.more_specific,
            ) == expected


def test_a_sentence_says_when_a_change_has_no_effect():
    of = entity(client_id="etl")
    assert summary(of, {P: impact(of, P, 70)}) == (
        "producer_byte_rate raised by a factor of 10, but 5 of {user=<default>} goes before it "
        "(4 more specific entities with a value)."
    )
    of = entity(user="alice")
    assert summary(of, {P: impact(of, P, None)}) == (
        "producer_byte_rate removed, then 5 of {user=<default>} applies "
        "(2 more specific entities with a value)."
    )
    of = entity(user="carol")
    assert summary(of, {P: impact(of, P, 8_000_000)}) == (
        "producer_byte_rate set, where 5 applies now."
    )
    of = entity(ip=None)
    assert summary(of, {I: impact(of, I, None)}) == (
        "connection_creation_rate removed, then unlimited (1 more specific entity with a value)."
    )
