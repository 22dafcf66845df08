"""The model of throttling: against a broker's own rule, by hand, and by what must not matter."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.testkit.naive_throttling import Carried, Rates, Stretch, Throttle, replay
from tests.testkit.throttled_broker import KINDS, produce

LIMIT = 1_000.0
RUNS, MINUTES = 10, 40
SEEDS = (1, 2, 3)
SMALL = pytest.param((3,), id="one seed")
ALL = pytest.param(SEEDS, id="all seeds", marks=pytest.mark.long)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [SMALL, ALL])
def test_what_the_model_says_is_what_a_broker_does(kind: str, seeds: tuple[int, ...]):
    false = missed = 0
    for seed in seeds:
        modelled = measured = 0.0
        for number in range(RUNS):
            wanted = KINDS[kind](random.Random(f"{seed} {kind} {number}"), LIMIT)
            history = produce(wanted, MINUTES).minutes()
            truth = produce(wanted, MINUTES, LIMIT).throttled_s
            minutes = [Rates(at, *rates) for at, rates in enumerate(history)]
            stretches = [each for _, each in replay(minutes, Throttle(LIMIT))[0]]
            model = [each.throttled.mid for each in stretches]
            false += sum(mine > 0 and not theirs for mine, theirs in zip(model, truth, strict=True))
            missed += sum(
                theirs > 0 and not mine for mine, theirs in zip(model, truth, strict=True)
            )
            modelled += sum(model)
            measured += sum(truth)
        assert 0.90 <= modelled / measured <= 1.15
    assert false <= 2 * len(seeds)
    assert missed <= 6 * len(seeds)


def of(limit: float | None, *minutes: tuple[float, float], tokens: bool = False) -> list[Stretch]:
    """Run minutes that follow each other."""
    rates = [Rates(at, *each) for at, each in enumerate(minutes)]
    return [stretch for _, stretch in replay(rates, Throttle(limit, tokens))[0]]


def test_a_burst_waits_and_drains_within_its_minute():
    # 20 s at three times the limit: 40 s of the limit wait, and drain in the other 40 s.
    (minute,) = of(10.0, (10.0, 30.0))
    assert minute.highest == 400.0
    assert minute.waiting == 0.0
    assert minute.throttled == (20.0 - 5.0 + 40.0, 20.0 - 2.5 + 40.0, 60.0)


def test_what_waits_is_carried_into_the_next_minute():
    first, second = of(10.0, (15.0, 15.0), (5.0, 5.0))
    assert (first.waiting, second.waiting) == (300.0, 0.0)
    # However long a burst has, it is throttled after 20 s: its rate is over the limit.
    assert first.throttled == (40.0, 50.0, 60.0)
    assert second.throttled == (60.0, 60.0, 60.0)


def test_minutes_without_traffic_let_drain_what_waits():
    minutes = [Rates(0, 20.0, 20.0), Rates(4, 0.0, 0.0)]
    (_, first), (idle, last) = replay(minutes, Throttle(10.0))[0]
    assert first.waiting == 600.0
    assert idle.throttled.mid == 60.0
    assert (idle.waiting, last.waiting, last.throttled.mid) == (0.0, 0.0, 0.0)


def test_without_a_limit_nothing_waits():
    assert of(None, (1e9, 1e9)) == [Stretch(0.0, 0.0, (0.0, 0.0, 0.0))]


def test_a_maximum_below_the_average_counts_as_the_average():
    assert of(10.0, (15.0, 3.0)) == of(10.0, (15.0, 15.0))


def test_tokens_allow_eleven_seconds_of_the_limit_and_then_requests_are_refused():
    # 60 s at twice the limit of 10: 110 tokens last for 11 s, and 490 requests are refused.
    first, second = of(10.0, (20.0, 20.0), (5.0, 5.0), tokens=True)
    assert (first.waiting, first.refused) == (110.0, 490.0)
    assert first.throttled == (49.0, 49.0, 49.0)
    assert (second.waiting, second.refused, second.throttled.mid) == (0.0, 0.0, 0.0)


RATE = st.floats(0, 1e10) | st.floats(0, 100)
MINUTE = st.tuples(st.integers(1, 3), RATE, st.floats(1, 50))


@st.composite
def histories(draw: st.DrawFn) -> list[Rates]:
    """Make up minutes, with gaps."""
    at, minutes = 0, []
    for gap, average, factor in draw(st.lists(MINUTE, min_size=1, max_size=12)):
        at += gap
        minutes.append(Rates(at, average, average * factor))
    return minutes


LIMITS = st.floats(0.01, 1e10) | st.floats(1, 100)


@given(histories(), LIMITS, st.booleans(), st.integers(0, 12))
def test_two_periods_are_the_same_as_a_single_period(
    minutes: list[Rates], limit: float, tokens: bool, split: int
):
    throttle = Throttle(limit, tokens)
    whole, end = replay(minutes, throttle)
    first, carried = replay(minutes[:split], throttle)
    second, last = replay(minutes[split:], throttle, carried)
    assert (first + second, last) == (whole, end)


@given(histories(), LIMITS, st.floats(1, 10), st.booleans())
def test_a_higher_limit_throttles_no_minute_longer(
    minutes: list[Rates], limit: float, factor: float, tokens: bool
):
    throttle = Throttle(limit, tokens)
    low, high = (
        replay(minutes, each)[0] for each in (throttle, replace(throttle, limit=limit * factor))
    )
    for (idle, minute), (less_idle, less) in zip(low, high, strict=True):
        for mine, theirs in zip(minute.throttled, less.throttled, strict=True):
            assert theirs <= mine + 1e-6
        assert less_idle.throttled.mid <= idle.throttled.mid + 1e-6


@given(histories(), LIMITS, st.integers(-20, 20), st.booleans())
def test_rates_and_limit_in_another_unit_throttle_for_as_long(
    minutes: list[Rates], limit: float, power: int, tokens: bool
):
    unit = 2.0**power
    scaled = [Rates(at, average * unit, maximum * unit) for at, average, maximum in minutes]
    mine, theirs = (
        replay(rates, Throttle(each, tokens))[0]
        for rates, each in ((minutes, limit), (scaled, limit * unit))
    )
    for (idle, minute), (scaled_idle, scaled_minute) in zip(mine, theirs, strict=True):
        assert scaled_minute.throttled == minute.throttled
        assert scaled_idle.throttled == idle.throttled
        assert scaled_minute.waiting == minute.waiting * unit


def test_the_carry_of_nothing_is_nothing():
    assert replay([], Throttle(1.0), Carried(3.0, 7)) == ([], Carried(3.0, 7))
