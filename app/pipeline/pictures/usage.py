"""Use beside limits.

When the buckets nearest to their limits were near them, the rates of the worst beside their limits,
and how far each bucket's usual, high and highest minutes are from its limit.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Final

import numpy as np
import pyarrow.compute as pc
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from pyspark.sql import functions as sf

from app.domain.quantities import value_in_words
from app.pipeline.lake import partitions_of
from app.pipeline.pictures.style import (
    BLACK,
    BLUE,
    DASHED,
    GREY,
    ORANGE,
    PALE,
    SKY,
    VERMILION,
    Minutes,
    Picture,
    Rows,
    date_axis,
    draw_rates,
    draw_shares,
    legend_above,
    new_figure,
    write_title,
)
from app.pipeline.summary import NearLimit, Results, Row, entity_name
from app.pipeline.tables import BEGIN_OF_HOUR, BUCKET_HOUR, BUCKET_MINUTE, RATE_MINUTE
from app.pipeline.usage.buckets import minutes_of_buckets

_MOST_BUCKETS: Final = 24
_MOST_PANELS: Final = 4
_DAYS: Final = 7
_HOUR: Final = timedelta(hours=1)
_MINUTES_A_DAY: Final = 1440
_PERCENTILES: Final = (
    ("p50", "o", SKY),
    ("p95", "s", BLUE),
    ("p99", "D", ORANGE),
    ("peak", "|", VERMILION),
)
_BUCKET: Final = ("cluster_id", "bucket_id", "bucket")
_OF_DAY: Final = ("dt", "broker_id", "limit", "p50", "p95", "p99", "peak", "util_p99", "headroom")
_OF_MINUTE: Final = ("rate_avg", "rate_max", "limit", "throttle_ms", "violating")

Shares = Mapping[datetime, float]


def _heat_map(results: Results) -> tuple[Figure, Rows]:
    """Draw a row for each of the worst buckets and a column for each hour; 1 is the limit."""
    worst = results.nearest(_MOST_BUCKETS)
    shares: dict[tuple[str, int], dict[datetime, float]] = {}
    for row in _hourly_shares(results, worst):
        by_hour = shares.setdefault((row["cluster_id"], row["bucket_id"]), {})
        by_hour[row["hour"]] = row["share"]
    rows = [(item, shares[item.identity]) for item in worst if item.identity in shares]
    line = (
        "Highest minute of each hour on the busiest broker, as a share of the limit; grey: no "
        "data. Times are UTC; the bucket nearest to its limit is on top."
    )
    empty = "" if rows else "No bucket with a limit has minutes here."
    figure = new_figure("Utilisation by hour", line, 2.2 + 0.3 * max(len(rows), 6), empty=empty)
    if rows:
        _draw_hours(figure, rows)
    return figure, [
        (*item.identity, item.label, hour.isoformat(), round(share, 6))
        for item, by_hour in rows
        for hour, share in by_hour.items()
    ]


def _hourly_shares(results: Results, worst: Sequence[NearLimit]) -> list[Row]:
    """Return the highest minute of each hour of the last seven days, as a share of the limit."""
    if not worst:
        return []
    last = max(item.day["dt"] for item in worst)
    chosen = results.scope.of_days(results.read(BUCKET_HOUR)).where(
        sf.col("bucket_id").isin([item.day["bucket_id"] for item in worst])
        & (sf.col("dt") > last - timedelta(days=_DAYS))
        & (sf.col("limit") > 0)
    )
    hours = chosen.groupBy("cluster_id", "bucket_id", sf.expr(BEGIN_OF_HOUR).alias("hour"))
    shares = hours.agg(sf.max(sf.col("rate_max") / sf.col("limit")).alias("share"))
    rows: list[Row] = shares.sort("hour").toArrow().to_pylist()
    return rows


def _draw_hours(figure: Figure, rows: Sequence[tuple[NearLimit, Shares]]) -> None:
    axes = figure.add_subplot()
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
    date_axis(axes)
    bar = figure.colorbar(mesh, ax=axes, extend="max", pad=0.01, aspect=30, format="{x:.0%}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, colors=GREY)
    bar.ax.set_title("over", fontsize=8, color=VERMILION, pad=4)


def _rates(results: Results) -> tuple[Figure, Rows]:
    """Draw a panel for each of the worst buckets; throttling in ms."""
    days = [(item, _minutes_of(results, item)) for item in results.nearest(_MOST_PANELS)]
    panels = [(item, rows) for item, rows in days if rows]
    line = (
        "The buckets nearest to their limits, each on its busiest broker and worst day. Shaded: "
        "minutes that were throttled or whose maximum was over the limit. Times are UTC."
    )
    empty = "" if panels else "No bucket with a limit has minutes here."
    height = 1.0 + 2.1 * max(len(panels), 1)
    figure = new_figure("Rates against limits", line, height, empty=empty)
    for number, (item, rows) in enumerate(panels, start=1):
        axes = figure.add_subplot(len(panels), 1, number)
        _draw_day(axes, item, rows)
        if number == 1:
            legend_above(axes)
    return figure, [
        (
            *(*item.identity, item.label, row["broker_id"], row["ts"].isoformat()),
            *(row[name] for name in _OF_MINUTE),
        )
        for item, rows in panels
        for row in rows
    ]


def _minutes_of(results: Results, worst: NearLimit) -> list[Row]:
    """Return the rows of ``BUCKET_MINUTE`` of a bucket's worst day on its busiest broker."""
    day = {"cluster_id": worst.day["cluster_id"], "dt": worst.day["dt"].isoformat()}
    of_day = partitions_of(results.lakes, RATE_MINUTE, [day])
    hours = [hour for hour in of_day if results.scope.has(hour)]
    made = minutes_of_buckets(results.lakes, hours, [worst.day["bucket_id"]])
    minutes = made.rows(BUCKET_MINUTE.ddl).toArrow()
    rows = minutes.filter(pc.field("broker_id") == worst.day["broker_id"]).sort_by("ts")
    longest = pc.max_element_wise(rows["throttle_ms_avg"], rows["throttle_ms_max"])
    throttle_ms = pc.fill_null(longest, 0.0)
    is_over = pc.fill_null(pc.greater(rows["rate_max"], rows["limit"]), fill_value=False)
    violating = pc.or_(pc.greater(throttle_ms, 0.0), is_over)
    columns = rows.append_column("throttle_ms", throttle_ms).append_column("violating", violating)
    found: list[Row] = columns.to_pylist()
    return found


def _draw_day(axes: Axes, item: NearLimit, rows: Sequence[Row]) -> None:
    key, day = item.day["key"], item.day["dt"]
    entity = entity_name(item.names)
    limit = f"limit {value_in_words(key, item.day['limit'])}{entity and f' by {entity}'}"
    line = f"broker {item.day['broker_id']}, {day:%d %b %Y}, {limit}"
    minutes = Minutes(rows, datetime.combine(day, time(), UTC), _MINUTES_A_DAY)
    limits, shaded = [("limit", "limit", BLACK)], ("violating", "throttled or over")
    draw_rates(axes, key, minutes, limits, shaded)
    write_title(axes, item.label, line)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]


def _percentiles(results: Results) -> tuple[Figure, Rows]:
    """Draw a line for each of the worst buckets."""
    worst = results.nearest(_MOST_BUCKETS)
    line = (
        "Of the minutes of a bucket's worst day on its busiest broker; percentiles are within "
        "0.5 %. Right of the line is over the limit, on a logarithmic scale."
    )
    title, empty = "Percentiles as a share of the limit", "No bucket with a limit has minutes here."
    height = 1.6 + 0.32 * max(len(worst), 5)
    figure = new_figure(title, line, height, empty="" if worst else empty)
    if worst:
        _draw_percentiles(figure.add_subplot(), worst)
    return figure, [
        (*item.identity, item.label, *(str(item.day[name]) for name in _OF_DAY)) for item in worst
    ]


def _draw_percentiles(axes: Axes, worst: Sequence[NearLimit]) -> None:
    shares = {
        name: np.array([item.day[name] / item.day["limit"] for item in worst])
        for name, _, _ in _PERCENTILES
    }
    highest = max(1.1, 1.1 * float(np.max(shares["peak"])))
    axes.axvspan(1.0, highest, color=VERMILION, alpha=0.07, linewidth=0)
    axes.axvline(1.0, color=BLACK, **DASHED)
    lines = np.arange(len(worst))
    axes.hlines(lines, shares["p50"], shares["peak"], color="#C8C8C8", linewidth=2.2, zorder=1)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(0, highest)
    limits = [value_in_words(item.day["key"], item.day["limit"]) for item in worst]
    draw_shares(axes, shares, _PERCENTILES, [item.label for item in worst], limits)


PICTURES: Final[Mapping[str, Picture]] = {
    "utilization_heat_map": Picture(_heat_map, (*_BUCKET, "hour", "utilisation")),
    "rate_against_limit": Picture(_rates, (*_BUCKET, "broker_id", "ts", *_OF_MINUTE)),
    "percentile_ladder": Picture(_percentiles, (*_BUCKET, *_OF_DAY)),
}
"""By the name of their files."""
