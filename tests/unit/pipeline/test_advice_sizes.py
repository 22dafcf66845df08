"""What a stored value should be: the rules over what buckets used, as columns judge it."""

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis.strategies import (
    DrawFn,
    booleans,
    builds,
    composite,
    floats,
    integers,
    just,
    lists,
    none,
    one_of,
    sampled_from,
)

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey
from app.domain.right_sizes import Action, SizingRules, round_up
from app.pipeline.commands.rightsize import summary_of
from tests.testkit.advised import Advised, advised_size, advised_sizes
from tests.testkit.advised_bodies import read_body
from tests.testkit.naive_sizes import BucketUse, right_sizes

P = QuotaKey.PRODUCER_BYTE_RATE.value
ALICE = ClientQuotaEntity.of({"user": "alice"})
KEYS = [key.value for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE]


def use(**columns: Any) -> BucketUse:
    """A week of alice, who has 1,000 and needs 500."""
    row: dict[str, Any] = {
        "bucket_id": 1,
        "key": P,
        "user": "alice",
        "client_id": "",
        "level": 3,
        "entity": ALICE,
        "limit": 1000.0,
        "broker_id": 1,
        "p95": 500.0,
        "rate": 500.0,
        "peak": 500.0,
        "median": 500.0,
        "cluster_total": 500.0,
        "brokers": 1,
        "days": 7,
        "coverage": 1.0,
        "minutes": 10_000,
        "throttled_minutes": 0,
    }
    return BucketUse(**{**row, **columns})


def of_default(bucket_id: int, user: str, **columns: Any) -> BucketUse:
    """A user who has what the default user has."""
    entity = ClientQuotaEntity.of({"user": None})
    return use(bucket_id=bucket_id, user=user, level=6, entity=entity, **columns)


def advice(*uses: BucketUse, **rules: Any) -> list[Advised]:
    return advised_sizes(uses, SizingRules(**rules))


@composite
def uses(draw: DrawFn) -> BucketUse:
    level = draw(integers(1, 8))
    rates = sorted(draw(lists(floats(0, 1e12), min_size=4, max_size=4)))
    user, client_id = draw(sampled_from(["alice", "bob"])), draw(sampled_from(["etl", "web"]))
    minutes = draw(integers(1, 100_000))
    return use(
        bucket_id=draw(integers(0, 50)),
        key=draw(sampled_from(KEYS)),
        user=user,
        client_id=client_id,
        level=level,
        entity=entity_at(level, user, client_id),
        limit=draw(one_of(floats(0.01, 1e12), sampled_from([1.0, 1000.0, 2.0**63, math.nan]))),
        median=rates[0],
        p95=rates[1],
        rate=rates[2],
        peak=rates[3],
        cluster_total=rates[2] + rates[0],
        brokers=draw(integers(1, 12)),
        days=draw(integers(1, 30)),
        coverage=draw(floats(0, 1)),
        minutes=minutes,
        throttled_minutes=draw(one_of(just(0), integers(0, minutes))),
    )


RULES = builds(
    SizingRules,
    percentile=integers(50, 100),
    margin=floats(0, 2),
    floor=floats(0, 1e6),
    step_max=floats(1, 10),
    tolerate=one_of(none(), integers(0, 1000)),
    skew_aware=booleans(),
)


_CAREFUL = SizingRules(percentile=50, margin=0.0, step_max=1.0)


@given(uses(), RULES)
@example(use(key="request_percentage", limit=1e9 + 1, throttled_minutes=10_000), _CAREFUL)
@example(use(key="request_percentage", limit=1e9 + 1, p95=0.0, rate=0.0), _CAREFUL)
@example(use(limit=1001.0, p95=0.0, rate=0.0), _CAREFUL)
@example(use(key="request_percentage", rate=1e-311), _CAREFUL)
def test_a_value_moves_towards_what_is_needed_by_a_step_at_most(
    found: BucketUse, rules: SizingRules
):
    result = advised_size(found, rules)
    if result.value is None:
        assert result.action is not Action.RAISE or result.target <= found.limit
        return
    rule = QUOTA_KEY_RULES[found.key]
    assert rule.allows(result.value)
    # Rounding up to three digits, and to what a key may have at least.
    most = max(round_up(found.limit * rules.step_max), rule.minimum) + rule.integral
    if result.action is Action.RAISE:
        assert found.limit < result.value <= most
    else:
        assert result.action is Action.LOWER
        assert result.target <= result.value < found.limit
        assert result.value >= found.limit / rules.step_max
    assert result.factor is not None
    assert result.factor > 1


@given(uses(), RULES)
def test_little_data_is_never_enough_for_a_change(found: BucketUse, rules: SizingRules):
    for little in (replace(found, days=6), replace(found, coverage=0.89)):
        assert advised_size(little, rules).value is None


@given(uses(), RULES)
def test_advice_that_is_followed_does_not_turn_back(found: BucketUse, rules: SizingRules):
    """So the same history never raises what it lowered, or lowers what it raised."""
    first = advised_size(found, rules)
    if first.value is not None:
        second = advised_size(replace(found, limit=first.value), rules)
        assert {first.action, second.action} != {Action.RAISE, Action.LOWER}


@given(uses(), RULES, floats(1.0, 100.0))
def test_who_needs_more_never_gets_less(found: BucketUse, rules: SizingRules, times: float):
    more = replace(
        found,
        **{
            name: getattr(found, name) * times
            for name in ("p95", "rate", "median", "cluster_total")
        },
    )
    assert advised_size(more, rules).target >= advised_size(found, rules).target


@given(lists(uses(), max_size=12, unique_by=lambda each: each.bucket_id), RULES)
def test_each_body_is_read_by_the_service(found: list[BucketUse], rules: SizingRules):
    advised = advised_sizes(found, rules)
    assert len({each.use.bucket_id for each in advised}) == len(advised)
    for each in advised:
        assert (each.body is None) == (each.value is None)
        if each.body is not None:
            (change,) = read_body(each.body)
            assert change.entity == each.entity


@given(lists(uses(), max_size=12, unique_by=lambda each: each.bucket_id), RULES)
def test_the_order_of_buckets_changes_nothing(found: list[BucketUse], rules: SizingRules):
    assert list(map(repr, advised_sizes(found, rules))) == list(
        map(repr, advised_sizes(found[::-1], rules))
    )


@given(
    lists(uses(), min_size=1, max_size=12, unique_by=lambda each: (each.key, each.bucket_id)), RULES
)
def test_columns_are_judged_as_buckets_are(found: list[BucketUse], rules: SizingRules):
    """Bit for bit: a number's text is as exact as its bits, and NaN is no equal of itself."""
    rows = map(Advised.of, right_sizes(found, rules))
    expected = sorted(rows, key=lambda each: (each.use.key, each.use.bucket_id))
    assert list(map(repr, advised_sizes(found, rules))) == list(map(repr, expected))


@given(floats(1e-6, 1e15))
def test_a_number_is_rounded_up_to_three_digits(value: float):
    rounded = round_up(value)
    assert value * (1 - 1e-9) <= rounded <= value * 1.0101
    assert round_up(rounded) == rounded
    assert len(f"{rounded:.12e}".partition("e")[0].replace(".", "").rstrip("0")) <= 3


@pytest.mark.parametrize(
    ("columns", "action", "value"),
    [
        # 575 is needed; over 2 x 575 x 8/7 = 1,314 a limit is lowered, under 575 it is raised.
        ({"limit": 1314.0}, Action.KEEP, None),
        ({"limit": 1315.0}, Action.LOWER, 658.0),
        ({"limit": 575.0}, Action.KEEP, None),
        ({"limit": 574.0}, Action.RAISE, 575.0),
        ({"limit": 200.0}, Action.RAISE, 400.0),
        # The longer the history, the earlier it is lowered: 2 x 575 x 31/30 = 1,188.
        ({"limit": 1189.0, "days": 30}, Action.LOWER, 595.0),
        # Whoever was throttled wanted more than was seen, nobody knows how much.
        ({"throttled_minutes": 101}, Action.RAISE, 2000.0),
        ({"throttled_minutes": 100}, Action.KEEP, None),
        ({"limit": 9000.0, "throttled_minutes": 1}, Action.KEEP, None),
        ({"limit": 2.0**63}, Action.KEEP, None),
        ({"limit": math.nan}, Action.KEEP, None),
        ({"days": 6, "limit": 1.0}, Action.INSUFFICIENT, None),
        ({"coverage": 0.899, "limit": 1.0}, Action.INSUFFICIENT, None),
    ],
)
def test_a_limit_is_judged_by_its_use(columns: dict[str, Any], action: Action, value: float | None):
    result = advised_size(use(**columns), SizingRules())
    assert (result.action, result.value) == (action, value)


def test_the_options_change_the_rules():
    assert advised_size(use(), SizingRules(margin=0.5)).target == 750
    assert advised_size(use(), SizingRules(floor=10_000)).target == 10_000
    # A leader that moves brings the median broker's share.
    spread = use(median=300.0, cluster_total=1100.0)
    assert advised_size(spread, SizingRules(skew_aware=True)).target == 920
    assert advised_size(use(limit=10_000.0), SizingRules(step_max=100)).value == 575
    assert advised_size(use(throttled_minutes=101), SizingRules(tolerate=101)).action is Action.KEEP


def test_a_bucket_that_needs_more_than_a_default_gets_a_value_of_its_own():
    others = [of_default(number, f"user {number}", limit=2000.0) for number in range(2, 5)]
    lowered, own = sorted(
        advice(of_default(1, "bob", limit=2000.0, p95=3000.0, rate=3000.0), *others),
        key=lambda each: each.action,
    )
    assert (own.action, own.entity, own.value) == (
        Action.RAISE,
        ClientQuotaEntity.of({"user": "bob"}),
        3450,
    )
    assert (lowered.action, lowered.value, lowered.buckets) == (Action.LOWER, 1000, 4)
    assert lowered.entity == ClientQuotaEntity.of({"user": None})
    assert lowered.saving == 3 * 1000, "one broker of each of the three that are judged with it"


def test_a_default_that_most_buckets_exceed_is_raised_itself():
    (raised,) = advice(*(of_default(number, f"user {number}", limit=400.0) for number in range(3)))
    assert (raised.action, raised.entity.as_dict(), raised.value) == (
        Action.RAISE,
        {"user": None},
        575,
    )


def test_a_default_holds_for_who_was_there_too_short():
    new = of_default(1, "new", days=1, p95=5000.0, rate=5000.0, limit=9000.0)
    (default,) = advice(new, of_default(2, "old", limit=9000.0))
    assert (default.action, default.use.user, default.target) == (Action.KEEP, "new", 5750)


def test_no_value_of_a_user_takes_the_defaults_of_his_client_ids_away():
    pair = use(
        bucket_id=9,
        user="bob",
        client_id="etl",
        level=4,
        entity=ClientQuotaEntity.of({"user": None, "client-id": "etl"}),
    )
    bob = of_default(1, "bob", p95=3000.0, rate=3000.0)
    others = [of_default(number, f"user {number}") for number in range(2, 5)]
    (raised,) = [each for each in advice(bob, pair, *others) if each.action is Action.RAISE]
    assert raised.body is None
    assert "defaults of its client-ids" in raised.reason


def test_the_limit_of_the_controller_is_one_for_all_brokers():
    found = use(key=QuotaKey.CONTROLLER_MUTATION_RATE.value, limit=10_000.0, brokers=3)
    assert advised_size(found, SizingRules()).saving == 5000
    assert advised_size(use(limit=10_000.0, brokers=3), SizingRules()).saving == 15_000


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        ([], "Nothing is to be raised or lowered."),
        (["keep"], "Nothing is to be raised or lowered."),
        (
            ["keep", "insufficient"],
            "Nothing is to be raised or lowered yet: the data of 1 of 2 values do not suffice.",
        ),
    ],
)
def test_values_that_are_not_judged_are_not_called_right(actions: list[str], sentence: str):
    texts = ("key", "body", "reason")
    columns: dict[str, Any] = {name: pa.nulls(len(actions), pa.string()) for name in texts}
    numbers = ("value", "factor", "bucket_id", "limit")
    columns |= {name: pa.nulls(len(actions), pa.float64()) for name in numbers}
    advice = pa.table({"action": pa.array(actions, pa.string()), **columns})
    assert list(summary_of(advice)) == ["", sentence]
