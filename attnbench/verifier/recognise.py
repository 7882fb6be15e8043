"""Known mistakes of a log-sum-exp, named by what they make of the exact numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attnbench.types.rule import Array

_BY_FAR = 20
"""A mistake explains numbers if they are so many times nearer to what it gives than to the exact ones."""


def log_sum_mistake(got: Array, exact: Array) -> str:
    """Return in words which known mistakes made wrong logarithms of sums, and the remedy; "" for none."""
    empty = np.isneginf(exact)
    found = []
    if empty.any() and np.isposinf(got[empty]).all():
        found.append("rows without keys have +inf: give -inf")
    if empty.any() and not got[empty].any():
        found.append("rows without keys have 0: give -inf")
    own, right = got[~empty], exact[~empty]
    with np.errstate(invalid="ignore"):
        off, off_base_2 = (np.abs(own - each).max(initial=0) for each in (right, right / np.log(2)))
    if np.isfinite(own).all() and _BY_FAR * off_base_2 < off:
        found.append("these are logarithms to base 2: multiply them by ln 2 = 0.693147")
    return "; ".join(found)
