"""What a minute says beside its limit: throttled, over it, in which bin of rates."""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.plan_impact import BIN_RATIO, ZERO_BIN
from app.domain.quota_keys import QUOTA_KEY_RULES

_LN_RATIO: Final = math.log(BIN_RATIO)
_NEAR: Final = 1e-9
BYTE_KEYS: Final = [str(key) for key, rule in QUOTA_KEY_RULES.items() if rule.unit == "bytes/s"]
"""The keys whose rates are in bytes."""

Numbers = np.ndarray[Any, Any]
"""A column of a task of Arrow."""


def usable(limits: Numbers) -> Numbers:
    """Return limits where a rate can be compared with them, else NaN.

    Other tools store NaN, zero and negative limits. A broker never finds a rate above NaN; the
    others have no sensible ratio.
    """
    return np.where(limits > 0, limits, np.nan)


def hours_of_epoch(rows: pa.Table) -> Numbers:
    """Return the hours of rows with ``dt`` and ``hour``, counted from the epoch."""
    days = rows["dt"].cast(pa.int32()).to_numpy().astype(np.int64)
    hours: Numbers = days * 24 + rows["hour"].to_numpy()
    return hours


def begins_of(*columns: Numbers) -> Numbers:
    """Return where runs of equal values begin."""
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)


def ends_of(begins: Numbers, number: int) -> Numbers:
    """Return the last row of each run of a number of rows."""
    found: Numbers = np.append(begins[1:], number)[: len(begins)] - 1
    return found


def with_columns(rows: pa.Table, columns: Mapping[str, Numbers | pa.Array]) -> pa.Table:
    """Append columns to rows; NaN of numbers is null."""
    for name, column in columns.items():
        array = pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column
        rows = rows.append_column(name, array)
    return rows


def ranks_of(column: pa.ChunkedArray) -> Numbers:
    """Return the number of each value among the different ones, in their order."""
    numbers, _ = ranks_and_values(column.combine_chunks())
    return numbers


def ranks_and_values(column: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return the number of each value among the different ones, and these in order."""
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[encoded.indices.to_numpy()], encoded.dictionary.take(order)


def bit_length(present: Numbers) -> Numbers:
    """Return the number of the highest bit of numbers of 60 bits, from 1 on."""
    upper, lower = present >> 30, present & 2**30 - 1
    highest: Numbers = np.where(upper > 0, 30 + np.frexp(upper)[1], np.frexp(lower)[1])
    return highest


def times_true(claims: Numbers, begins: Numbers) -> Numbers:
    """Count in each run how often a claim holds."""
    return np.add.reduceat(claims, begins, dtype=np.int32)


def rate_bins(rates: Numbers) -> Numbers:
    """Return the bins of rates: floor(ln(rate) / ln(1.01)), as the service does it of a limit.

    Vectorized logarithms differ in their last bits. Near a border Python's own decides.
    """
    is_positive = rates > 0
    numbers = np.log(rates, out=np.zeros(len(rates)), where=is_positive) / _LN_RATIO
    near = np.flatnonzero(is_positive & (np.abs(numbers - np.rint(numbers)) < _NEAR))
    numbers[near] = [math.log(rate) / _LN_RATIO for rate in rates[near].tolist()]
    return np.where(is_positive, np.floor(numbers), ZERO_BIN).astype(np.int32)


def bin_middles(bins: Numbers) -> Numbers:
    """Return the rates that stand for bins: their geometric middles, 0 for the bin of zero."""
    different, rows = np.unique(bins, return_inverse=True)
    middles = _exp((different.astype(float) + 0.5) * _LN_RATIO)
    middles[different == ZERO_BIN] = 0.0
    found: Numbers = middles[rows]
    return found


_LN2: Final = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_INVERSE_LN2: Final = 1.44269504088896338700e00
_OF_EXP: Final = (
    *(1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05),
    *(-1.65339022054652515390e-06, 4.13813679705723846039e-08),
)


def _exp(x: Numbers) -> Numbers:
    """Return e^x with the same last bits on all machines, and as Java's ``StrictMath.exp``.

    Source: ``e_exp.c`` of fdlibm.
    """
    size = np.abs(x)
    number = np.trunc(_INVERSE_LN2 * x + np.copysign(0.5, x))
    number = np.where(size < 1.5 * sum(_LN2), np.sign(x), number)
    number[size <= 0.5 * sum(_LN2)] = 0.0
    high, low = x - number * _LN2[0], number * _LN2[1]
    rest = high - low
    square = rest * rest
    series = 0.0 * rest
    for factor in reversed(_OF_EXP):
        series = square * (factor + series)
    series = rest - series
    product = rest * series
    near = 1.0 - (product / (series - 2.0) - rest)
    far = 1.0 - ((low - product / (2.0 - series)) - high)
    with np.errstate(over="ignore"):
        found: Numbers = np.ldexp(np.where(number == 0, near, far), number.astype(int))
    return found
