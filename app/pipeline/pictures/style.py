"""How all pictures look, and what several of them draw.

The colours are Okabe and Ito's: the colour-blind can distinguish them.
"""

import csv
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from app.domain.quantities import value_in_words
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey
from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.results import Scope
from app.pipeline.summary import Results, Row

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
BLACK: Final = "#222222"
GREY: Final = "#6B6B6B"
PALE: Final = "#E8E8E8"

DASHED: Final[Mapping[str, Any]] = {"linewidth": 1.3, "dashes": (4, 2)}
_SHADED: Final[Mapping[str, Any]] = {"alpha": 0.35, "linewidth": 0}

_RULES: Final = {
    # Names may hold a dollar sign, which is no formula.
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#EEEEEE",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.color": GREY,
    "ytick.color": BLACK,
}

Rows = list[Sequence[Any]]


class Picture(NamedTuple):
    """A picture, and the header of the rows behind it."""

    draws: Callable[[Results], tuple[Figure, Rows]]
    header: Sequence[str]


def draw(job: Job, lakes: Sequence[Lake], folder: Path, pictures: Mapping[str, Picture]) -> None:
    """Write pictures by the names of their files, and name these in the report."""
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(lakes, Scope.of(job))
    with style():
        for name, picture in pictures.items():
            figure, rows = retried(partial(picture.draws, results))
            files = save(folder / name, figure, picture.header, rows)
            job.counts.setdefault("drawn", {})[name] = len(rows)
            job.counts.setdefault("pictures", []).extend(files)


@contextmanager
def style() -> Iterator[None]:
    """Draw the block in the common style; a letter that the font lacks is drawn as a box."""
    with mpl.rc_context(_RULES), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def save(
    name: Path, figure: Figure, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> list[str]:
    """Write a picture as PNG with its rows as CSV; the same picture has the same bytes."""
    png, csv_file = (name.with_name(f"{name.name}.{suffix}") for suffix in ("png", "csv"))
    figure.savefig(png, dpi=150, bbox_inches="tight", pad_inches=0.2, metadata={"Software": None})
    with csv_file.open("w", newline="", encoding="utf-8") as target:
        csv.writer(target, lineterminator="\n").writerows([header, *rows])
    return [str(png), str(csv_file)]


def new_figure(title: str, line: str, height: float, *, empty: str = "") -> Figure:
    """Return a figure, so many inches high, with what it shows, or that there is nothing."""
    figure = Figure(figsize=(11.0, height), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color=BLACK)
    figure.text(0.012, 0.0, line, ha="left", va="top", fontsize=8.5, color=GREY)
    if empty:
        axes = figure.add_subplot()
        axes.axis("off")
        axes.text(0.5, 0.5, empty, ha="center", va="center", fontsize=12, color=GREY)
    return figure


def legend_above(axes: Axes, columns: int = 4) -> None:
    """Put the legend above the right end of the axes."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns)


def date_axis(axes: Axes) -> None:
    """Write times with what differs between them alone."""
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def draw_shares(
    axes: Axes,
    shares: Mapping[str, Any],
    marks: Sequence[tuple[str, str, str]],
    names: Sequence[str],
    texts: Sequence[str] = (),
) -> None:
    """Make a line of each name with its marks, where 1 is the limit or the capacity.

    Args:
        shares: The positions of each mark, one for each name, the first on top.
        marks: Each mark's key in ``shares``, its shape and its colour.
        texts: Stand at the right, as names do at the left.
    """
    lines = np.arange(len(names))
    for name, marker, colour in marks:
        axes.scatter(
            shares[name], lines, 40, colour, marker=marker, linewidths=2, label=name, zorder=3
        )
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.invert_yaxis()
    axes.set_yticks(lines, names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    legend_above(axes, 5)
    if texts:
        right = axes.secondary_yaxis("right")
        right.set_yticks(lines, texts)
        right.tick_params(length=0, labelsize=8, labelcolor=GREY)
        right.spines[:].set_visible(False)


class Minutes:
    """Every minute of a period, and the rows of those that have one."""

    def __init__(self, rows: Sequence[Row], first: datetime, number: int) -> None:
        self.times: Any = [first + timedelta(minutes=each) for each in range(number)]
        self._rows = {row["ts"]: row for row in rows}

    def column(self, name: str) -> list[float]:
        """Return a column at each time; NaN, where no line is drawn, if it is null or missing."""
        values = (self._rows[at][name] if at in self._rows else None for at in self.times)
        return [math.nan if value is None else float(value) for value in values]


def write_title(axes: Axes, title: str, line: str) -> None:
    """Write a title in bold, and a line below it."""
    axes.set_title(f"{title}\n", loc="left", fontsize=10, fontweight="bold", color=BLACK)
    axes.text(0, 1.04, line, fontsize=8.5, color=GREY, transform=axes.transAxes)


def draw_rates(
    axes: Axes,
    key: str,
    minutes: Minutes,
    limits: Sequence[tuple[str, str, str]],
    shaded: tuple[str, str],
) -> None:
    """Draw ``rate_avg`` and ``rate_max`` beside limits, in the unit of the key.

    Args:
        limits: The column, the label and the colour of each.
        shaded: The column that is above 0 in minutes with a shade, and its label.
    """
    times = minutes.times
    axes.fill_between(times, minutes.column("rate_avg"), color=SKY, label="average", **_SHADED)
    axes.plot(times, minutes.column("rate_max"), color=BLUE, linewidth=1.1, label="maximum")
    for name, label, colour in limits:
        values = minutes.column(name)
        axes.step(times, values, where="post", label=label, color=colour, **DASHED)
    axes.fill_between(
        times,
        1.0,
        where=[value > 0 for value in minutes.column(shaded[0])],
        step="post",
        transform=axes.get_xaxis_transform(),
        color=ORANGE,
        label=shaded[1],
        **_SHADED,
    )
    axes.set_xlim(times[0], times[-1] + timedelta(minutes=1))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(Ticks(key))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: value_in_words(key, value)))
    axes.grid(axis="y")


_STEPS: Final = (1, 2, 2.5, 5, 10)
"""Half and a quarter of a MiB are whole numbers of KiB, as they are written; a tenth is not."""


class Ticks(MaxNLocator):
    """At most five ticks at round numbers: of bytes in the unit that they are written with."""

    def __init__(self, key: str) -> None:
        super().__init__(4, steps=_STEPS)
        self._step = 1024 if "byte" in QUOTA_KEY_RULES[QuotaKey(key)].unit else 1

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the positions between two values."""
        power = int(math.log(vmax, 1024)) if self._step > 1 and vmax > 1 else 0
        unit = self._step**power
        return super().tick_values(vmin / unit, vmax / unit) * unit
