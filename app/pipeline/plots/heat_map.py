"""When the buckets nearest to their limits were near them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.pipeline.plots.data import Identity, Results, Worst
from app.pipeline.plots.style import (
    BLACK,
    GREY,
    PALE,
    VERMILION,
    headline,
    new_figure,
    say_empty,
)

_BUCKETS: Final = 24
_HOUR: Final = timedelta(hours=1)
_TITLE: Final = "Utilisation by hour"
_LINE: Final = (
    "Highest minute of each hour on the busiest broker, as a share of the limit. Times are UTC; "
    "the bucket nearest to its limit is on top."
)

HEADER: Final = ("cluster_id", "bucket_id", "bucket", "hour", "utilisation")

Cells = dict[tuple[Identity, datetime], float]


def heat_map(results: Results) -> tuple[Figure, list[Sequence[Any]]]:
    """Draw a row for each of the worst buckets and a column for each hour.

    Returns:
        The figure, and rows of ``HEADER``; utilisation 1 is the limit.
    """
    worst = results.worst(_BUCKETS)
    cells = _cells(results, worst)
    rows = [item for item in worst if any(identity == item.identity for identity, _ in cells)]
    figure = new_figure(2.2 + 0.3 * max(len(rows), 6))
    axes = figure.add_subplot()
    headline(figure, _TITLE, _LINE)
    if rows:
        _draw(figure, axes, rows, cells)
    else:
        say_empty(axes, "No bucket with a limit has minutes here.")
    table: list[Sequence[Any]] = [
        (*row.identity, row.label, hour.isoformat(), round(share, 6))
        for row in rows
        for (identity, hour), share in sorted(cells.items(), key=lambda item: item[0][1])
        if identity == row.identity
    ]
    return figure, table


def _cells(results: Results, worst: Sequence[Worst]) -> Cells:
    minutes = results.minutes(worst)
    minutes = minutes.filter(pc.greater(minutes["limit"], 0))
    share = pc.divide(minutes["rate_max"], minutes["limit"])
    hours = pc.floor_temporal(minutes["ts"], unit="hour")
    table = minutes.append_column("share", share).append_column("hour", hours)
    highest = table.group_by(["cluster_id", "bucket_id", "hour"]).aggregate([("share", "max")])
    return {
        ((row["cluster_id"], row["bucket_id"]), row["hour"]): row["share_max"]
        for row in highest.to_pylist()
    }


def _draw(figure: Figure, axes: Axes, rows: Sequence[Worst], cells: Cells) -> None:
    first, last = min(hour for _, hour in cells), max(hour for _, hour in cells)
    hours = [first + _HOUR * number for number in range((last - first) // _HOUR + 1)]
    grid = np.array([[cells.get((row.identity, hour), np.nan) for hour in hours] for row in rows])
    colours = colormaps["cividis"].with_extremes(over=VERMILION, bad=PALE)
    mesh = axes.pcolormesh(
        np.arange(len(hours) + 1),
        np.arange(len(rows) + 1),
        np.ma.masked_invalid(grid),
        cmap=colours,
        vmin=0.0,
        vmax=1.0,
        edgecolors="white",
        linewidth=0.6 if len(hours) <= 72 else 0.0,
    )
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [row.label for row in rows])
    _label_hours(axes, hours)
    bar = figure.colorbar(mesh, ax=axes, extend="max", pad=0.01, aspect=30, fraction=0.04)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1.0], labels=["0", "25 %", "50 %", "75 %", "100 %"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, colors=GREY)
    bar.ax.set_title("over", fontsize=8, color=VERMILION, pad=4)
    _write_shares(axes, grid, len(hours))


def _label_hours(axes: Axes, hours: Sequence[datetime]) -> None:
    step = next(step for step in (1, 2, 3, 6, 12, 24) if len(hours) <= 14 * step or step == 24)
    marks = [number for number, hour in enumerate(hours) if hour.hour % step == 0]
    texts = [
        f"{hours[number]:%H:%M}"
        + (f"\n{hours[number]:%d %b %Y}" if position == 0 or hours[number].hour == 0 else "")
        for position, number in enumerate(marks)
    ]
    axes.set_xticks(marks, texts, ha="left")


def _write_shares(axes: Axes, grid: Any, hours: int) -> None:
    """Write the figures into the cells where there is room for them."""
    if hours > 24:
        return
    for row, shares in enumerate(grid):
        for column, share in enumerate(shares):
            if not np.isnan(share):
                axes.text(
                    column + 0.5,
                    row + 0.5,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=BLACK if share > 0.55 else "white",
                )
