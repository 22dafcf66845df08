"""The model by columns: the same numbers as the rule of the domain, bit for bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.pipeline.usage.measures import begins_of
from app.pipeline.whatif import model
from tests.testkit.naive_throttling import Carried, Rates, Throttle, replay

RATE = st.floats(0, 1e10) | st.floats(0, 100)
MINUTES = st.lists(st.tuples(st.integers(1, 300), RATE, RATE), min_size=1, max_size=8)
SERIES = st.tuples(
    MINUTES,
    st.none() | st.floats(0.01, 1e10) | st.floats(1, 100),
    st.booleans(),
    st.floats(0, 1e6),
)


@given(st.lists(SERIES, min_size=1, max_size=6))
def test_columns_have_the_numbers_of_the_rule(
    drawn: list[tuple[list[tuple[int, float, float]], float | None, bool, float]],
):
    rows, expected = [], []
    for number, (steps, limit, tokens, waiting) in enumerate(drawn):
        at, minutes = 0, []
        for gap, average, maximum in steps:
            at += gap
            minutes.append(Rates(at, average, maximum))
        rows += [(number, *each) for each in minutes]
        expected += replay(minutes, Throttle(limit, tokens), Carried(waiting, 0))[0]
    names, minute, average, maximum = (np.array(column) for column in zip(*rows, strict=True))
    found = model.replay(
        model.Minutes(begins_of(names), minute, average, maximum),
        limits=np.array([np.nan if item[1] is None else item[1] for item in drawn]),
        has_tokens=np.array([item[2] for item in drawn]),
        waiting=np.array([item[3] for item in drawn]),
        since=np.zeros(len(drawn), np.int64),
    )
    assert found.waiting.tolist() == [minute.waiting for _, minute in expected]
    assert found.highest.tolist() == [minute.highest for _, minute in expected]
    for figure, column in enumerate(found.throttled):
        assert column.tolist() == [micros(minute.throttled[figure]) for _, minute in expected]
    assert found.idle.tolist() == [micros(idle.throttled.mid) for idle, _ in expected]
    assert found.refused.tolist() == [micros(minute.refused) for _, minute in expected]


def micros(value: float) -> int:
    return round(value * model.MICRO)


def test_a_period_begins_with_nothing_that_waits():
    minutes = model.Minutes(*(np.array(column) for column in ([0], [5], [20.0], [20.0])))
    found = model.replay(minutes, np.array([10.0]), np.array([False]))
    assert (found.waiting.tolist(), found.idle.tolist()) == ([600.0], [0])
