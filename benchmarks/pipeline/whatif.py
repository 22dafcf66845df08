"""The recursion of ``whatif`` against DuckDB's windows: the same minutes, limits and two cores.

``python -m benchmarks.pipeline.whatif LAKE`` reads ``rate_minute`` and ``series`` that ``ingest``
wrote, without ``controller_mutation_rate``: a bucket of tokens is no sum of windows. Each name is a
bucket of its own, and its limit is a multiple of its average.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.domain.throttling import CREDITS_S, LATEST_S, TOKEN_KEY
from app.pipeline.by_partition import Columns, columns_of
from app.pipeline.lake import Lake
from app.pipeline.partitions import Partition
from app.pipeline.spark import spark_session
from app.pipeline.tables import RATE_MINUTE, SERIES
from app.pipeline.whatif.minutes import RATES, throttled_buckets
from benchmarks.measures import grid
from benchmarks.pipeline.duckdb_arm import connected
from benchmarks.pipeline.rounds import run_in_turn, times_of

_CORES: Final = 2
_HEADROOM: Final = 1.2
"""Times its average: the limit of a name, so that its peaks are throttled."""

_LOW, _MID, _HIGH = CREDITS_S

_SQL: Final = """
    with minute as (
      select series_id, broker_id, epoch(ts)::bigint // 60 as number, rate_avg, "limit" as q,
        greatest(rate_avg, rate_max) as rate
      from read_parquet('{lake}/rate_minute/**/*.parquet', hive_partitioning = true)
      join limits using (series_id)
    ), phase as (
      select *, case when rate > 0 then least(60, 60 * rate_avg / rate) else 0 end as busy,
        60 * coalesce(number - (lag(number) over turn) - 1, 0) as gap
      from minute window turn as (partition by series_id, broker_id order by number)
    ), added as (
      select *, (rate - q) * busy - q * (60 - busy) as net,
        sum((rate - q) * busy - q * (60 - busy) - q * gap) over turn as at_end
      from phase window turn as (partition by series_id, broker_id order by number)
    ), least_before as (
      select *, min(least(at_end - net, at_end)) over (turn rows between unbounded preceding and
        1 preceding) as low, lag(at_end, 1, 0) over turn as former
      from added window turn as (partition by series_id, broker_id order by number)
    ), burst as (
      select *, at_end - net - least(0, coalesce(low, 0), at_end - net) as waits,
        former - least(0, coalesce(low, 0)) as left_over
      from least_before
    ), peak as (
      select *, rate - q as excess, greatest(waits + (rate - q) * busy, 0) as peak,
        least(gap, left_over / q) as idle
      from burst
    )
    select count(*), {columns} from (
      select series_id, broker_id, {sums} from peak group by all
    )
"""


def _throttled(credit_s: float) -> str:
    burst = (
        "case when waits > 1e-2 then "
        "case when excess >= 0 then busy else least(busy, waits / -excess) end "
        f"when excess > 0 then greatest(busy - least({credit_s} * q / excess, {LATEST_S}), 0)"
        " else 0 end"
    )
    return f"sum({burst} + least(60 - busy, peak / q) + idle)"


Answer = tuple[float, ...]
"""How many buckets on brokers, and the throttled seconds of all: low, middle, high."""


def main() -> int:
    """Run both in turn, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.whatif")
    parser.add_argument("lake", type=Path)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="after the first")
    options = parser.parse_args()
    lake = options.lake.absolute()
    with spark_session("benchmark", master=f"local[{_CORES}]", settings={}) as session:
        limits = _limits(session, lake).toArrow()
        arms: Mapping[str, Callable[[], Answer]] = {
            "whatif, Arrow": lambda: _in_arrow(session, lake, limits),
            "DuckDB, windows": lambda: _in_duckdb(lake, limits),
        }
        seconds, _ = run_in_turn(arms, options.rounds, differ=_differ)
    least = statistics.median(seconds["DuckDB, windows"])
    rows = [
        [name, *times_of(each), f"{statistics.median(each) / least:.2f}"]
        for name, each in seconds.items()
    ]
    print(grid(("arm", "median s", "least s", "most s", "to DuckDB"), rows))
    return 0


def _limits(session: SparkSession, folder: Path) -> DataFrame:
    """Return a limit for each name."""
    lake = Lake(session, str(folder))
    names = lake.read(SERIES).where(sf.col("key") != TOKEN_KEY.value)
    rates = lake.read(RATE_MINUTE).groupBy("series_id").agg(sf.avg("rate_avg").alias("average"))
    own = rates.join(names.select("series_id").distinct(), "series_id").where("average > 0")
    return own.select("series_id", (sf.round(sf.col("average") * _HEADROOM, 3)).alias("limit"))


def _in_arrow(session: SparkSession, folder: Path, limits: pa.Table) -> Answer:
    lake, names = Lake(session, str(folder)), limits["series_id"]
    members = {
        "series_id": names,
        "bucket_id": names,
        **dict.fromkeys(("in_now", "in_new"), pa.repeat(True, len(names))),
        "limit_now": pa.nulls(len(names), pa.float64()),
        "limit_new": limits["limit"],
        "has_tokens": pa.repeat(False, len(names)),
    }

    def read(hour: Partition) -> pa.Table:
        return columns_of([lake], Columns(RATE_MINUTE, RATES), [hour])

    found = throttled_buckets(read, lake.partitions(RATE_MINUTE), pa.table(members))
    figures = ("throttled_s_new_low", "throttled_s_new", "throttled_s_new_high")
    return (len(found), *(pc.sum(found[name]).as_py() for name in figures))


def _in_duckdb(folder: Path, limits: pa.Table) -> Answer:
    engine = connected(_CORES)
    engine.register("limits", limits)
    names = ("low", "mid", "high")
    sums = (_throttled(credit) for credit in (_LOW, _MID, _HIGH))
    text = _SQL.format(
        lake=folder,
        columns=", ".join(f"sum({name})" for name in names),
        sums=", ".join(f"{item} as {name}" for item, name in zip(sums, names, strict=True)),
    )
    row = engine.execute(text).fetchone()
    engine.close()
    return tuple(row or ())


def _differ(ours: Answer, theirs: Answer) -> bool:
    """Tell whether answers differ by more than rounding."""
    both = zip(ours, theirs, strict=True)
    return any(abs(mine - other) > 1e-4 * max(abs(other), 1) for mine, other in both)


if __name__ == "__main__":
    raise SystemExit(main())
