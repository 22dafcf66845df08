"""Where a document, the log and the live quotas differ."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis.strategies import dictionaries, none, one_of, sampled_from

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_drift import Drift, DriftKind, Failed, Quota, States, drifts
from tests.testkit.advised_bodies import read_body

P, C = "producer_byte_rate", "consumer_byte_rate"
ALICE, BOB = (Quota(ClientQuotaEntity.of({"user": name}), P) for name in ("alice", "bob"))
NUMBERS = sampled_from([1.0, 2.0, 3.0])
NAMES = sampled_from([ALICE, BOB, ALICE._replace(key=C)])

Values = Mapping[Quota, float | None]


def found(
    live: Mapping[Quota, float] | None,
    logged: Values | None = None,
    desired: Values | None = None,
    failed: Mapping[Quota, Failed] | None = None,
) -> list[Drift]:
    return list(drifts(States(desired, logged or {}, live, failed or {})))


def words(items: list[Drift]) -> list[tuple[str, str]]:
    return [(each.kind.value, str(each.quota.entity)) for each in items]


def test_the_document_is_compared_with_what_is_live():
    desired = {ALICE: 1.0, BOB: 2.0}
    carl = Quota(ClientQuotaEntity.of({"user": "carl"}), P)
    assert words(found({ALICE: 1.0, BOB: 3.0, carl: 4.0}, desired=desired)) == [
        ("value_differs", "{user=bob}"),
        ("unexpected", "{user=carl}"),
    ]
    assert words(found({BOB: 2.0}, desired=desired)) == [("missing", "{user=alice}")]
    assert words(found({ALICE: 1.0}, desired={ALICE: None})) == [("unexpected", "{user=alice}")]


def test_values_compare_as_a_broker_does():
    assert found({ALICE: math.nan}, desired={ALICE: math.nan}) == []
    assert words(found({ALICE: 1.0}, desired={ALICE: math.nextafter(1.0, 2.0)})) == [
        ("value_differs", "{user=alice}")
    ]


def test_what_the_log_does_not_explain_came_from_elsewhere():
    (bob,) = found({ALICE: 1.0, BOB: 3.0}, {ALICE: 1.0, BOB: 2.0})
    assert (bob.kind, bob.logged, bob.live) == (DriftKind.OUT_OF_BAND, 2.0, 3.0)
    assert found({BOB: 3.0}, {}) == [], "the log says nothing of it"
    assert words(found({BOB: 3.0}, {BOB: None})) == [("out_of_band", "{user=bob}")]
    assert words(found({}, {BOB: 3.0})) == [("out_of_band", "{user=bob}")]


def test_what_failed_by_the_log_and_holds_is_named_with_its_alteration():
    failed = {BOB: Failed(3.0, "a-1")}
    (bob,) = found({BOB: 3.0}, {BOB: 2.0}, failed=failed)
    assert (bob.kind, bob.alteration_id) == (DriftKind.FAILED_BUT_APPLIED, "a-1")
    (other,) = found({BOB: 4.0}, {BOB: 2.0}, failed=failed)
    assert (other.kind, other.alteration_id) == (DriftKind.OUT_OF_BAND, None)


def test_without_a_snapshot_the_log_counts_as_live():
    assert words(found(None, {ALICE: 1.0}, {ALICE: 2.0})) == [("value_differs", "{user=alice}")]
    assert found(None, {ALICE: 1.0}) == []


@given(
    dictionaries(NAMES, NUMBERS),
    dictionaries(NAMES, one_of(none(), NUMBERS)),
    one_of(none(), dictionaries(NAMES, NUMBERS)),
)
def test_a_body_restores_what_it_is_about(
    live: dict[Quota, float], logged: dict[Quota, float | None], desired: dict[Quota, float] | None
):
    assert found(live, live, live) == []
    for each in found(live, logged, desired):
        (change,) = read_body(each.body())
        (op,) = change.ops
        of_log = each.kind in {DriftKind.OUT_OF_BAND, DriftKind.FAILED_BUT_APPLIED}
        wanted = logged[each.quota] if of_log else (desired or {}).get(each.quota)
        assert (change.entity, change.expected) == (each.quota.entity, {each.quota.key: each.live})
        assert (op.value, op.remove) == (wanted, wanted is None)
