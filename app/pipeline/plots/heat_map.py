"""When the buckets nearest to their limits were near them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from app.pipeline.plots.style import GREY, PALE, VERMILION, hourly_shares, new_figure, say_empty
from app.pipeline.summary import NearLimit, Results

HEADER: Final = ("cluster_id", "bucket_id", "bucket", "hour", "utilisation")

_BUCKETS: Final = 24
_HOUR: Final = timedelta(hours=1)
_TITLE: Final = "Utilisation by hour"
_LINE: Final = (
    "Highest minute of each hour on the busiest broker, as a share of the limit. Times are UTC; "
    "the bucket nearest to its limit is on top."
)

Shares = Mapping[datetime, float]


def draw(results: Results) -> tuple[Figure, list[Sequence[Any]]]:
    """Draw a row for each of the worst buckets and a column for each hour.

    Returns:
        The figure, and rows of ``HEADER``; utilisation 1 is the limit.
    """
    worst = results.nearest(_BUCKETS)
    shares: dict[tuple[str, int], dict[datetime, float]] = {}
    for row in hourly_shares(results, worst):
        by_hour = shares.setdefault((row["cluster_id"], row["bucket_id"]), {})
        by_hour[row["hour"]] = row["share"]
    rows = [(item, shares[item.identity]) for item in worst if item.identity in shares]
    figure = new_figure(_TITLE, _LINE, 2.2 + 0.3 * max(len(rows), 6))
    axes = figure.add_subplot()
    if rows:
        _draw(figure, axes, rows)
    else:
        say_empty(axes, "No bucket with a limit has minutes here.")
    return figure, [
        (*item.identity, item.label, hour.isoformat(), round(share, 6))
        for item, by_hour in rows
        for hour, share in by_hour.items()
    ]


def _draw(figure: Figure, axes: Axes, rows: Sequence[tuple[NearLimit, Shares]]) -> None:
    first = min(hour for _, shares in rows for hour in shares)
    last = max(hour for _, shares in rows for hour in shares)
    hours = [first + _HOUR * number for number in range((last - first) // _HOUR + 2)]
    grid = [[shares.get(hour, np.nan) for hour in hours[:-1]] for _, shares in rows]
    mesh = axes.pcolormesh(
        hours,  # type: ignore[arg-type]
        np.arange(len(rows) + 1),
        np.ma.masked_invalid(grid),
        cmap=colormaps["cividis"].with_extremes(over=VERMILION, bad=PALE),
        vmin=0.0,
        vmax=1.0,
        edgecolors="white",
        linewidth=0.6 if len(hours) <= 72 else 0.0,
    )
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [item.label for item, _ in rows])
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    bar = figure.colorbar(mesh, ax=axes, extend="max", pad=0.01, aspect=30, format="{x:.0%}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, colors=GREY)
    bar.ax.set_title("over", fontsize=8, color=VERMILION, pad=4)
