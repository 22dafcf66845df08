"""The rates of the worst buckets beside their limits, on the worst day of each."""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, HourLocator
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from app.pipeline.plots.data import Results, Row, Worst
from app.pipeline.plots.names import amount, short_amount
from app.pipeline.plots.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    SKY,
    headline,
    new_figure,
    say_empty,
)

_BUCKETS: Final = 4
_MINUTE: Final = timedelta(minutes=1)
_TITLE: Final = "Rates against limits"
_LINE: Final = (
    "The buckets nearest to their limits, each on its busiest broker and worst day. Shaded: "
    "minutes that were throttled or whose maximum was over the limit. Times are UTC."
)

HEADER: Final = (
    *("cluster_id", "bucket_id", "bucket", "broker_id", "ts", "rate_avg", "rate_max", "limit"),
    *("throttle_ms", "violating"),
)


def rates(results: Results) -> tuple[Figure, list[Sequence[Any]]]:
    """Draw a panel for each of the worst buckets.

    Returns:
        The figure, and rows of ``HEADER``: rates in the unit of the key, throttling in ms.
    """
    worst = results.worst(_BUCKETS)
    minutes = results.minutes(worst)
    days = [(item, _day(minutes, item)) for item in worst]
    shown = [(item, rows) for item, rows in days if rows]
    figure = new_figure(1.0 + 2.1 * max(len(shown), 1))
    headline(figure, _TITLE, _LINE)
    if not shown:
        say_empty(figure.add_subplot(), "No bucket with a limit has minutes here.")
    for number, (item, rows) in enumerate(shown):
        axes = figure.add_subplot(len(shown), 1, number + 1)
        _draw(axes, item, rows)
        if number == 0:
            axes.legend(
                loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False, fontsize=8
            )
    return figure, [_csv_row(item, row) for item, rows in shown for row in rows]


def _day(minutes: pa.Table, one: Worst) -> list[Row]:
    chosen = minutes
    for name in ("cluster_id", "bucket_id", "broker_id", "dt"):
        chosen = chosen.filter(pc.equal(chosen[name], one.day[name]))
    rows: list[Row] = chosen.sort_by("ts").to_pylist()
    return rows


def _violating(row: Row) -> bool:
    limit = row["limit"]
    return _throttle_ms(row) > 0 or (limit is not None and row["rate_max"] > limit)


def _throttle_ms(row: Row) -> float:
    return max(row["throttle_ms_avg"] or 0.0, row["throttle_ms_max"] or 0.0)


def _csv_row(one: Worst, row: Row) -> Sequence[Any]:
    ours = (*one.identity, one.label, row["broker_id"], row["ts"].isoformat())
    measured = (row["rate_avg"], row["rate_max"], row["limit"], _throttle_ms(row))
    return (*ours, *measured, _violating(row))


def _draw(axes: Axes, one: Worst, rows: Sequence[Row]) -> None:
    filled = _with_gaps(rows)
    times = [moment for moment, _ in filled]
    highest = [row["rate_max"] if row else float("nan") for _, row in filled]
    average = [row["rate_avg"] if row else float("nan") for _, row in filled]
    limits = [_limit(row) for _, row in filled]
    axes.fill_between(times, average, color=SKY, alpha=0.35, linewidth=0, label="average")  # type: ignore[arg-type]
    axes.plot(times, highest, color=BLUE, linewidth=1.1, label="maximum")  # type: ignore[arg-type]
    axes.step(times, limits, color=BLACK, linewidth=1.3, dashes=(4, 2), where="post", label="limit")  # type: ignore[arg-type]
    for number, (begin, end) in enumerate(_spans(rows)):
        label = "throttled or over" if number == 0 else None
        axes.axvspan(begin, end, color=ORANGE, alpha=0.35, linewidth=0, label=label)  # type: ignore[arg-type]
    _dress(axes, one)


def _dress(axes: Axes, one: Worst) -> None:
    key, day = one.day["key"], datetime.combine(one.day["dt"], time(), UTC)
    axes.set_xlim(day, day + timedelta(days=1))  # type: ignore[arg-type]
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(HourLocator(byhour=range(0, 24, 3), tz=UTC))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_amount(value, key)))
    axes.grid(axis="y", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    by = f" by {one.quota}" if one.quota else ""
    limit = f"limit {amount(one.day['limit'], key)}{by}"
    told = f"broker {one.day['broker_id']}, {one.day['dt']:%d %b %Y}, {limit}"
    axes.set_title(one.label, loc="left", fontsize=10, fontweight="bold", color=BLACK, pad=18)
    axes.annotate(
        told, (0, 1), (0, 5), "axes fraction", textcoords="offset points", fontsize=8.5, color=GREY
    )


def _limit(row: Row | None) -> float:
    return row["limit"] if row and row["limit"] is not None else float("nan")


def _with_gaps(rows: Sequence[Row]) -> list[tuple[datetime, Row | None]]:
    """Put a hole where minutes are missing, so that no line is drawn across it."""
    filled: list[tuple[datetime, Row | None]] = []
    for row in rows:
        if filled and row["ts"] - filled[-1][0] > _MINUTE:
            filled.append((filled[-1][0] + _MINUTE, None))
        filled.append((row["ts"], row))
    return filled


def _spans(rows: Sequence[Row]) -> list[tuple[datetime, datetime]]:
    spans: list[tuple[datetime, datetime]] = []
    for row in filter(_violating, rows):
        end = row["ts"] + _MINUTE
        if spans and spans[-1][1] == row["ts"]:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((row["ts"], end))
    return spans
