"""What a minute says beside its limit: throttled, over it, in which bin of rates."""

import math
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from app.domain.plan_impact import BIN_RATIO, ZERO_BIN

_LN_RATIO: Final = math.log(BIN_RATIO)
_MOST_BYTES: Final = 10**13
"""No broker moves more in a minute; it keeps the sums of absurd rates within 64 bits."""


def usable_limit(limit: Column) -> Column:
    """Return the limit where a rate can be compared with it, else null.

    Other tools store NaN, zero and negative limits. A broker never finds a rate above NaN; the
    others have no sensible ratio.
    """
    return sf.when((limit > 0) & ~sf.isnan(limit), limit)


def throttle_ms() -> Column:
    """Return the longest throttling that was recorded in the minute, in ms; null for none."""
    return sf.greatest("throttle_ms_avg", "throttle_ms_max")


def is_throttled() -> Column:
    """Tell whether the broker throttled; never null."""
    return sf.coalesce(throttle_ms() > 0, sf.lit(False))


def is_over(share: float) -> Column:
    """Tell whether the highest rate was above this share of the limit; never null."""
    limit = sf.col("limit")
    return sf.coalesce(
        (sf.col("rate_max") > sf.lit(share) * limit) & ~sf.isnan(limit), sf.lit(False)
    )


def is_violating() -> Column:
    """Tell whether the broker throttled, or the highest rate was above the limit; never null."""
    return is_throttled() | is_over(1.0)


def deferred_bytes() -> Column:
    """Estimate how many bytes of a minute had to wait, in whole bytes; null for other rates.

    What exceeds the limit waits for as long as the broker throttled: (rate_max - limit) x seconds,
    of which a minute has 60 at most. A broker that delays well keeps the rate at the limit, and
    hides what clients still hold back: the true figure may be larger.
    """
    over = sf.greatest(sf.col("rate_max") - usable_limit(sf.col("limit")), sf.lit(0.0))
    seconds = sf.least(throttle_ms() / 1000, sf.lit(60.0))
    waiting = sf.least(sf.coalesce(over * seconds, sf.lit(0.0)), sf.lit(float(_MOST_BYTES)))
    return sf.when(sf.col("key").endswith("_byte_rate"), sf.floor(waiting))


def rate_bin(rate: Column) -> Column:
    """Return the bin of a rate: floor(ln(rate) / ln(1.01)).

    Spark's logarithm is Java's StrictMath, so a rate on a border has the same bin on any machine.
    """
    number = sf.floor(sf.ln(rate) / sf.lit(_LN_RATIO)).cast("int")
    return sf.when(rate > 0, number).otherwise(sf.lit(ZERO_BIN))


def bin_middle(number: Column) -> Column:
    """Return the rate that stands for a bin: its geometric middle, 0 for the bin of zero."""
    middle = sf.exp((number + sf.lit(0.5)) * sf.lit(_LN_RATIO))
    return sf.when(number == ZERO_BIN, sf.lit(0.0)).otherwise(middle)


def value_at_rank(percent: int, values: str) -> Column:
    """Return the value of rank ceil(percent / 100 x n) of a sorted array; null of an empty one."""
    # In integers: 0.95 is no binary fraction.
    return sf.expr(f"get({values}, int(({percent} * size({values}) + 99) div 100) - 1)")
