"""Pictures of advice: what brokers have promised, and the values that should change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from pyspark.sql import functions as sf

from app.domain.quantities import value_in_words
from app.pipeline.picture_style import (
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
from app.pipeline.summary import Results, Row, bucket_name, key_name
from app.pipeline.tables import BROKER_COMMIT, RECOMMENDATION, Table

_MOST_ROWS: Final = 24
_BARS: Final = (
    ("limits_ratio", VERMILION, "limits"),
    ("p99_sum_ratio", ORANGE, "p99 of each, added up"),
    ("p99_of_sums_ratio", BLUE, "p99 of all together"),
)
_BAR: Final = 0.27
_MARKS: Final = (("p95", "s", SKY), ("percentile", "D", ORANGE), ("peak", "|", VERMILION))

Rows = list[Sequence[Any]]


class Picture(NamedTuple):
    """A picture of a table, drawn where the table is.

    Attributes:
        draws: Returns the figure and the rows behind it.
        header: Of the rows.
    """

    table: Table
    draws: Callable[[Results], tuple[Figure, Rows]]
    header: Sequence[str]


def _commits(results: Results) -> tuple[Figure, Rows]:
    """Draw three bars for each broker and direction, as shares of the capacity."""
    found = results.read(BROKER_COMMIT)
    rows: list[Row] = []
    if found is not None:
        in_order = found.sort("cluster_id", "broker_id", "direction")
        rows = in_order.toArrow().to_pylist()
    fullest = sorted(
        (row for row in rows if row["capacity"] is not None), key=lambda row: -row["limits_ratio"]
    )[:_MOST_ROWS]
    line = (
        "Limits and use of the buckets of a broker as shares of its capacity, with replication. "
        "Limits that add up to more than the line cannot all be used at once."
    )
    figure = new_figure("What brokers have promised", line, 1.6 + 0.5 * max(len(fullest), 4))
    axes = figure.add_subplot()
    if fullest:
        _draw_commits(axes, fullest)
    else:
        say_empty(axes, "No broker's capacity is given.")
    columns = BROKER_COMMIT.columns
    return figure, [tuple(str(row[name]) for name in columns) for row in rows]


def _draw_commits(axes: Axes, rows: Sequence[Row]) -> None:
    lines = np.arange(len(rows))
    for number, (name, colour, label) in enumerate(_BARS):
        shares = [row[name] for row in rows]
        bars = axes.barh(lines + (number - 1) * _BAR, shares, _BAR, color=colour, label=label)
        texts = [f"{share:,.0%}" for share in shares]
        axes.bar_label(bars, texts, padding=3, fontsize=7.5, color=GREY)
    axes.axvline(1.0, color=BLACK, linewidth=1.2, dashes=(4, 2), label="capacity")
    several = len({row["cluster_id"] for row in rows}) > 1
    names = [f"broker {row['broker_id']} {row['direction']}" for row in rows]
    if several:
        names = [f"{row['cluster_id']}: {name}" for row, name in zip(rows, names, strict=True)]
    axes.set_yticks(lines, names)
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    legend_above(axes)


def _sizes(results: Results) -> tuple[Figure, Rows]:
    """Draw a line for each of the largest changes, with the limit at 1 and the advice as a band."""
    found = results.read(RECOMMENDATION)
    rows: list[Row] = []
    if found is not None:
        changes = found.where("value is not null")
        largest = changes.sort(sf.desc("factor"), "cluster_id", "bucket_id").limit(_MOST_ROWS)
        rows = largest.toArrow().to_pylist()
    line = (
        "Minutes of a bucket's busiest broker as a share of its limit. The band reaches from the "
        "limit to what is advised now, the circle is what the bucket needs; logarithmic scale."
    )
    figure = new_figure("Values to raise or to lower", line, 1.6 + 0.32 * max(len(rows), 5))
    axes = figure.add_subplot()
    if rows:
        _draw_sizes(axes, rows)
    else:
        say_empty(axes, "No value is to be raised or lowered.")
    return figure, [tuple(str(row[name]) for name in RECOMMENDATION.columns) for row in rows]


def _draw_sizes(axes: Axes, rows: Sequence[Row]) -> None:
    lines = np.arange(len(rows))
    shares = {
        name: np.array([row[name] / row["limit"] for row in rows])
        for name in ("value", "target", *(name for name, *_ in _MARKS))
    }
    least = min(float(np.min(each[each > 0], initial=1.0)) for each in shares.values())
    most = max(float(np.max(each)) for each in shares.values())
    axes.axvline(1.0, color=BLACK, linewidth=1.2, dashes=(4, 2), label="limit")
    for line, row, value in zip(lines, rows, shares["value"], strict=True):
        colour = VERMILION if row["action"] == "raise" else BLUE
        axes.barh(line, value - 1.0, 0.7, left=1.0, color=colour, alpha=0.16)
        axes.plot([value, value], [line - 0.35, line + 0.35], color=colour, linewidth=2.4)
    for name, marker, colour in _MARKS:
        axes.scatter(
            shares[name], lines, 36, colour, marker=marker, linewidths=2, label=name, zorder=3
        )
    axes.scatter(
        shares["target"],
        lines,
        70,
        marker="o",
        facecolors="none",
        edgecolors=BLACK,
        linewidths=1.2,
        label="target",
        zorder=4,
    )
    axes.set_xscale("log")
    axes.set_xlim(least / 1.3, most * 1.3)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_minor_formatter("")
    axes.invert_yaxis()
    axes.set_yticks(lines, [f"{bucket_name(row)} {key_name(row['key'])}" for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=5)
    changes = axes.secondary_yaxis("right")
    words = (
        f"{value_in_words(row['key'], row['limit'])} → {value_in_words(row['key'], row['value'])}"
        for row in rows
    )
    changes.set_yticks(lines, list(words))
    changes.tick_params(length=0, labelsize=8, labelcolor=GREY)
    changes.spines[:].set_visible(False)


PICTURES: Final[Mapping[str, Picture]] = {
    "broker_commit": Picture(BROKER_COMMIT, _commits, BROKER_COMMIT.columns),
    "recommendations": Picture(RECOMMENDATION, _sizes, RECOMMENDATION.columns),
}
"""By the name of their files."""
