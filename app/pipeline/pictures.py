"""Pictures of results, each a PNG with the CSV behind it.

When the buckets nearest to their limits were near them, the rates of the worst beside their limits,
and how far each bucket's usual, high and highest minutes are from its limit.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter
from pyspark.sql import functions as sf

from app.domain.quantities import value_in_words
from app.pipeline.advice.pictures import PICTURES as ADVICE
from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake, read_first
from app.pipeline.picture_style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PALE,
    SKY,
    VERMILION,
    Ticks,
    legend_above,
    new_figure,
    save,
    save_rows,
    say_empty,
    style,
)
from app.pipeline.results import Scope
from app.pipeline.summary import NearLimit, Results, Row, entity_name
from app.pipeline.tables import BUCKET_HOUR, RATE_MINUTE, SERIES, SERIES_LIMIT
from app.pipeline.usage.buckets import bucket_minutes
from app.pipeline.usage.measures import is_violating, throttle_ms

_MOST_BUCKETS: Final = 24
_MOST_PANELS: Final = 4
_DAYS: Final = 7
_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)
_MINUTES_A_DAY: Final = 1440
_BUCKET: Final = ("cluster_id", "bucket_id", "bucket")
_PERCENTILES: Final = (
    ("p50", "o", SKY),
    ("p95", "s", BLUE),
    ("p99", "D", ORANGE),
    ("peak", "|", VERMILION),
)
_OF_DAY: Final = ("dt", "broker_id", "limit", "p50", "p95", "p99", "peak", "util_p99", "headroom")

_OF_MINUTE: Final = ("rate_avg", "rate_max", "limit", "throttle_ms", "violating")

Rows = list[Sequence[Any]]
Shares = Mapping[datetime, float]


def draw(job: Job, lakes: Sequence[Lake], folder: Path) -> None:
    """Draw all pictures into a folder of this machine, and name the files in the report.

    Args:
        job: Has the cluster and the period.
        lakes: Where the tables are; what is missing makes an empty picture that says so.
        folder: Where the files go.

    Raises:
        OSError: They cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(lakes, Scope.of(job))
    files: list[str] = []
    with style():
        for name, (drawing, header) in _pictures_of(lakes).items():
            figure, rows = drawing(results)
            files.append(str(save(figure, folder / f"{name}.png")))
            files.append(str(save_rows(folder / f"{name}.csv", header, rows)))
            job.counts.setdefault("drawn", {})[name] = len(rows)
    job.counts.setdefault("pictures", []).extend(files)


def _pictures_of(lakes: Sequence[Lake]) -> Mapping[str, "Picture"]:
    """Return the pictures, those of advice where its tables are."""
    advice = {
        name: (each.draws, each.header)
        for name, each in ADVICE.items()
        if any(lake.has(each.table) for lake in lakes)
    }
    return {**_PICTURES, **advice}


def draw_if_asked(job: Job, lakes: Sequence[Lake]) -> None:
    """Draw where ``--plot`` names a folder."""
    if job.options.plot:
        retried(lambda: draw(job, lakes, job.options.plot))


def _heat_map(results: Results) -> tuple[Figure, Rows]:
    """Draw a row for each of the worst buckets and a column for each hour; 1 is the limit."""
    worst = results.nearest(_MOST_BUCKETS)
    shares: dict[tuple[str, int], dict[datetime, float]] = {}
    for row in _hourly_shares(results, worst):
        by_hour = shares.setdefault((row["cluster_id"], row["bucket_id"]), {})
        by_hour[row["hour"]] = row["share"]
    rows = [(item, shares[item.identity]) for item in worst if item.identity in shares]
    line = (
        "Highest minute of each hour on the busiest broker, as a share of the limit. Times are "
        "UTC; the bucket nearest to its limit is on top."
    )
    figure = new_figure("Utilisation by hour", line, 2.2 + 0.3 * max(len(rows), 6))
    axes = figure.add_subplot()
    if rows:
        _draw_hours(figure, axes, rows)
    else:
        say_empty(axes, "No bucket with a limit has minutes here.")
    return figure, [
        (*item.identity, item.label, hour.isoformat(), round(share, 6))
        for item, by_hour in rows
        for hour, share in by_hour.items()
    ]


def _hourly_shares(results: Results, worst: Sequence[NearLimit]) -> list[Row]:
    """Return the highest minute of each hour of the last seven days, as a share of the limit."""
    found = results.read(BUCKET_HOUR)
    if found is None or not worst:
        return []
    last = max(item.day["dt"] for item in worst)
    ids = [item.day["bucket_id"] for item in worst]
    chosen = results.scope.of_days(found).where(
        sf.col("bucket_id").isin(ids)
        & (sf.col("dt") > last - timedelta(days=_DAYS))
        & (sf.col("limit") > 0)
    )
    time = sf.expr("timestamp_seconds(unix_date(dt) * 86400L + hour * 3600)").alias("hour")
    hours = chosen.groupBy("cluster_id", "bucket_id", time)
    shares = hours.agg(sf.max(sf.col("rate_max") / sf.col("limit")).alias("share"))
    rows: list[Row] = shares.sort("hour").toArrow().to_pylist()
    return rows


def _draw_hours(figure: Figure, axes: Axes, rows: Sequence[tuple[NearLimit, Shares]]) -> None:
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


def _rates(results: Results) -> tuple[Figure, Rows]:
    """Draw a panel for each of the worst buckets, in the unit of the key; throttling in ms."""
    days = [(item, _minutes_of(results, item)) for item in results.nearest(_MOST_PANELS)]
    panels = [(item, rows) for item, rows in days if rows]
    line = (
        "The buckets nearest to their limits, each on its busiest broker and worst day. Shaded: "
        "minutes that were throttled or whose maximum was over the limit. Times are UTC."
    )
    figure = new_figure("Rates against limits", line, 1.0 + 2.1 * max(len(panels), 1))
    if not panels:
        say_empty(figure.add_subplot(), "No bucket with a limit has minutes here.")
    for number, (item, rows) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        _draw_minutes(axes, item, rows)
        if number == 0:
            legend_above(axes)
    return figure, [_rate_row(item, row) for item, rows in panels for row in rows]


def _minutes_of(results: Results, worst: NearLimit) -> list[Row]:
    """Return the rows of ``BUCKET_MINUTE`` of a bucket's worst day on its busiest broker."""
    day = {"cluster_id": worst.day["cluster_id"], "dt": worst.day["dt"].isoformat()}
    limits = read_first(results.lakes, SERIES_LIMIT, [day], SERIES.order)
    limits = limits.where(sf.col("bucket_id") == worst.day["bucket_id"])
    names = read_first(results.lakes, SERIES, [day])
    rates = read_first(results.lakes, RATE_MINUTE, [day])
    rates = rates.where(sf.col("broker_id") == worst.day["broker_id"])
    decided = names.join(limits, [*SERIES.partitions, "series_id"])
    minutes = results.scope.minutes(bucket_minutes(rates, decided))
    ms = sf.coalesce(throttle_ms(), sf.lit(0.0))
    rows = minutes.withColumns({"throttle_ms": ms, "violating": is_violating()}).sort("ts")
    found: list[Row] = rows.toArrow().to_pylist()
    return found


def _rate_row(item: NearLimit, row: Row) -> Sequence[Any]:
    bucket = (*item.identity, item.label, row["broker_id"], row["ts"].isoformat())
    return (*bucket, *(row[name] for name in _OF_MINUTE))


def _draw_minutes(axes: Axes, item: NearLimit, rows: Sequence[Row]) -> None:
    """Draw every minute of the day: those without a row are NaN, where no line is drawn."""
    key, midnight = item.day["key"], datetime.combine(item.day["dt"], time(), UTC)
    times: Any = [midnight + _MINUTE * number for number in range(_MINUTES_A_DAY)]
    by_time = {row["ts"]: row for row in rows}

    def series(name: str) -> list[float]:
        values = (by_time[at][name] if at in by_time else None for at in times)
        return [float("nan") if value is None else value for value in values]

    violating = [at in by_time and by_time[at]["violating"] for at in times]
    shaded: dict[str, Any] = {"alpha": 0.35, "linewidth": 0}
    axes.fill_between(times, series("rate_avg"), color=SKY, label="average", **shaded)
    axes.plot(times, series("rate_max"), color=BLUE, linewidth=1.1, label="maximum")
    dashed: dict[str, Any] = {"color": BLACK, "linewidth": 1.3, "dashes": (4, 2)}
    axes.step(times, series("limit"), where="post", label="limit", **dashed)
    axes.fill_between(
        times,
        1.0,
        where=violating,
        step="post",
        transform=axes.get_xaxis_transform(),
        color=ORANGE,
        label="throttled or over",
        **shaded,
    )
    axes.set_xlim(times[0], times[-1])
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(Ticks(key))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: value_in_words(key, value)))
    axes.grid(axis="y")
    entity = entity_name(item.names)
    limit = f"limit {value_in_words(key, item.day['limit'])}{entity and f' by {entity}'}"
    axes.set_title(f"{item.label}\n", loc="left", fontsize=10, fontweight="bold", color=BLACK)
    day = f"broker {item.day['broker_id']}, {item.day['dt']:%d %b %Y}, {limit}"
    axes.text(0, 1.04, day, fontsize=8.5, color=GREY, transform=axes.transAxes)


def _percentiles(results: Results) -> tuple[Figure, Rows]:
    """Draw a line for each of the worst buckets, in the unit of the key."""
    worst = results.nearest(_MOST_BUCKETS)
    line = (
        "Of the minutes of a bucket's worst day on its busiest broker; percentiles are within "
        "0.5 %. Right of the line is over the limit, on a logarithmic scale."
    )
    title = "Percentiles as a share of the limit"
    figure = new_figure(title, line, 1.6 + 0.32 * max(len(worst), 5))
    axes = figure.add_subplot()
    if worst:
        _draw_percentiles(axes, worst)
    else:
        say_empty(axes, "No bucket has a limit here.")
    return figure, [
        (*item.identity, item.label, *(str(item.day[name]) for name in _OF_DAY)) for item in worst
    ]


def _draw_percentiles(axes: Axes, worst: Sequence[NearLimit]) -> None:
    lines = np.arange(len(worst))
    shares = {
        name: np.array([item.day[name] / item.day["limit"] for item in worst])
        for name, _, _ in _PERCENTILES
    }
    highest = max(1.1, 1.1 * float(np.max(shares["peak"])))
    axes.axvspan(1.0, highest, color=VERMILION, alpha=0.07, linewidth=0)
    axes.axvline(1.0, color=BLACK, linewidth=1.2, dashes=(4, 2))
    axes.hlines(lines, shares["p50"], shares["peak"], color="#C8C8C8", linewidth=2.2, zorder=1)
    for name, marker, colour in _PERCENTILES:
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
    limits.set_yticks(lines, [value_in_words(item.day["key"], item.day["limit"]) for item in worst])
    limits.tick_params(length=0, labelsize=8, labelcolor=GREY)
    limits.spines[:].set_visible(False)


Picture = tuple[Callable[[Results], tuple[Figure, Rows]], Sequence[str]]
"""What draws it, and the header of its rows."""

_PICTURES: Final[Mapping[str, Picture]] = {
    "utilization_heat_map": (_heat_map, (*_BUCKET, "hour", "utilisation")),
    "rate_against_limit": (
        _rates,
        (*_BUCKET, "broker_id", "ts", *_OF_MINUTE),
    ),
    "percentile_ladder": (_percentiles, (*_BUCKET, *_OF_DAY)),
}
"""The file names, what draws each, and the columns of its CSV."""
