"""How far each bucket's usual, high and highest minutes are from its limit."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from app.pipeline.plots.data import Results, Worst
from app.pipeline.plots.names import amount
from app.pipeline.plots.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    headline,
    new_figure,
    say_empty,
)

_BUCKETS: Final = 24
_FAR: Final = 4.0
_TITLE: Final = "Percentiles as a share of the limit"
_LINE: Final = (
    "Of the minutes of a bucket's worst day on its busiest broker; percentiles are within 0.5 %. "
    "Right of the line is over the limit."
)
_STEPS: Final = (
    ("p50", "o", SKY),
    ("p95", "s", BLUE),
    ("p99", "D", ORANGE),
    ("peak", "|", VERMILION),
)

HEADER: Final = (
    *("cluster_id", "bucket_id", "bucket", "dt", "broker_id", "limit", "p50", "p95", "p99", "peak"),
    *("util_p99", "headroom"),
)


def ladder(results: Results) -> tuple[Figure, list[Sequence[Any]]]:
    """Draw a rung for each of the worst buckets.

    Returns:
        The figure, and rows of ``HEADER`` in the unit of the key.
    """
    worst = results.worst(_BUCKETS)
    figure = new_figure(1.6 + 0.32 * max(len(worst), 5))
    axes = figure.add_subplot()
    headline(figure, _TITLE, _LINE)
    if worst:
        _draw(axes, worst)
    else:
        say_empty(axes, "No bucket has a limit here.")
    ours = ("dt", "broker_id", "limit", "p50", "p95", "p99", "peak", "util_p99", "headroom")
    return figure, [
        (*item.identity, item.label, *(str(item.day[name]) for name in ours)) for item in worst
    ]


def _scale(axes: Axes, highest: float) -> None:
    """Keep the limit visible beside peaks far above it."""
    if highest > _FAR:
        axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(0, max(1.1, (1.3 if highest > _FAR else 1.05) * highest))


def _draw(axes: Axes, worst: Sequence[Worst]) -> None:
    rungs = np.arange(len(worst))
    shares = {
        name: np.array([item.day[name] / item.day["limit"] for item in worst])
        for name, _, _ in _STEPS
    }
    axes.axvspan(1.0, 1e6, color=VERMILION, alpha=0.07, linewidth=0)
    axes.axvline(1.0, color=BLACK, linewidth=1.2, dashes=(4, 2))
    axes.hlines(rungs, shares["p50"], shares["peak"], color="#C8C8C8", linewidth=2.2, zorder=1)
    for name, marker, colour in _STEPS:
        size = 110 if marker == "|" else 34
        axes.scatter(
            shares[name],
            rungs,
            marker=marker,
            color=colour,
            s=size,
            linewidths=2,
            label=name,
            zorder=3,
        )
    _scale(axes, float(np.max(shares["peak"])))
    axes.set_ylim(len(worst) - 0.4, -0.6)
    axes.set_yticks(rungs, [item.label for item in worst])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:,g} %"))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False)
    for rung, item in zip(rungs, worst, strict=True):
        axes.annotate(
            amount(item.day["limit"], item.day["key"]),
            (1.0, rung),
            (1.008, rung),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=8,
            color=GREY,
        )
