"""The rates of the worst buckets beside their limits, on the worst day of each."""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from app.pipeline.plots.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    SKY,
    legend_above,
    minutes_of,
    new_figure,
    say_empty,
)
from app.pipeline.summary import NearLimit, Results, Row, amount, entity_name

HEADER: Final = (
    *("cluster_id", "bucket_id", "bucket", "broker_id", "ts", "rate_avg", "rate_max", "limit"),
    *("throttle_ms", "violating"),
)

_BUCKETS: Final = 4
_MINUTE: Final = timedelta(minutes=1)
_MINUTES: Final = 1440
_TITLE: Final = "Rates against limits"
_LINE: Final = (
    "The buckets nearest to their limits, each on its busiest broker and worst day. Shaded: "
    "minutes that were throttled or whose maximum was over the limit. Times are UTC."
)


def draw(results: Results) -> tuple[Figure, list[Sequence[Any]]]:
    """Draw a panel for each of the worst buckets.

    Returns:
        The figure, and rows of ``HEADER``: rates in the unit of the key, throttling in ms.
    """
    days = [(item, minutes_of(results, item)) for item in results.nearest(_BUCKETS)]
    panels = [(item, rows) for item, rows in days if rows]
    figure = new_figure(_TITLE, _LINE, 1.0 + 2.1 * max(len(panels), 1))
    if not panels:
        say_empty(figure.add_subplot(), "No bucket with a limit has minutes here.")
    for number, (item, rows) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        _draw(axes, item, rows)
        if number == 0:
            legend_above(axes)
    return figure, [_csv_row(item, row) for item, rows in panels for row in rows]


def _is_violating(row: Row) -> bool:
    limit = row["limit"]
    return _throttle_ms(row) > 0 or (limit is not None and row["rate_max"] > limit)


def _throttle_ms(row: Row) -> float:
    return max(row["throttle_ms_avg"] or 0.0, row["throttle_ms_max"] or 0.0)


def _csv_row(item: NearLimit, row: Row) -> Sequence[Any]:
    bucket = (*item.identity, item.label, row["broker_id"], row["ts"].isoformat())
    measured = (row["rate_avg"], row["rate_max"], row["limit"], _throttle_ms(row))
    return (*bucket, *measured, _is_violating(row))


def _draw(axes: Axes, item: NearLimit, rows: Sequence[Row]) -> None:
    """Draw every minute of the day: those without a row are NaN, where no line is drawn."""
    key, midnight = item.day["key"], datetime.combine(item.day["dt"], time(), UTC)
    times: Any = [midnight + _MINUTE * number for number in range(_MINUTES)]
    by_time = {row["ts"]: row for row in rows}

    def series(name: str) -> list[float]:
        values = (by_time[at][name] if at in by_time else None for at in times)
        return [float("nan") if value is None else value for value in values]

    violating = [at in by_time and _is_violating(by_time[at]) for at in times]
    axes.fill_between(
        times, series("rate_avg"), color=SKY, alpha=0.35, linewidth=0, label="average"
    )
    axes.plot(times, series("rate_max"), color=BLUE, linewidth=1.1, label="maximum")
    axes.step(
        times,
        series("limit"),
        color=BLACK,
        linewidth=1.3,
        dashes=(4, 2),
        where="post",
        label="limit",
    )
    axes.fill_between(
        times,
        1.0,
        where=violating,
        step="post",
        transform=axes.get_xaxis_transform(),
        color=ORANGE,
        alpha=0.35,
        linewidth=0,
        label="throttled or over",
    )
    axes.set_xlim(times[0], times[-1])
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value, key)))
    axes.grid(axis="y")
    entity = entity_name(item.names)
    limit = f"limit {amount(item.day['limit'], key)}{entity and f' by {entity}'}"
    axes.set_title(f"{item.label}\n", loc="left", fontsize=10, fontweight="bold", color=BLACK)
    day = f"broker {item.day['broker_id']}, {item.day['dt']:%d %b %Y}, {limit}"
    axes.text(0, 1.04, day, fontsize=8.5, color=GREY, transform=axes.transAxes)
