"""How far each bucket's usual, high and highest minutes are from its limit."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from app.pipeline.plots.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    legend_above,
    new_figure,
    say_empty,
)
from app.pipeline.summary import NearLimit, Results, amount

_COLUMNS: Final = ("dt", "broker_id", "limit", "p50", "p95", "p99", "peak", "util_p99", "headroom")

HEADER: Final = ("cluster_id", "bucket_id", "bucket", *_COLUMNS)

_BUCKETS: Final = 24
_TITLE: Final = "Percentiles as a share of the limit"
_LINE: Final = (
    "Of the minutes of a bucket's worst day on its busiest broker; percentiles are within 0.5 %. "
    "Right of the line is over the limit, on a logarithmic scale."
)
_STEPS: Final = (
    ("p50", "o", SKY),
    ("p95", "s", BLUE),
    ("p99", "D", ORANGE),
    ("peak", "|", VERMILION),
)


def draw(results: Results) -> tuple[Figure, list[Sequence[Any]]]:
    """Draw a line for each of the worst buckets.

    Returns:
        The figure, and rows of ``HEADER`` in the unit of the key.
    """
    worst = results.nearest(_BUCKETS)
    figure = new_figure(_TITLE, _LINE, 1.6 + 0.32 * max(len(worst), 5))
    axes = figure.add_subplot()
    if worst:
        _draw(axes, worst)
    else:
        say_empty(axes, "No bucket has a limit here.")
    return figure, [
        (*item.identity, item.label, *(str(item.day[name]) for name in _COLUMNS)) for item in worst
    ]


def _draw(axes: Axes, worst: Sequence[NearLimit]) -> None:
    lines = np.arange(len(worst))
    shares = {
        name: np.array([item.day[name] / item.day["limit"] for item in worst])
        for name, _, _ in _STEPS
    }
    highest = max(1.1, 1.1 * float(np.max(shares["peak"])))
    axes.axvspan(1.0, highest, color=VERMILION, alpha=0.07, linewidth=0)
    axes.axvline(1.0, color=BLACK, linewidth=1.2, dashes=(4, 2))
    axes.hlines(lines, shares["p50"], shares["peak"], color="#C8C8C8", linewidth=2.2, zorder=1)
    for name, marker, colour in _STEPS:
        axes.scatter(
            shares[name], lines, 40, colour, marker=marker, linewidths=2, label=name, zorder=3
        )
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(0, highest)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.invert_yaxis()
    axes.set_yticks(lines, [item.label for item in worst])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    legend_above(axes)
    limits = axes.secondary_yaxis("right")
    limits.set_yticks(lines, [amount(item.day["limit"], item.day["key"]) for item in worst])
    limits.tick_params(length=0, labelsize=8, labelcolor=GREY)
    limits.spines[:].set_visible(False)
