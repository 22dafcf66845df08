"""Arms that act in turns, their figures, and the tables of them."""

import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


class BenchmarkError(Exception):
    """Something did not do what is measured: its figure would be worse than none."""


@dataclass(frozen=True)
class Measure:
    """One figure for each round, null where the arm sat the round out.

    All figures of a measure have one unit: milliseconds, or requests per second.
    """

    by_round: Sequence[float | None]

    @property
    def figures(self) -> list[float]:
        """The figures of the arm's rounds."""
        return [figure for figure in self.by_round if figure is not None]

    @property
    def n(self) -> int:
        """How many rounds that were."""
        return len(self.figures)

    @property
    def minimum(self) -> float:
        """The smallest figure."""
        return min(self.figures)

    @property
    def maximum(self) -> float:
        """The largest figure."""
        return max(self.figures)

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.figures)

    @property
    def p99(self) -> float:
        """The 99th percentile by nearest rank: up to n = 100 that is the maximum."""
        return percentile(sorted(self.figures), 0.99)

    def times(self, factor: float) -> "Measure":
        """Return the measure with every figure multiplied."""
        return Measure([None if item is None else item * factor for item in self.by_round])

    def ratio_to(self, other: "Measure") -> float:
        """Return the median of the ratios of each round in which both ran.

        What slows the machine down for a while slows both arms of a round, so their ratio stays.
        """
        return statistics.median(ours / theirs for ours, theirs in self._pairs(other))

    def excess_over(self, other: "Measure") -> float:
        """Return the median of the differences of each round in which both ran."""
        return statistics.median(ours - theirs for ours, theirs in self._pairs(other))

    def _pairs(self, other: "Measure") -> Iterator[tuple[float, float]]:
        for ours, theirs in zip(self.by_round, other.by_round, strict=True):
            if ours is not None and theirs is not None:
                yield ours, theirs


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile of ordered figures by nearest rank."""
    return ordered[math.ceil(share * len(ordered)) - 1]


@dataclass
class Timed:
    """How long a block took, in milliseconds, once it has ended."""

    ms: float = 0.0


@contextmanager
def timed() -> Iterator[Timed]:
    """Time a block; our own garbage is not collected meanwhile."""
    took = Timed()
    gc.disable()
    begun = time.perf_counter()
    try:
        yield took
    finally:
        took.ms = (time.perf_counter() - begun) * 1000
        gc.enable()


@dataclass(frozen=True)
class Arm:
    """One of the alternatives that are compared.

    Attributes:
        name: For the table.
        measure: Prepares a round, measures it, and leaves a quiet cluster; returns milliseconds.
        every: The arm runs in each such round: 2 is every second.
    """

    name: str
    measure: Callable[[], Awaitable[float]]
    every: int = 1


async def interleaved(arms: Sequence[Arm], *, rounds: int, warm_up: int) -> Mapping[str, Measure]:
    """Measure the arms in turns, each round beginning with another one.

    Args:
        arms: Each with a name of its own.
        rounds: How many.
        warm_up: Rounds before those, whose figures are thrown away.

    Returns:
        Milliseconds, by the arm's name.
    """
    figures: dict[str, list[float | None]] = {arm.name: [] for arm in arms}
    for number in range(-warm_up, rounds):
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            figure = await arm.measure() if number % arm.every == 0 else None
            if number >= 0:
                figures[arm.name].append(figure)
    return {name: Measure(by_round) for name, by_round in figures.items()}


@dataclass(frozen=True)
class Goal:
    """A ratio that we steer by, and what was found; ``at_most`` tells which side is good."""

    text: str
    limit: float
    found: float
    at_most: bool = True

    def row(self) -> list[str]:
        """Return its row in the table of goals."""
        met = self.found <= self.limit if self.at_most else self.found >= self.limit
        limit = f"at {'most' if self.at_most else 'least'} {self.limit:,g}"
        return [self.text, limit, show(self.found), "met" if met else "**missed**"]


@dataclass(frozen=True)
class Section:
    """One table of a run.

    Attributes:
        note: What the reader must know.
        rows: Of text.
        measures: Milliseconds by arm, to be drawn.
    """

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal] = ()
    measures: Mapping[str, Measure] = field(default_factory=dict)


LATENCY_COLUMNS = ("arm", "n", "min ms", "p50 ms", "p99 ms")


def latency_cells(name: str, measure: Measure) -> list[str]:
    """Return the cells under ``LATENCY_COLUMNS``."""
    figures = (measure.minimum, measure.median, measure.p99)
    return [name, str(measure.n), *(show(figure) for figure in figures)]


def latency_rows(measures: Mapping[str, Measure], *bases: str) -> list[list[str]]:
    """Return a row for each arm: its ``latency_cells``, and the ratio to each of the bases."""
    return [
        [
            *latency_cells(name, measure),
            *(show(measure.ratio_to(measures[base])) for base in bases),
        ]
        for name, measure in measures.items()
    ]


def show(figure: float) -> str:
    """Return three significant digits, or the whole number where it has more."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.2f}" if abs(figure) < 10 else f"{figure:.1f}"


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
