"""e^x as plain arithmetic, so that a loop over it becomes vector instructions.

LLVM has no vector form of the C library's exp; a call for each element would take most of the time.
The argument is reduced by a multiple n of ln 2, in two parts so that nothing is lost (Cody and Waite 1980,
Software Manual for the Elementary Functions, chapter 6), the rest goes into the Taylor series, and 2^n is
written into the bits of the exponent.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, log
from typing import Any

import numpy as np


def make_exponential(dtype: str) -> Callable[[Any], Any]:
    """A function for compiled loops: e^x within two ulp, of one number, 0 at most, of ``dtype``.

    dtype: float32 or float64. Below the smallest normal number it gives 0, of -inf too; NaN stays NaN.
    """
    import numba.extending

    real = np.float32 if dtype == "float32" else np.float64
    whole = np.int32 if dtype == "float32" else np.int64
    bits = np.finfo(real).nmant
    # Adding and taking away 1.5·2^bits leaves the nearest whole number, and that number in the low bits.
    round_off = real(1.5 * 2**bits)
    exponent_of_1, one_over_ln2 = whole(np.finfo(real).maxexp - 1), real(1 / log(2))
    ln2_high = real(0.693359375) if dtype == "float32" else real(6.93147180369123816490e-01)
    ln2_low = real(-2.12194440e-4) if dtype == "float32" else real(1.90821492927058770002e-10)
    lowest, zero = real(np.log(np.finfo(real).tiny)), real(0)
    shift, series = whole(bits), _series(dtype)

    # No reassociation, which would undo the rounding; only fused multiply-add. It is compiled with the loops:
    # compiled here, it would be another object in each process, and the cache would never find its loops.
    @numba.extending.register_jitable(fastmath={"contract"}, error_model="numpy")
    def exponential(x: Any) -> Any:
        # Written so that NaN goes on and is not replaced.
        reduced = lowest if x < lowest else x
        shifted = reduced * one_over_ln2 + round_off
        n = shifted - round_off
        rest = (reduced - n * ln2_high) - n * ln2_low
        power = whole((real(shifted).view(whole) + exponent_of_1) << shift).view(real)
        return zero if x < lowest else series(rest) * power

    made: Callable[[Any], Any] = exponential
    return made


def _series(dtype: str) -> Callable[[Any], Any]:
    """The Taylor series of e^x for |x| ≤ ln 2 / 2, to the term below an ulp. A loop would stay one."""
    import numba.extending

    real = np.float32 if dtype == "float32" else np.float64
    c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 = (real(1 / factorial(n)) for n in range(2, 14))
    c1 = real(1)

    def short(x: Any) -> Any:
        return c1 + x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * (c5 + x * (c6 + x * c7))))))

    def long(x: Any) -> Any:
        tail = c7 + x * (c8 + x * (c9 + x * (c10 + x * (c11 + x * (c12 + x * c13)))))
        return c1 + x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * (c5 + x * (c6 + x * tail))))))

    chosen = short if dtype == "float32" else long
    made: Callable[[Any], Any] = numba.extending.register_jitable(fastmath={"contract"}, error_model="numpy")(
        chosen
    )
    return made
