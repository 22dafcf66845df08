"""``whatif_timeline`` as a picture: rates beside both limits, and what would wait."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from pyspark.sql import functions as sf

from app.domain.quantities import value_in_words
from app.pipeline.folders import retried
from app.pipeline.job import Job
from app.pipeline.lake import Lake, read_any
from app.pipeline.picture_style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
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
from app.pipeline.summary import Row, bucket_name, key_name
from app.pipeline.tables import WHATIF_ENTITY, WHATIF_TIMELINE

_NAME: Final = "whatif_timeline"
_MOST_PANELS: Final = 4
_MINUTE: Final = timedelta(minutes=1)
_MOST_POINTS: Final = 20_000
_COLUMNS: Final = (
    *("ts", "rate_avg", "rate_max", "limit_now", "limit_new", "waiting", "waiting_max"),
    *("throttled_s_now", "throttled_s_new_low", "throttled_s_new", "throttled_s_new_high"),
    "censored",
)
_HEADER: Final = ("cluster_id", "run_id", "bucket_id", "bucket", "key", "broker_id", *_COLUMNS)


def draw_timelines(
    job: Job, lakes: Sequence[Lake], folder: Path, run_id: str | None = None
) -> None:
    """Draw the buckets that would be throttled longest, and name the files in the report.

    Args:
        job: Has the cluster.
        lakes: Where the tables are.
        folder: Where the files go.
        run_id: Of one run; without it the last by its name.

    Raises:
        OSError: They cannot be written.
    """
    retried(lambda: _draw(job, lakes, folder, run_id))


def _draw(job: Job, lakes: Sequence[Lake], folder: Path, run_id: str | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    panels = _panels(lakes, Scope.of(job), run_id)
    with style():
        figure = _figure(panels)
        files = [save(figure, folder / f"{_NAME}.png")]
    rows = [_csv_row(item, row) for item, minutes in panels for row in minutes]
    files.append(save_rows(folder / f"{_NAME}.csv", _HEADER, rows))
    job.counts.setdefault("drawn", {})[_NAME] = len(rows)
    job.counts.setdefault("pictures", []).extend(map(str, files))


def _panels(lakes: Sequence[Lake], scope: Scope, run_id: str | None) -> list[tuple[Row, list[Row]]]:
    """Return the rows of ``WHATIF_ENTITY`` that are drawn, each with its minutes."""
    entities, timelines = read_any(lakes, WHATIF_ENTITY), read_any(lakes, WHATIF_TIMELINE)
    if entities is None or timelines is None:
        return []
    own = scope.of_cluster(timelines)
    run = run_id or own.agg(sf.max("run_id")).collect()[0][0]
    own = own.where(sf.col("run_id") == sf.lit(run))
    position = ("cluster_id", "run_id", "bucket_id", "broker_id")
    worst = entities.join(own.select(*position).distinct(), [*position])
    by = (sf.desc_nulls_last("throttled_s_new_high"), sf.desc_nulls_last("throttled_s_now"))
    found = worst.sort(*by, "key", "bucket_id", "broker_id").limit(_MOST_PANELS)
    return [
        (item, own.where(_is_of(item)).sort("ts").toArrow().to_pylist())
        for item in found.toArrow().to_pylist()
    ]


def _is_of(item: Row) -> Any:
    bucket = sf.col("bucket_id") == sf.lit(item["bucket_id"])
    return bucket & (sf.col("broker_id") == item["broker_id"])


def _csv_row(item: Row, row: Row) -> Sequence[Any]:
    named = (item["cluster_id"], item["run_id"], item["bucket_id"], bucket_name(item))
    values = [row[name] for name in _COLUMNS[1:]]
    return (*named, item["key"], item["broker_id"], row["ts"].isoformat(), *values)


def _figure(panels: Sequence[tuple[Row, list[Row]]]) -> Figure:
    line = (
        "The buckets that would be throttled longest, each on one broker. What waits is a band: "
        "nobody knows when in its minute a burst was. Times are UTC."
    )
    title = "What if: rates against the old and the new limit"
    figure = new_figure(title, line, 1.0 + 2.9 * max(len(panels), 1))
    if not panels:
        say_empty(figure.add_subplot(), "Nothing is throttled, now or under the new quotas.")
        return figure
    grid = figure.add_gridspec(2 * len(panels), 1, height_ratios=[2, 1] * len(panels))
    for number, (item, rows) in enumerate(panels):
        above = figure.add_subplot(grid[2 * number, 0])
        below = figure.add_subplot(grid[2 * number + 1, 0], sharex=above)
        _draw_rates(above, item, rows)
        _draw_waiting(below, item, rows)
        if number == 0:
            legend_above(above)
    return figure


def _times(rows: Sequence[Row]) -> list[datetime]:
    """Return every minute from the first to the last; those without a row are NaN."""
    first, last = rows[0]["ts"], rows[-1]["ts"]
    number = min((last - first) // _MINUTE + 1, _MOST_POINTS)
    return [first.astimezone(UTC) + _MINUTE * each for each in range(number)]


def _values(rows: Sequence[Row], times: Sequence[datetime], name: str) -> list[float]:
    """Return a column at each time; NaN where it is null, or there is no row."""
    values = {row["ts"]: row[name] for row in rows}
    return [float("nan") if values.get(at) is None else float(values[at]) for at in times]


def _draw_rates(axes: Axes, item: Row, rows: Sequence[Row]) -> None:
    times: Any = _times(rows)
    series = partial(_values, rows, times)
    shaded: dict[str, Any] = {"alpha": 0.35, "linewidth": 0}
    axes.fill_between(times, series("rate_avg"), color=SKY, label="average", **shaded)
    axes.plot(times, series("rate_max"), color=BLUE, linewidth=1.1, label="maximum")
    dashed: dict[str, Any] = {"linewidth": 1.3, "dashes": (4, 2)}
    axes.step(times, series("limit_now"), where="post", label="limit now", color=GREY, **dashed)
    axes.step(times, series("limit_new"), where="post", label="new limit", color=BLACK, **dashed)
    throttled = [seconds > 0 for seconds in series("throttled_s_new")]
    axes.fill_between(
        times,
        1.0,
        where=throttled,
        step="post",
        transform=axes.get_xaxis_transform(),
        color=ORANGE,
        label="would be throttled",
        **shaded,
    )
    axes.set_xlim(times[0], times[-1] + _MINUTE)
    axes.set_ylim(bottom=0)
    key = item["key"]
    axes.yaxis.set_major_locator(Ticks(key))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: value_in_words(key, value)))
    axes.tick_params(labelbottom=False)
    axes.grid(axis="y")
    name = f"{bucket_name(item)} {key_name(key)}"
    axes.set_title(f"{name}\n", loc="left", fontsize=10, fontweight="bold", color=BLACK)
    axes.text(0, 1.04, _sentence(item), fontsize=8.5, color=GREY, transform=axes.transAxes)


def _sentence(item: Row) -> str:
    limits = (
        "none" if item[name] is None else value_in_words(item["key"], item[name])
        for name in ("limit_now", "limit_new")
    )
    now, new = limits
    sentence = f"broker {item['broker_id']}, limit {now} → {new}"
    if item["throttled_s_new"] is None:
        return f"{sentence}: {item['fidelity']}"
    figures = [item[f"throttled_s_new{name}"] for name in ("", "_low", "_high")]
    mid, low, high = (f"{seconds:,.0f}" for seconds in figures)
    bound = ", at least: it was throttled" if item["censored"] else ""
    return f"{sentence}: throttled {mid} s ({low} to {high}){bound}"


def _draw_waiting(axes: Axes, item: Row, rows: Sequence[Row]) -> None:
    """Draw what waits as seconds of the new limit: so long a client would be behind."""
    times: Any = _times(rows)
    limit = item["limit_new"] or float("nan")
    low, high = (
        [value / limit for value in _values(rows, times, name)]
        for name in ("waiting", "waiting_max")
    )
    axes.fill_between(times, low, high, color=VERMILION, alpha=0.3, linewidth=0)
    axes.plot(times, high, color=VERMILION, linewidth=0.9)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("waiting", fontsize=8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f} s"))
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.grid(axis="y")
