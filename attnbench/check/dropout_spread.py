"""The tests of how outputs with dropout spread between calls.

They look at each row's deviations along a direction, over their standard deviation: numbers of variance 1,
independent between calls, batch elements, heads and queries. Of these, and of sums of them, squares are
averaged, less the square of their mean over the calls: what rounding does in all calls alike is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from attnbench.check.dropout_tally import Tally
from attnbench.check.tails import Dropping, spread_limits
from attnbench.inputs.rounding import EPS

if TYPE_CHECKING:
    from attnbench.types.rule import Array

LEAST_SPREAD = 4.0
"""In units of what rounding explains: rows that spread less say nothing about random numbers."""

CALLS, QUERIES, HEADS, EVERY = 0, (0, 1, 2), (0, 3), (0, 1, 2, 3)
SUMMED = {1: "batch elements", 2: "heads", 3: "queries"}
TESTS, LIMITS = 2 * (3 + 3 + 2 + 1), 3
"""Tests, of both directions: of all, each query, each head; sums over three axes, two calls, all calls."""


@dataclass(frozen=True)
class Side:
    """The deviations along one direction.

    values: (N, B, G, R), of variance 1; 0 in rows that tell nothing. tells, fourth (E X⁴), off and off_anew
    (how far rounding may shift a value, in all calls alike and in each anew): (B, G, R).
    """

    values: Array
    tells: Array
    fourth: Array
    off: Array
    off_anew: Array


@dataclass(frozen=True)
class Spread:
    """Mean squares, and the least and the most that right outputs give, of the same shape."""

    got: Array
    least: Array
    most: Array

    def worst(self) -> tuple[int, ...] | None:
        """Where a value is farthest outside of its limits; None where all are inside."""
        # Written so that NaN counts as outside.
        outside = np.where(
            (self.got >= self.least) & (self.got <= self.most),
            -np.inf,
            np.maximum(self.got - self.most, self.least - self.got),
        )
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), outside.shape))
        return None if outside[place] == -np.inf else place


def rounding_of(tally: Tally, rms_limit: float) -> Array:
    """How far a row's deviation along a direction is off by rounding at most, (2, B, G, R).

    The limit of the RMS error, which is twice what the plain reference has and more; 1 / (1 - p) times that,
    as weights are larger than without dropout; and the rounding of 1 / (1 - p) itself.
    """
    case, moments = tally.case, tally.moments
    length = np.linalg.norm(moments.directions, axis=-1)
    own = EPS[case.dtype] * np.abs(along(tally))
    return np.asarray(length * (rms_limit / (1 - case.dropout)) + own)


def along(tally: Tally) -> Array:
    """The answer (that part of it which weights make) along both directions, (2, B, G, R)."""
    return np.asarray(np.einsum("sbgrf,bgrf->sbgr", tally.moments.directions, tally.moments.dropped))


@dataclass(frozen=True)
class Telling:
    """Which rows can tell anything, of both directions: (2, B, G, R) each.

    rows: those whose standard deviation sigma is well above rounding, which is off by ``rounding`` in all
    calls alike and by ``anew`` in each.
    """

    rows: Array
    sigma: Array
    rounding: Array
    anew: Array


def telling(tally: Tally, dropping: Dropping, rms_limit: float) -> Telling:
    """Which rows can tell anything.

    What rounding does anew in each call is that of the output alone, whose error is less than eps times it:
    scores and weights are rounded before anything is dropped.
    """
    moments = tally.moments
    sigma = np.sqrt(dropping.variance * moments.squares)
    rounding = rounding_of(tally, rms_limit)
    size = np.sqrt(np.mean(np.square(moments.mean) + moments.variance, axis=-1))
    anew = np.linalg.norm(moments.directions, axis=-1) * (EPS[tally.case.dtype] * size)
    return Telling(sigma > LEAST_SPREAD * np.maximum(rounding, anew), sigma, rounding, anew)


def sides_of(tally: Tally, dropping: Dropping, rms_limit: float) -> tuple[Side, Side]:
    """Along the answer, and along a random direction."""
    moments, found = tally.moments, telling(tally, dropping, rms_limit)
    tells = found.rows
    sigma, squares = np.where(tells, found.sigma, 1), np.where(tells, moments.squares, 1)
    fourth = np.where(tells, 3 + dropping.excess * moments.fourths / squares**2, 3)
    values = (np.stack(tally.sums, axis=1) - dropping.scale * along(tally)[:, None]) / sigma[:, None]
    values = np.where(tells[:, None], values, 0)
    off, off_anew = np.where(tells, found.rounding / sigma, 0), np.where(tells, found.anew / sigma, 0)
    first, second = (Side(values[i], tells[i], fourth[i], off[i], off_anew[i]) for i in range(2))
    return first, second


def spread(side: Side, dropping: Dropping, depth: float, axes: tuple[int, ...] = EVERY) -> Spread:
    """Variances over the calls, averaged over axes of (N, B, G, R): 1 is expected, whatever the axes."""
    calls, inner = len(side.values), tuple(axis - 1 for axis in axes if axis != CALLS)
    rows = np.asarray(side.tells.sum(inner), np.float64)
    held = np.maximum(rows, 1)
    means = np.square(side.values.mean(axis=0)).sum(inner) / held
    variance = np.where(side.tells, side.values.var(axis=0), 0)
    got = np.where(rows, variance.sum(inner) / held, 1 - 1 / calls)
    fourth = np.where(rows, np.where(side.tells, side.fourth, 0).sum(inner) / held, 3)
    off, off_anew = (
        np.sqrt(np.square(each).sum(inner) / held) for each in (side.off + side.off_anew, side.off_anew)
    )
    least, most = _limits(held * calls, fourth, dropping, depth)
    # A mean square is the variance and the square of the mean. That is either no more than it should be,
    # calls times less, or what it is seen to be, with what rounding does in all calls alike.
    _, most_of_means = _limits(held, 3 + (fourth - 3) / calls, dropping, depth)
    least = np.maximum(
        _less(least, off_anew) - _more(most_of_means, off_anew) / calls,
        np.where(rows, _less(least, off) - means, 0),
    )
    unit = calls / (calls - 1)
    return Spread(got * unit, np.maximum(least, 0) * unit, _more(most, off_anew) * unit)


def summed(side: Side, axis: int) -> Side:
    """Sums along an axis of (N, B, G, R), each over the root of its number of rows: again of variance 1."""
    if axis == CALLS:
        calls = len(side.values)
        values = side.values.sum(CALLS, keepdims=True) / math.sqrt(calls)
        fourth = 3 + (side.fourth - 3) / calls
        return replace(side, values=values, fourth=fourth, off_anew=side.off * math.sqrt(calls))
    inside = side.tells.sum(axis - 1, keepdims=True)
    root = np.sqrt(np.maximum(inside, 1))
    fourth = np.where(side.tells, side.fourth - 3, 0).sum(axis - 1, keepdims=True)
    off, off_anew = (each.sum(axis - 1, keepdims=True) / root for each in (side.off, side.off_anew))
    values = side.values.sum(axis, keepdims=True) / root
    return Side(values, inside > 0, 3 + fourth / root**4, off, off_anew)


def in_twos(side: Side, first: int) -> Side:
    """Sums of a call and the one after it, from the first on, over the root of 2."""
    calls = side.values[first : first + (len(side.values) - first) // 2 * 2]
    values = (calls[::2] + calls[1::2]) / math.sqrt(2)
    return replace(
        side, values=values, fourth=3 + (side.fourth - 3) / 2, off_anew=side.off_anew * math.sqrt(2)
    )


def spread_of_totals(side: Side, dropping: Dropping, depth: float) -> Spread:
    """The mean square of sums over all calls: of what is the same in all of them, if it is more than 1."""
    totals = summed(side, CALLS)
    rows = np.asarray(max(1.0, float(side.tells.sum())))
    got = np.square(totals.values).sum() / rows if side.tells.any() else np.array(1.0)
    fourth = np.where(side.tells, totals.fourth, 0).sum() / rows if side.tells.any() else np.array(3.0)
    off = np.sqrt(np.square(totals.off_anew).sum() / rows)
    least, most = _limits(rows, np.asarray(fourth), dropping, depth)
    return Spread(np.asarray(got), _less(least, np.asarray(off)), _more(most, np.asarray(off)))


def spread_depth(chance: float) -> float:
    """The depth of each limit of which together right outputs cross one with ``chance`` at most."""
    return math.log(LIMITS * TESTS / chance)


def spread_problems(sides: tuple[Side, Side], dropping: Dropping, calls: int, chance: float) -> Iterator[str]:
    """What is wrong with the spread, in words; with right outputs anything in ``chance`` of cases at most."""
    depth, p = spread_depth(chance), dropping.p
    for side in sides:
        every = spread(side, dropping, depth)
        if every.worst() is not None:
            as_of = f", as of dropout {dropout_of(float(every.got), p):.3g}"
            yield f"the spread between {calls} calls {spread_words(every, (), p)}{as_of}"
        for axes in (QUERIES, HEADS):
            found = spread(side, dropping, depth, axes)
            place = found.worst()
            if place is not None:
                where = f"i={place[0]}" if axes == QUERIES else f"b={place[0]}, h={place[1]}"
                yield f"at {where} the spread between {calls} calls {spread_words(found, place, p)}"
        for name, found in _sums(side, dropping, depth):
            if found.worst() is not None:
                yield (
                    f"random numbers of different {name} are not independent: the spread of sums over "
                    f"{name} {spread_words(found, (), p)}"
                )


def _sums(side: Side, dropping: Dropping, depth: float) -> Iterator[tuple[str, Spread]]:
    for axis, name in SUMMED.items():
        if side.values.shape[axis] > 1:
            yield name, spread(summed(side, axis), dropping, depth)
    for first in (0, 1):
        if len(side.values) - first >= 4:
            yield "calls", spread(in_twos(side, first), dropping, depth)
    yield "calls", spread_of_totals(side, dropping, depth)


def dropout_of(ratio: float, p: float) -> float:
    """The p of which variances are ``ratio`` times those of p."""
    variance = ratio * p / (1 - p)
    return variance / (1 + variance) if math.isfinite(variance) else 1.0


def _limits(count: Array, fourth: Array, dropping: Dropping, depth: float) -> tuple[Array, Array]:
    flat = [np.ravel(each).astype(np.float64) for each in (count, fourth)]
    least, most = spread_limits(flat[0], flat[1], dropping.proxy, depth + math.log(count.size))
    return least.reshape(count.shape), most.reshape(count.shape)


def _less(mean_square: Array, off: Array) -> Array:
    """The least that it may be seen as where numbers are off by that root mean square (Minkowski)."""
    return np.asarray(np.square(np.maximum(np.sqrt(mean_square) - off, 0)))


def _more(mean_square: Array, off: Array) -> Array:
    return np.asarray(np.square(np.sqrt(mean_square) + off))


def spread_words(found: Spread, place: tuple[int, ...], p: float) -> str:
    """What a spread is and what it may be, at a place."""
    return (
        f"is {float(found.got[place]):.3g} times what dropout {p:g} gives "
        f"({float(found.least[place]):.3g} to {float(found.most[place]):.3g} is allowed)"
    )
