"""``whatif_timeline``: rates beside both limits, and what would wait."""

from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.quantities import value_in_words
from app.pipeline.pictures.style import (
    BLACK,
    GREY,
    VERMILION,
    Minutes,
    Rows,
    date_axis,
    draw_rates,
    legend_above,
    new_figure,
    write_title,
)
from app.pipeline.summary import Results, Row, bucket_name, key_name
from app.pipeline.tables import WHATIF_ENTITY, WHATIF_TIMELINE

_MOST_PANELS: Final = 4
_MOST_POINTS: Final = 20_000
_OF_MINUTE: Final = (
    *("rate_avg", "rate_max", "limit_now", "limit_new", "waiting", "waiting_max"),
    *("throttled_s_now", "throttled_s_new_low", "throttled_s_new", "throttled_s_new_high"),
    "censored",
)
HEADER: Final = (
    *("cluster_id", "run_id", "bucket_id", "bucket", "key", "broker_id", "ts"),
    *_OF_MINUTE,
)
_LIMITS: Final = (("limit_now", "limit now", GREY), ("limit_new", "new limit", BLACK))
_SHADED: Final = ("throttled_s_new", "would be throttled")


def draw_timelines(results: Results, run_id: str | None) -> tuple[Figure, Rows]:
    """Draw two panels for each of the buckets that would be throttled longest."""
    panels = _panels(results, run_id)
    line = (
        "The buckets that would be throttled longest, each on one broker. What waits is a band: "
        "nobody knows when in its minute a burst was. Times are UTC."
    )
    title = "What if: rates against the old and the new limit"
    empty = "" if panels else "Nothing is throttled, now or under the new quotas."
    figure = new_figure(title, line, 1.0 + 2.9 * max(len(panels), 1), empty=empty)
    grid = figure.add_gridspec(2 * len(panels) or 1, 1, height_ratios=[2, 1] * len(panels) or None)
    for number, (item, rows) in enumerate(panels):
        above = figure.add_subplot(grid[2 * number, 0])
        below = figure.add_subplot(grid[2 * number + 1, 0], sharex=above)
        first, last = (rows[end]["ts"].astimezone(UTC) for end in (0, -1))
        number_of = min((last - first) // timedelta(minutes=1) + 1, _MOST_POINTS)
        minutes = Minutes(rows, first, number_of)
        draw_rates(above, item["key"], minutes, _LIMITS, _SHADED)
        write_title(above, f"{bucket_name(item)} {key_name(item['key'])}", _sentence(item))
        above.tick_params(labelbottom=False)
        _draw_waiting(below, item, minutes)
        if number == 0:
            legend_above(above)
    return figure, [
        (
            *(item["cluster_id"], item["run_id"], item["bucket_id"], bucket_name(item)),
            *(item["key"], item["broker_id"], row["ts"].isoformat()),
            *(row[name] for name in _OF_MINUTE),
        )
        for item, rows in panels
        for row in rows
    ]


def _panels(results: Results, run_id: str | None) -> list[tuple[Row, Sequence[Row]]]:
    """Return the rows of ``WHATIF_ENTITY`` that are drawn, each with its minutes."""
    entities, timelines = results.read(WHATIF_ENTITY), results.read(WHATIF_TIMELINE)
    run = run_id or timelines.agg(sf.max("run_id")).collect()[0][0]
    own = timelines.where(sf.col("run_id") == sf.lit(run))
    position = ["cluster_id", "run_id", "bucket_id", "broker_id"]
    worst = entities.join(own.select(*position).distinct(), position)
    by = (sf.desc_nulls_last("throttled_s_new_high"), sf.desc_nulls_last("throttled_s_now"))
    found = worst.sort(*by, "key", "bucket_id", "broker_id").limit(_MOST_PANELS)
    return [(item, _minutes_of(own, item)) for item in found.toArrow().to_pylist()]


def _minutes_of(timelines: DataFrame, item: Row) -> list[Row]:
    bucket = sf.col("bucket_id") == sf.lit(item["bucket_id"])
    rows = timelines.where(bucket & (sf.col("broker_id") == item["broker_id"])).sort("ts")
    found: list[Row] = rows.toArrow().to_pylist()
    return found


def _sentence(item: Row) -> str:
    limits = (
        "none" if item[name] is None else value_in_words(item["key"], item[name])
        for name in ("limit_now", "limit_new")
    )
    sentence = f"broker {item['broker_id']}, limit {' → '.join(limits)}"
    if item["throttled_s_new"] is None:
        return f"{sentence}: {item['fidelity']}"
    figures = [item[f"throttled_s_new{name}"] for name in ("", "_low", "_high")]
    mid, low, high = (f"{seconds:,.0f}" for seconds in figures)
    bound = ", at least: it was throttled" if item["censored"] else ""
    return f"{sentence}: throttled {mid} s ({low} to {high}){bound}"


def _draw_waiting(axes: Axes, item: Row, minutes: Minutes) -> None:
    """Draw what waits as seconds of the new limit: so long a client would be behind."""
    limit = item["limit_new"] or float("nan")
    low, high = (
        [value / limit for value in minutes.column(name)] for name in ("waiting", "waiting_max")
    )
    axes.fill_between(minutes.times, low, high, color=VERMILION, alpha=0.3, linewidth=0)
    axes.plot(minutes.times, high, color=VERMILION, linewidth=0.9)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("waiting", fontsize=8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f} s"))
    date_axis(axes)
    axes.grid(axis="y")
