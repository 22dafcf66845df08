"""Logarithms and powers with the same bits on every machine, whole columns at a time.

Libraries differ in the last bit, and by machine; Java's ``StrictMath`` is defined to the bit. These
functions take its steps in its order, each of which IEEE 754 settles.

Source: ``e_log.c`` and ``e_exp.c`` of fdlibm 5.3, which ``StrictMath.log`` and ``exp`` are.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

_LN2_HI: Final = 6.93147180369123816490e-01
_LN2_LO: Final = 1.90821492927058770002e-10
_INV_LN2: Final = 1.44269504088896338700e00
_LG: Final = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01),
    *(2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01),
    1.479819860511658591e-01,
)
_P: Final = (
    *(1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05),
    *(-1.65339022054652515390e-06, 4.13813679705723846039e-08),
)
_TWO54: Final = 2.0**54
_TWO1000: Final = 2.0**1000
_LARGEST: Final = 7.09782712893383973096e02
_SMALLEST: Final = -7.45133219101941108420e02
_HALF_LN2: Final = 0x3FD62E42
_ONE_AND_A_HALF_LN2: Final = 0x3FF0A2B2
_TINY: Final = 0x3E300000


def log(values: Doubles) -> Doubles:
    """Return the natural logarithms of positive finite numbers."""
    subnormal = values < np.finfo(np.float64).tiny
    bits = (values * np.where(subnormal, _TWO54, 1.0)).view(np.int64)
    high = bits >> 32
    k = np.where(subnormal, -54, 0) + (high >> 20) - 1023
    high &= 0xFFFFF
    i = (high + 0x95F64) & 0x100000
    scaled = ((high | (i ^ 0x3FF00000)) << 32) | (bits & 0xFFFFFFFF)
    k += i >> 20
    f = scaled.view(np.float64) - 1.0
    power = k.astype(np.float64)
    near_one = (0xFFFFF & (2 + high)) < 3
    return np.where(near_one, _log_near_one(f, power), _log_elsewhere(f, power, high))


def _log_near_one(f: Doubles, k: Doubles) -> Doubles:
    """Of 1 + f where f is less than 2^-20."""
    r = f * f * (0.5 - 0.33333333333333333 * f)
    usual = np.where(k == 0, f - r, k * _LN2_HI - ((r - k * _LN2_LO) - f))
    return np.where(f == 0, k * _LN2_HI + k * _LN2_LO, usual)


def _log_elsewhere(f: Doubles, k: Doubles, high: Any) -> Doubles:
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (_LG[1] + w * (_LG[3] + w * _LG[5]))
    t2 = z * (_LG[0] + w * (_LG[2] + w * (_LG[4] + w * _LG[6])))
    r = t2 + t1
    middle = ((high - 0x6147A) | (0x6B851 - high)) > 0
    half = 0.5 * f * f
    with_half = np.where(
        k == 0,
        f - (half - s * (half + r)),
        k * _LN2_HI - ((half - (s * (half + r) + k * _LN2_LO)) - f),
    )
    without = np.where(k == 0, f - s * (f - r), k * _LN2_HI - ((s * (f - r) - k * _LN2_LO) - f))
    return np.where(middle, with_half, without)


def exp(values: Doubles) -> Doubles:
    """Return the powers of e of finite numbers."""
    inside = np.clip(values, _SMALLEST, _LARGEST)
    size = (inside.view(np.int64) >> 32) & 0x7FFFFFFF
    sign = np.where(inside < 0, -1, 1)
    rounded = np.trunc(_INV_LN2 * inside + 0.5 * sign).astype(np.int64)
    k = np.where(size < _ONE_AND_A_HALF_LN2, sign, rounded)
    k = np.where(size > _HALF_LN2, k, 0)
    power = k.astype(np.float64)
    high, low = inside - power * _LN2_HI, power * _LN2_LO
    x = np.where(k == 0, inside, high - low)
    t = x * x
    c = x - t * (_P[0] + t * (_P[1] + t * (_P[2] + t * (_P[3] + t * _P[4]))))
    plain = 1.0 - ((x * c) / (c - 2.0) - x)
    y = np.where(k == 0, plain, 1.0 - ((low - (x * c) / (2.0 - c)) - high))
    y = np.where(size < _TINY, 1.0 + inside, y)
    raised = (y.view(np.int64) + (np.where(k >= -1021, k, k + 1000) << 52)).view(np.float64)
    told = np.where(k >= -1021, raised, raised / _TWO1000)
    return np.where(values > _LARGEST, np.inf, np.where(values < _SMALLEST, 0.0, told))
