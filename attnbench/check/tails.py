"""How far sums of dropped weights stray from their mean: limits that hold for few keys as for many.

No limit here leans on sums being nearly normal: each is a proved bound on the chance to be exceeded, which is
e^-depth at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = np.geomspace(1e-5, 0.999, 160)


@dataclass(frozen=True)
class Dropping:
    """What is done to each weight: kept and divided by 1 - p with probability ``keep``, else 0.

    In units of the weight that is a random number x of mean 1 + scale. keep is 1 - p, or about that where
    random numbers have few bits.
    """

    p: float
    keep: float

    @property
    def scale(self) -> float:
        """By how much the mean of x differs from 1."""
        return self.keep / (1 - self.p) - 1

    @property
    def variance(self) -> float:
        """Of x."""
        return self.keep * (1 - self.keep) / (1 - self.p) ** 2

    @property
    def largest(self) -> float:
        """The largest deviation of x from its mean."""
        return max(self.keep, 1 - self.keep) / (1 - self.p)

    @property
    def excess(self) -> float:
        """The fourth cumulant of x over its squared variance; cumulants of independent numbers add up."""
        pq = self.keep * (1 - self.keep)
        return (1 - 6 * pq) / pq

    @property
    def proxy(self) -> float:
        """s for which sums X of independent c_j (x_j - E x) have E exp(tX) <= exp(t² s Var X / 2), any t.

        Kearns & Saul 1998, Large deviation methods for approximate probabilistic inference: for one 0/1
        number of chance q it is (1 - 2q) / (2 ln((1 - q) / q)), over its variance q (1 - q) here; 1 at 1/2.
        """
        q = 1 - self.keep
        if abs(q - 0.5) < 1e-6:
            return 1.0
        return (1 - 2 * q) / (2 * math.log((1 - q) / q)) / (q * (1 - q))


def mean_limit(variance: Floats, largest: Floats, depth: float) -> Floats:
    """What a sum of independent terms of mean 0 exceeds with a chance of e^-depth at most, to one side.

    Bernstein's inequality. variance: of the sum. largest: of its terms' magnitudes.
    """
    half = largest * depth / 3
    return np.asarray(half + np.sqrt(half**2 + 2 * depth * variance))


def spread_limits(count: Floats, fourth: Floats, proxy: float, depth: float) -> tuple[Floats, Floats]:
    """Between which the mean of ``count`` independent squares lies, each of a sum of variance 1.

    Beyond either with a chance of e^-depth at most. fourth: the mean of their fourth moments, E X⁴. With
    Z = X² and y > 0, P(mean Z >= a) <= (E exp(yZ) exp(-ya))^count by Markov's inequality. E exp(yZ) is at
    most (1 - 2ys)^(-1/2) for the proxy s, and at most 1 + y + y² E X⁴ / 2 + 2 (2ys)³ / (1 - 2ys), since
    E X^2k <= 2 k! (2s)^k. The least a for any y is taken. Below, Z >= 0 gives
    exp(-count (1 - a)² / (2 E X⁴)).
    """
    below = 1 - np.sqrt(2 * fourth * depth / count)
    above = np.full(count.shape, np.inf)
    for step in _STEPS:
        y = step / (2 * proxy)
        series = np.log1p(y + y**2 * fourth / 2 + 2 * step**3 / (1 - step))
        growth = np.minimum(series, -0.5 * math.log1p(-step))
        above = np.minimum(above, (depth / count + growth) / y)
    return np.maximum(below, 0), above
