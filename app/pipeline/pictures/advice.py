"""Advice: what brokers have promised, and the values that should change."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pyspark.sql import functions as sf

from app.domain.quantities import value_in_words
from app.pipeline.pictures.style import (
    BLACK,
    BLUE,
    DASHED,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    Picture,
    Rows,
    draw_shares,
    new_figure,
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


def _commits(results: Results) -> tuple[Figure, Rows]:
    """Draw three bars for each broker and direction, as shares of the capacity."""
    found = results.read(BROKER_COMMIT).sort("cluster_id", "broker_id", "direction")
    rows: list[Row] = found.toArrow().to_pylist()
    fullest = sorted(
        (row for row in rows if row["capacity"] is not None), key=lambda row: -row["limits_ratio"]
    )[:_MOST_ROWS]
    line = (
        "Limits and use of the buckets of a broker as shares of its capacity, with replication. "
        "Limits that add up to more than the line cannot all be used at once."
    )
    title, empty = "What brokers have promised", "No broker's capacity is given."
    height = 1.6 + 0.5 * max(len(fullest), 4)
    figure = new_figure(title, line, height, empty="" if fullest else empty)
    if fullest:
        _draw_commits(figure.add_subplot(), fullest)
    return figure, _texts(rows, BROKER_COMMIT)


def _draw_commits(axes: Axes, rows: Sequence[Row]) -> None:
    lines = np.arange(len(rows))
    for number, (name, colour, label) in enumerate(_BARS):
        shares = [row[name] for row in rows]
        bars = axes.barh(lines + (number - 1) * _BAR, shares, _BAR, color=colour, label=label)
        texts = [f"{share:,.0%}" for share in shares]
        axes.bar_label(bars, texts, padding=3, fontsize=7.5, color=GREY)
    axes.axvline(1.0, color=BLACK, label="capacity", **DASHED)
    axes.margins(x=0.08)
    several = len({row["cluster_id"] for row in rows}) > 1
    names = [
        f"{row['cluster_id'] + ': ' if several else ''}broker {row['broker_id']} {row['direction']}"
        for row in rows
    ]
    draw_shares(axes, {}, (), names)


def _sizes(results: Results) -> tuple[Figure, Rows]:
    """Draw a line for each of the largest changes, with the limit at 1 and the advice as a band."""
    changes = results.read(RECOMMENDATION).where("value is not null")
    largest = changes.sort(sf.desc("factor"), "cluster_id", "bucket_id").limit(_MOST_ROWS)
    rows: list[Row] = largest.toArrow().to_pylist()
    line = (
        "Minutes of a bucket's busiest broker as a share of its limit. The band reaches from the "
        "limit to what is advised now, the circle is what the bucket needs; logarithmic scale."
    )
    title, empty = "Values to raise or to lower", "No advice to raise or to lower a value."
    height = 1.6 + 0.32 * max(len(rows), 5)
    figure = new_figure(title, line, height, empty="" if rows else empty)
    if rows:
        _draw_sizes(figure.add_subplot(), rows)
    return figure, _texts(rows, RECOMMENDATION)


def _draw_sizes(axes: Axes, rows: Sequence[Row]) -> None:
    shares = {
        name: np.array([row[name] / row["limit"] for row in rows])
        for name in ("value", "target", *(name for name, *_ in _MARKS))
    }
    least = min(float(np.min(each[each > 0], initial=1.0)) for each in shares.values())
    most = max(float(np.max(each)) for each in shares.values())
    axes.axvline(1.0, color=BLACK, label="limit", **DASHED)
    for line, (row, value) in enumerate(zip(rows, shares["value"], strict=True)):
        colour = VERMILION if row["action"] == "raise" else BLUE
        axes.barh(line, value - 1.0, 0.7, left=1.0, color=colour, alpha=0.16)
        axes.plot([value, value], [line - 0.35, line + 0.35], color=colour, linewidth=2.4)
    axes.scatter(
        shares["target"],
        np.arange(len(rows)),
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
    names = [f"{bucket_name(row)} {key_name(row['key'])}" for row in rows]
    changes = [
        f"{value_in_words(row['key'], row['limit'])} → {value_in_words(row['key'], row['value'])}"
        for row in rows
    ]
    draw_shares(axes, shares, _MARKS, names, changes)
    axes.xaxis.set_minor_formatter("")


def _texts(rows: Sequence[Row], table: Table) -> Rows:
    return [tuple(str(row[name]) for name in table.columns) for row in rows]


PICTURES: Final[Mapping[str, tuple[Table, Picture]]] = {
    "broker_commit": (BROKER_COMMIT, Picture(_commits, BROKER_COMMIT.columns)),
    "recommendations": (RECOMMENDATION, Picture(_sizes, RECOMMENDATION.columns)),
}
"""By the name of their files, each with the table that it is of."""
