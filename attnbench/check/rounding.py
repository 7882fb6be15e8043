"""Rounding in a coarser arithmetic: how large its errors are, and whether errors are its errors.

Limits follow from the oracle's answer to rounded inputs. Within them there may still be wrong maths with
small effects. Errors of rounding depend on the last bits of the operands. They are others, at random, if
every number of the inputs changes by a few gaps of the arithmetic. Errors of wrong maths (a lost key, a scale
that is off, a row that is too large) are smooth functions of the inputs and stay as they are. So the same
backend is called on inputs and on nudged ones, and both errors are correlated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.inputs.draw import Stored, store, widen
from attnbench.types.arithmetic import ASSUMED, UNIT
from attnbench.types.case import Dtype

if TYPE_CHECKING:
    from attnbench.types.rule import Array


def rounded(values: Array, arithmetic: str) -> Array:
    """Return numbers as an arithmetic holds them. int8: whole steps, 127 to the largest number of a row."""
    if arithmetic == "int8":
        step = np.abs(values).max(-1, keepdims=True) / 127
        steps: Array = np.rint(values / np.where(step == 0, 1, step)) * step
        return steps
    fraction, exponent = np.frexp(values)
    # Fractions are 1/2 to 1, so that a gap is half of that between 1 and the next number.
    gap = UNIT[arithmetic] / 2
    held: Array = np.rint(fraction / gap) * gap * np.exp2(exponent)
    return held


NUDGE = 2 * max(UNIT[one] for one in ASSUMED)
"""The largest relative change of a number: two gaps of the coarsest arithmetic that is assumed."""

MOST_ALIKE = 0.5
"""The largest correlation of errors that count as rounding. Measured: rounding of operands below 0.3, wrong
maths above 0.99 (tests/maths/test_coarse_rounding.py)."""

FEWEST_OFF = 0.25
"""The least share of elements that are off by more than the dtype allows: rounding spares few."""


def nudged(stored: Stored, dtype: Dtype, rng: np.random.Generator) -> Stored:
    """Return floating numbers with random relative changes of at most ``NUDGE``."""
    wide = widen(stored, dtype)
    return store(wide * (1 + NUDGE * rng.uniform(-1, 1, wide.shape)), dtype)


@dataclass
class Scatter:
    """Sums over errors before and after a nudge: products, squares, elements, and those that are off."""

    product: float = 0.0
    before: float = 0.0
    after: float = 0.0
    count: int = 0
    off: int = 0

    def add(self, before: Array, after: Array, limit: float) -> None:
        """Add the errors of one output before and after. limit: what the dtype allows as RMS error."""
        self.product += float(np.vdot(before, after))
        self.before += float(np.vdot(before, before))
        self.after += float(np.vdot(after, after))
        self.count += before.size
        self.off += int(np.count_nonzero(np.abs(before) > limit))

    @property
    def alike(self) -> float:
        """The correlation of the errors; 1 if there are none on one side."""
        size = float(np.sqrt(self.before * self.after))
        return self.product / size if size else 1.0

    @property
    def is_rounding(self) -> bool:
        """True if many elements are off, and in another way after the nudge."""
        return self.alike <= MOST_ALIKE and self.off >= FEWEST_OFF * self.count
