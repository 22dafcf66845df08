"""The impact of a change: by resolution itself, and for the buckets that it touches."""

import math
import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.plan_impact import (
    BIN_RATIO,
    MAX_BUCKETS,
    ZERO_BIN,
    BucketName,
    Impacts,
    KeyImpact,
    PublishedBucket,
    TouchedBucket,
    summary,
    touched_buckets,
)
from app.domain.plans import DesiredQuota, Holding, PlanRequest, make_plan
from app.domain.resolution_index import QuotaIndex

P, C, I = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"  # noqa: E741
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
        "producer_byte_rate raised × 10, but 5 B/s of {user=<default>} goes before it "
        "(4 more specific entities with a value)."
    )
    of = entity(user="alice")
    assert summary(of, {P: impact(of, P, None)}) == (
        "producer_byte_rate removed, then 5 B/s of {user=<default>} applies "
        "(2 more specific entities with a value)."
    )
    of = entity(user="carol")
    assert summary(of, {P: impact(of, P, 8_000_000)}) == (
        "producer_byte_rate set, where 5 B/s applies now."
    )
    of = entity(ip=None)
    assert summary(of, {I: impact(of, I, None)}) == (
        "connection_creation_rate removed, then unlimited (1 more specific entity with a value)."
    )


def bucket(user: str, client_id: str = "", peak: float = 50.0, key: str = P) -> PublishedBucket:
    name = BucketName(key, user, client_id)
    through = datetime(2026, 11, 21, tzinfo=UTC)
    return PublishedBucket(hash(name), name, peak, 14, through, censored=False)


def setting(of: ClientQuotaEntity, value: float | None, key: str = P) -> ClientQuotaAlteration:
    op = Op(key, remove=True) if value is None else Op(key, Decimal(value))
    return ClientQuotaAlteration(of, (op,))


def touched(
    stored: Quotas, published: list[PublishedBucket], *alterations: ClientQuotaAlteration
) -> list[TouchedBucket]:
    present = QuotaIndex.of(stored)
    return touched_buckets(published, alterations, present, present.with_alterations(alterations))


def rows(found: list[TouchedBucket]) -> list[tuple[str, str, float | None, float | None, bool]]:
    return sorted(
        (*each.bucket.name[1:], each.limit_now, each.limit_new, each.comparable)  # type: ignore[misc]
        for each in found
    )


ALICE, ETL, DEFAULT = entity(user="alice"), entity(client_id="etl"), entity(user=None)
ALICE_ETL = entity(user="alice", client_id="etl")
PUBLISHED = [bucket("alice"), bucket("bob"), bucket("alice", "etl"), bucket("", "etl")]


def test_a_bucket_is_touched_where_its_limit_or_its_callers_change(subtests: pytest.Subtests):
    for stored, of, value, found in [
        ({ALICE: 10.0}, ALICE, 20, [("alice", "", 10.0, 20.0, True)]),
        ({ALICE: 10.0}, ALICE, None, [("alice", "", 10.0, None, True)]),
        ({ALICE: 10.0, DEFAULT: 5.0}, ALICE, None, [("alice", "", 10.0, 5.0, True)]),
        ({ALICE: 10.0, DEFAULT: 5.0}, DEFAULT, 6, [("bob", "", 5.0, 6.0, True)]),
        ({ALICE: 10.0, DEFAULT: 5.0}, DEFAULT, 5, []),
        # What alice did while users had buckets: now everybody is in a bucket by client-id.
        ({}, ALICE, 10, [("alice", "", None, 10.0, True)]),
        ({ETL: 7.0}, ETL, 9, [("", "etl", 7.0, 9.0, True)]),
        # Users leave the bucket of the client-id for their own; theirs have a history, too.
        (
            {ETL: 7.0, entity(user="bob"): 1.0},
            DEFAULT,
            9,
            [("", "etl", 7.0, 9.0, False), ("alice", "", None, 9.0, True)],
        ),
        # Some of alice's traffic leaves her bucket; nobody knows how much.
        (
            {ALICE: 10.0},
            ALICE_ETL,
            4,
            [("alice", "", 10.0, 4.0, False), ("alice", "etl", 10.0, 4.0, True)],
        ),
        ({ALICE: 10.0, ALICE_ETL: 4.0}, ALICE_ETL, None, [("alice", "etl", 4.0, 10.0, False)]),
        ({ALICE: 10.0, ALICE_ETL: 4.0}, ALICE, 12, [("alice", "", 10.0, 12.0, True)]),
    ]:
        with subtests.test(stored=stored, of=of):
            quotas = {each: {P: limit} for each, limit in stored.items()}
            assert rows(touched(quotas, PUBLISHED, setting(of, value))) == found


def test_other_keys_and_addresses_touch_no_bucket_of_a_key():
    other = (setting(ALICE, 5, C), setting(entity(ip="10.0.0.1"), 5, I))
    assert touched({ALICE: {P: 10.0, C: 1.0}}, PUBLISHED, *other) == []
    both = [*PUBLISHED, bucket("alice", key=C)]
    (found,) = touched({ALICE: {P: 10.0, C: 1.0}}, both, *other)
    assert found.bucket.name == BucketName(C, "alice", "")


def test_those_furthest_above_the_new_limit_come_first_and_others_are_left_out():
    peaks = [float(n) for n in range(MAX_BUCKETS + 50)]
    published = [bucket(f"u{n}", peak=peak) for n, peak in enumerate(peaks)]
    quotas: Quotas = {DEFAULT: {P: 10.0}, entity(user="u149"): {P: 1_000.0}}
    found = touched(quotas, published, setting(DEFAULT, 20))
    assert [each.bucket.peak for each in found] == sorted(peaks[:-1])[::-1][:MAX_BUCKETS]


def count_over(rates: list[float], limit: float | None) -> int:
    """Count the rates above the bin of a limit, as the published histogram does."""
    of = TouchedBucket(bucket("alice", peak=max(rates)), None, limit, comparable=True)
    if of.highest_bin is None:
        return 0
    bins = [
        math.floor(math.log(rate) / math.log(BIN_RATIO)) if rate else ZERO_BIN for rate in rates
    ]
    return sum(each > of.highest_bin for each in bins)


def test_the_minutes_over_a_limit_are_those_of_a_brute_force_count_up_to_a_percent():
    drawing = random.Random(7)
    for _ in range(300):
        rates = [drawing.choice((0.0, drawing.lognormvariate(9, 3))) for _ in range(50)]
        for limit in (drawing.lognormvariate(9, 3), 1.0, drawing.choice(rates)):
            least, most = (
                sum(rate > bound for rate in rates)
                for bound in (limit * BIN_RATIO * (1 + 1e-9), limit)
            )
            assert least <= count_over(rates, limit) <= most


def test_a_limit_that_no_minute_exceeded_has_none_over_it(subtests: pytest.Subtests):
    for limit in [None, 2.0**63, math.inf, math.nan, 50.0]:
        with subtests.test(limit=limit):
            assert count_over([0.0, 50.0], limit) == 0
