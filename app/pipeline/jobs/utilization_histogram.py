"""A histogram of rates whose bins grow by one percent: mergeable, and in no order.

The counts of two histograms add up, so days, brokers and partitions merge exactly. A percentile is
the geometric middle of its bin, at most 0.5 % away from the rate of that rank.
"""

import math
from typing import Final

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as sf

from app.pipeline.jobs.strict_math import Doubles, exp, log
from app.pipeline.sources.codes import Integers

ZERO_BIN: Final = -(2**31)
"""The bin of a rate of zero: the smallest int."""

_LN_RATIO: Final = math.log(1.01)


def bins_of(rates: Doubles) -> Integers:
    """Return the bins of rates.

    A logarithm with other bits may put a rate that lies exactly on a border into the neighbouring
    bin, so it is one that every machine computes alike.
    """
    is_positive = rates > 0
    numbers = np.floor(log(np.where(is_positive, rates, 1.0)) / _LN_RATIO)
    return np.where(is_positive, numbers.astype(np.int64), ZERO_BIN)


def middles_of(bins: Integers) -> Doubles:
    """Return the rates that stand for bins: their geometric middles, 0 for the bin of zero."""
    is_zero = bins == ZERO_BIN
    middles = exp((np.where(is_zero, 0, bins) + 0.5) * _LN_RATIO)
    return np.where(is_zero, 0.0, middles)


def rank_of(percent: int, count: str) -> Column:
    """Return ceil(percent / 100 x count), in integers: 0.95 is no binary fraction."""
    return sf.expr(f"({percent} * {count} + 99) div 100")


def rank_in(percent: int, counts: Integers) -> Integers:
    """Return the same of numbers."""
    return (percent * counts + 99) // 100
