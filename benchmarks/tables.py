"""What a run has found, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.measures import Measure


@dataclass(frozen=True)
class Table:
    """A title, what the reader must know, columns, and rows of text."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Goal:
    """A ratio that we steer by, and what was found; ``at_most`` tells which side is good."""

    text: str
    limit: float
    found: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether it is met."""
        return self.found <= self.limit if self.at_most else self.found >= self.limit


@dataclass(frozen=True)
class Section:
    """One section of a run.

    Attributes:
        measures: Milliseconds by arm, to be drawn.
    """

    table: Table
    goals: Sequence[Goal] = ()
    measures: Mapping[str, Measure] = field(default_factory=dict)


LATENCY_COLUMNS = ("arm", "n", "min ms", "p50 ms", "p99 ms")


def latency_cells(name: str, measure: Measure) -> list[str]:
    """Return the cells under ``LATENCY_COLUMNS``."""
    figures = (measure.minimum, measure.median, measure.p99)
    return [name, str(measure.n), *(show(figure) for figure in figures)]


def latency_rows(measures: Mapping[str, Measure], base: str) -> list[list[str]]:
    """Return a row for each arm: its ``latency_cells``, and the ratio to the arm ``base``."""
    return [
        [*latency_cells(name, measure), show(measure.ratio_to(measures[base]))]
        for name, measure in measures.items()
    ]


def show(figure: float) -> str:
    """Return three significant digits, or the whole number where it has more."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.2f}" if abs(figure) < 10 else f"{figure:.1f}"
