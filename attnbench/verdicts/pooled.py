"""All samples of all sets in one array, as tools see them that know no sets; and a sign as a word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.types.verdict import SampleSets, Word


def pooled(sets: SampleSets) -> NDArray[np.float64]:
    """Every sample, in ns per call, in the order measured."""
    return np.array([ns for one in sets for ns in one], dtype=np.float64)


def word(difference: float, counts: bool) -> Word:
    """``slower`` or ``faster`` by the sign of contender minus baseline, where it counts; else ``unclear``."""
    if not counts or difference == 0:
        return "unclear"
    return "slower" if difference > 0 else "faster"
