"""A histogram of rates whose bins grow by one percent: mergeable, and in no order.

The counts of two histograms add up, so days, brokers and partitions merge exactly. A percentile is
the geometric middle of its bin, at most 0.5 % away from the rate of that rank.
"""

import math
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from app.pipeline.sources.codes import Integers

ZERO_BIN: Final = -(2**31)
"""The bin of a rate of zero: the smallest int."""

_LN_RATIO: Final = math.log(1.01)


def bin_of(rate: Column) -> Column:
    """Return the bin of a rate, an int.

    Every bin is computed by this expression: Spark's logarithm is Java's ``StrictMath.log``, which
    has the same bits on every machine, while other libraries may put a rate that lies exactly on a
    border into the neighbouring bin.
    """
    return (
        sf.when(rate > 0, sf.floor(sf.ln(rate) / sf.lit(_LN_RATIO)))
        .otherwise(sf.lit(ZERO_BIN))
        .cast("int")
    )


def middle_of(one: Column) -> Column:
    """Return the rate that stands for a bin: its geometric middle, 0 for the bin of zero."""
    middle = sf.exp((one + sf.lit(0.5)) * sf.lit(_LN_RATIO))
    return sf.when(one == ZERO_BIN, sf.lit(0.0)).when(one.isNotNull(), middle)


def rank_of(percent: int, count: str) -> Column:
    """Return ceil(percent / 100 x count), in integers: 0.95 is no binary fraction."""
    return sf.expr(f"({percent} * {count} + 99) div 100")


def rank_in(percent: int, counts: Integers) -> Integers:
    """Return the same of numbers."""
    return (percent * counts + 99) // 100
