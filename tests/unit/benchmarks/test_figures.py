"""The figures of a run: what is computed from them, and how they are read and rendered."""

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.loading import read_wrk
from benchmarks.measures import Measure, percentile
from benchmarks.report import page
from benchmarks.rounds import Arm, interleaved
from benchmarks.tables import Goal, Section, Table, latency_cells, show

WRK = """Running 1s test @ http://127.0.0.1:8080/noop
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   682.50us  354.57us   5.03ms   88.18%
    Req/Sec    12.04k     0.89k   13.13k    81.82%
  Latency Distribution
     50%  601.00us
     75%  779.00us
     90%    1.05ms
     99%    2.09ms
  13171 requests in 1.10s, 1.96MB read
Requests/sec:  11974.31
Transfer/sec:      1.78MB
"""


class Recorder(Arm):
    def __init__(self, name: str, calls: list[str], *, every: int = 1) -> None:
        super().__init__(name, every=every)
        self._calls = calls

    async def call(self) -> None:
        self._calls.append(self.name)


def test_a_percentile_is_the_nearest_rank():
    figures = [float(number) for number in range(1, 201)]
    assert percentile(figures, 0.99) == 198
    assert percentile(figures[:100], 0.99) == 99
    assert percentile(figures[:20], 0.99) == 20
    assert percentile([7.0], 0.99) == 7


def test_a_ratio_compares_figures_of_the_same_round():
    ours, theirs = Measure([2.0, 20.0, 200.0]), Measure([1.0, 10.0, 100.0])
    assert ours.ratio_to(theirs) == 2
    assert Measure([3.0, None, 300.0]).ratio_to(theirs) == 3


def test_a_round_that_was_sat_out_does_not_count():
    measure = Measure([5.0, None, 1.0])
    assert (measure.n, measure.minimum, measure.median, measure.maximum) == (2, 1, 3, 5)
    assert measure.times(10).by_round == [50, None, 10]


async def test_arms_take_turns_and_each_round_begins_with_another_arm():
    calls: list[str] = []
    arms = [Recorder("a", calls), Recorder("b", calls), Recorder("c", calls, every=2)]
    measures = await interleaved(arms, rounds=3, warm_up=0)
    assert "".join(calls) == "abc" + "ba" + "cab"
    assert [measures[arm.name].n for arm in arms] == [3, 3, 2]


async def test_warming_up_leaves_no_figures():
    calls: list[str] = []
    measures = await interleaved([Recorder("a", calls)], rounds=2, warm_up=3)
    assert len(calls) == 5
    assert measures["a"].n == 2


def test_what_wrk_prints_is_read():
    assert read_wrk(WRK) == (11974.31, 0.601, 2.09)


@pytest.mark.parametrize(
    "text",
    [
        "unable to connect to 127.0.0.1:8080 Connection refused",
        WRK + "  Non-2xx or 3xx responses: 12\n",
        WRK + "  Socket errors: connect 0, read 1, write 0, timeout 0\n",
    ],
)
def test_a_load_with_failures_is_no_figure(text: str):
    with pytest.raises(BenchmarkError):
        read_wrk(text)


def test_figures_have_three_digits():
    assert [show(item) for item in (0.127, 9.994, 12.34, 123.4, 2_825_421.0)] == [
        "0.13",
        "9.99",
        "12.3",
        "123",
        "2,825,421",
    ]


def test_the_page_says_of_each_goal_whether_it_is_met():
    goals = [
        Goal("a / b", 2.0, 1.9),
        Goal("c / d", 2.0, 2.1),
        Goal("e / f", 0.5, 0.6, at_most=False),
        Goal("g / h", 0.5, 0.4, at_most=False),
    ]
    rows = [latency_cells("a", Measure([1.0, 2.0]))]
    table = Table("Something", "A note.", ("arm", "n", "min ms", "p50 ms", "p99 ms"), rows)
    text = page([("Machine", "small")], [Section(table, goals)])
    assert "| a / b | at most 2 | 1.90 | met |" in text
    assert "| c / d | at most 2 | 2.10 | **missed** |" in text
    assert "| e / f | at least 0.5 | 0.60 | met |" in text
    assert "| g / h | at least 0.5 | 0.40 | **missed** |" in text
    assert "| **Machine** | small |" in text
    assert "| a | 2 | 1.00 | 1.50 | 2.00 |" in text
