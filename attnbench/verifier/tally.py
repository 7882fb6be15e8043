"""The check of dropout: the mean and the variance of many calls on the same inputs, against p.

One output cannot be compared with the oracle's, because it differs from call to call. The mean and the
variance of outputs can: both are known exactly (:mod:`attnbench.oracle.moments`). The check compares:

- the mean of all outputs: its scale, and each element;
- the variance over all rows, at each query, and in each head;
- the variance of sums over calls, batch elements, heads or queries. It is larger than that of independent
  numbers where masks are used again or shared.

The variances are those of each row's projection on the row's own answer (``Moments.directions``), in units
of what p gives. The limits are proved bounds for any number of keys. Right outputs cross one of them in at
most 1 of 10⁹ judgements (``FALSE_ALARMS``). Rounding widens the limits, as far as the check of these inputs
without dropout allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import EPS
from attnbench.oracle.moments import Moments, in_groups
from attnbench.types.case import Case
from attnbench.types.record import DropoutNumbers
from attnbench.verifier.errors import element, place_of_largest

if TYPE_CHECKING:
    from attnbench.types.rule import Array

FALSE_ALARMS = 1e-9
"""The largest chance that right outputs are refused, of one judgement."""

_LIMITS = 14
"""Both sides of scale, elements, and variance over all, queries, heads; one side of sums over four axes."""

_LEAST_SPREAD = 4.0
"""The least standard deviation of a row that counts, in units of the rounding: other rows show no dropout."""

_FEWEST_CALLS, _MOST_CALLS, _ROWS_TIMES_CALLS = 32, 1024, 1 << 15
_AXES = ("calls", "batch elements", "heads", "queries")
_STEPS = np.geomspace(1e-5, 0.999, 160)


def dropout_calls(case: Case, rows: int | None = None) -> int:
    """Return the number of calls, 32 to 1024, so that about 32768 rows of all outputs are compared.

    rows: query rows that are compared; None for all.
    """
    groups = case.H if case.layer is None or not case.layer.out else 1
    by_call = case.B * groups * (case.Lq if rows is None else rows)
    return min(_MOST_CALLS, max(_FEWEST_CALLS, math.ceil(_ROWS_TIMES_CALLS / by_call)))


@dataclass(frozen=True)
class Dropping:
    """A weight is kept and divided by 1 - p with probability ``keep``, else it is 0.

    In units of the weight this is a random number x of mean 1 + scale. keep is 1 - p, or about that where
    random numbers have few bits.
    """

    p: float
    keep: float

    @property
    def scale(self) -> float:
        """The mean of x, less 1."""
        return self.keep / (1 - self.p) - 1

    @property
    def variance(self) -> float:
        """The variance of x."""
        return self.keep * (1 - self.keep) / (1 - self.p) ** 2

    @property
    def excess(self) -> float:
        """The fourth cumulant of x over its squared variance; cumulants of independent numbers add up."""
        pq = self.keep * (1 - self.keep)
        return (1 - 6 * pq) / pq

    @property
    def proxy(self) -> float:
        """The s for which sums X of independent c_j (x_j - E x) have E exp(tX) <= exp(t² s Var X / 2).

        Kearns & Saul 1998, Large deviation methods for approximate probabilistic inference: for one 0/1
        number of chance q it is (1 - 2q) / (2 ln((1 - q) / q)), over its variance q (1 - q) here; 1 at 1/2.
        """
        q = 1 - self.keep
        if abs(q - 0.5) < 1e-6:
            return 1.0
        return (1 - 2 * q) / (2 * math.log((1 - q) / q)) / (q * (1 - q))


def keep_chances(p: float) -> list[float]:
    """Return the chances to keep a weight that count as right: 1 - p, and those of kernels that draw bytes.

    FlashAttention keeps where a byte is at most floor(255 (1 - p)), which is one of the two numbers of bytes
    that are nearest to 256 (1 - p). None is more than p/4 away.
    """
    keep = 1 - p
    bytes_kept = (math.floor(256 * keep), math.ceil(256 * keep))
    near = [each / 256 for each in bytes_kept if 0 < each < 256 and abs(each / 256 - keep) <= p / 4]
    return list(dict.fromkeys([keep, *near]))


def spread_limits(count: Array, fourth: Array, proxy: float, depth: float) -> tuple[Array, Array]:
    """Return the least and the most of a mean of ``count`` independent squares, each of a sum of variance 1.

    The mean is beyond either with a chance of e^-depth at most. fourth: the mean of their fourth moments,
    E X⁴. With Z = X² and y > 0, P(mean Z >= a) <= (E exp(yZ) exp(-ya))^count by Markov's inequality.
    E exp(yZ) is at most (1 - 2ys)^(-1/2) for the proxy s, and at most
    1 + y + y² E X⁴ / 2 + 2 (2ys)³ / (1 - 2ys), since E X^2k <= 2 k! (2s)^k. The least a for any y is taken.
    Below, Z >= 0 gives exp(-count (1 - a)² / (2 E X⁴)).
    """
    below = 1 - np.sqrt(2 * fourth * depth / count)
    above = np.full(np.shape(count), np.inf)
    for step in _STEPS:
        y = step / (2 * proxy)
        series = np.log1p(y + y**2 * fourth / 2 + 2 * step**3 / (1 - step))
        growth = np.minimum(series, -0.5 * math.log1p(-step))
        above = np.minimum(above, (depth / count + growth) / y)
    return np.maximum(below, 0), above


@dataclass
class Tally:
    """Outputs of calls on the same inputs, added one by one.

    total: (B, G, R, F), the sum of their deviations from ``moments.mean``. along: for each output its
    deviation along ``moments.directions``, (B, G, R). not_finite: the first number that is NaN or infinite,
    in words; nothing is added of such an output. rows: the query rows that the moments are of; None for all.
    """

    case: Case
    moments: Moments
    rows: NDArray[Any] | None = None
    total: Array = field(init=False)
    along: list[Array] = field(default_factory=list)
    not_finite: str = ""

    def __post_init__(self) -> None:
        self.total = np.zeros(self.moments.mean.shape)

    def add(self, output: Array) -> None:
        """Add the output of one more call, in float64, of the query rows that the moments are of.

        Raises:
            ValueError: it has other rows.
        """
        shown = in_groups(self.case, output)
        if shown.shape != self.moments.mean.shape:
            raise ValueError(f"moments of {self.moments.mean.shape} for an output of shape {output.shape}")
        finite = np.isfinite(shown)
        if not finite.all():
            first = place_of_largest(~finite)
            place, got = _place(self, first), float(shown[first])
            self.not_finite = self.not_finite or f"element {place} is not finite: got {got}"
            return
        deviation = shown - self.moments.mean
        self.total += deviation
        self.along.append(np.einsum("bgrf,bgrf->bgr", self.moments.directions, deviation))


def judge_tally(tally: Tally, *, rms_limit: float, max_limit: float) -> tuple[DropoutNumbers | None, str]:
    """Return the check in numbers (None if an output is not finite), and why it failed ("" if it passed).

    tally: of one call or more. One call shows an answer to other inputs or without dropout, but not how calls
    differ. rms_limit, max_limit: the errors that rounding explains, from the check of these inputs without
    dropout (the plain reference's ``Accuracy``).
    """
    if tally.not_finite:
        return None, tally.not_finite
    p = tally.case.dropout
    found = [_judge(tally, Dropping(p, keep), rms_limit, max_limit) for keep in keep_chances(p)]
    return next((each for each in found if not each[1]), found[0])


def telling_rows(tally: Tally, *, rms_limit: float) -> int:
    """Count the rows in which dropout can be seen, with or without outputs. If it is 0 the check proves
    nothing."""
    dropping = Dropping(tally.case.dropout, 1 - tally.case.dropout)
    return int(np.count_nonzero(_projected(tally, dropping, rms_limit).answer))


@dataclass(frozen=True)
class _Projected:
    """Deviations along the rows' directions in units of their standard deviation: variance 1 is right.

    values: (N, B, G, R), 0 in rows where dropout can't be seen. tells: the rows where it can. fourth: E X⁴
    there. off: how far rounding may shift a value. answer: (B, G, R), the row's answer in the same units.
    """

    values: Array
    tells: NDArray[np.bool_]
    fourth: Array
    off: Array
    answer: Array

    def sums(self, axis: int) -> _Projected:
        """Sums along one axis, each over the root of its number of rows: again of variance 1."""
        rows = np.maximum(self.tells.sum(axis, keepdims=True), 1)
        fourth = np.where(self.tells, self.fourth - 3, 0).sum(axis, keepdims=True)
        return replace(
            self,
            values=self.values.sum(axis, keepdims=True) / np.sqrt(rows),
            tells=np.asarray(self.tells.any(axis, keepdims=True)),
            fourth=3 + fourth / rows**2,
            # Rounding may shift all of them the same way.
            off=self.off.sum(axis, keepdims=True) / np.sqrt(rows),
        )


@dataclass(frozen=True)
class _Variance:
    """Mean squares, and the least and the most that right outputs give, of the same shape."""

    got: Array
    least: Array
    most: Array

    @property
    def worst(self) -> tuple[int, ...] | None:
        """The place of the value that is farthest outside its limits; None where all are inside."""
        return _worst(np.maximum(self.got - self.most, self.least - self.got))


def _worst(excess: Array) -> tuple[int, ...] | None:
    """Return the place of the largest number; None where all are 0 or less. NaN counts as largest."""
    place = place_of_largest(excess)
    return None if excess[place] <= 0 else place


def _projected(tally: Tally, dropping: Dropping, rms_limit: float) -> _Projected:
    case, moments = tally.case, tally.moments
    length = np.linalg.norm(moments.directions, axis=-1)
    # The part of the answer that weights make, along the directions.
    answer = np.einsum("bgrf,bgrf->bgr", moments.directions, moments.dropped)
    size = np.sqrt(np.mean(np.square(moments.mean) + moments.variance, axis=-1))
    # Two parts of rounding: what the dtype explains without dropout (weights are 1 / (1 - p) larger) with
    # the rounding of 1 / (1 - p) itself; and that of an output, which dropout makes larger.
    alike = length * rms_limit / (1 - case.dropout) + EPS[case.dtype] * np.abs(answer)
    anew = length * EPS[case.dtype] * size
    sigma = np.sqrt(dropping.variance * moments.squares)
    tells = np.asarray(sigma > _LEAST_SPREAD * np.maximum(alike, anew))
    sigma, squares = np.where(tells, sigma, 1), np.where(tells, moments.squares, 1)
    fourth = 3 + dropping.excess * moments.fourths / squares**2
    off = np.where(tells, (alike + anew) / sigma, 0)
    along = np.array(tally.along).reshape(-1, *tells.shape)
    values = np.where(tells, (along - dropping.scale * answer) / sigma, 0)
    shape = (len(along), *tells.shape)
    return _Projected(
        values=values,
        tells=np.broadcast_to(tells, shape),
        fourth=np.broadcast_to(fourth, shape),
        off=np.broadcast_to(off, shape),
        answer=np.where(tells, answer / sigma, 0),
    )


def _judge(
    tally: Tally, dropping: Dropping, rms_limit: float, max_limit: float
) -> tuple[DropoutNumbers, str]:
    rows = _projected(tally, dropping, rms_limit)
    shift, within = _shift(rows, dropping)
    every = _variance(rows, dropping)
    # Masks that calls share shift the scale too, by chance. What is left without the shift shows them
    # whatever that chance is. It is a projection, so right outputs have smaller sums with it than without:
    # they are refused no more often.
    unshifted = replace(rows, values=rows.values - shift * rows.answer)
    problems = (
        *_shared_masks(unshifted, 0, every, dropping),
        *_scale_problem(rows, dropping, shift, within),
        *(problem for axis in (1, 2, 3) for problem in _shared_masks(rows, axis, every, dropping)),
        *_variance_problems(rows, every, dropping),
        *_element_problem(tally, dropping, max_limit),
    )
    # In units of what p gives, where the kernel's own chance to keep is another.
    unit = dropping.variance * (1 - dropping.p) / dropping.p
    numbers = DropoutNumbers(
        calls=len(rows.values),
        rows=int(rows.tells[0].sum()),
        rows_of=rows.tells[0].size,
        scale=1 + dropping.scale + shift,
        p=_p_of(unit * float(every.got), dropping.p),
        p_least=_p_of(unit * float(every.least), dropping.p),
        p_most=_p_of(unit * float(every.most), dropping.p),
    )
    return numbers, next(iter(problems), "")


def _depth(count: int) -> float:
    """Return the depth of each of ``count`` limits of one test, for ``FALSE_ALARMS`` over all tests."""
    return math.log(_LIMITS * count / FALSE_ALARMS)


def _shift(rows: _Projected, dropping: Dropping) -> tuple[float, float]:
    """Return the scale of the mean of outputs less the right one, and the most that right outputs have.

    The estimate of least variance from all rows that tell; its limit is that of the proxy.
    """
    unit = float(np.square(rows.answer).sum())
    if unit == 0:
        return 0.0, 0.0
    chance = math.sqrt(2 * dropping.proxy * _depth(1) / (len(rows.values) * unit))
    rounding = float((np.abs(rows.answer) * rows.off[0]).sum()) / unit
    return float((rows.answer * rows.values.mean(0)).sum()) / unit, chance + rounding


def _scale_problem(rows: _Projected, dropping: Dropping, shift: float, within: float) -> Iterator[str]:
    # Written so that NaN is refused.
    if not abs(shift) <= within:
        expected = 1 + dropping.scale
        yield (
            f"the mean of {_calls(len(rows.values))} is {expected + shift:.4g} times the oracle's answer, "
            f"expected {expected:.4g} within {within:.2g}"
        )


def _element_problem(tally: Tally, dropping: Dropping, max_limit: float) -> Iterator[str]:
    """Compare the mean of each element with the oracle's answer."""
    case, moments, calls = tally.case, tally.moments, len(tally.along)
    variance = moments.variance * (1 - case.dropout) / case.dropout * dropping.variance / calls
    allowed = np.sqrt(2 * dropping.proxy * _depth(variance.size) * variance) + max_limit / (1 - case.dropout)
    off = tally.total / calls - dropping.scale * moments.dropped
    worst = _worst(np.abs(off) - allowed)
    if worst is not None:
        expected = float(moments.mean[worst])
        yield (
            f"the mean of {_calls(calls)} at {_place(tally, worst)} is {expected + float(off[worst]):.6g}, "
            f"expected {expected:.6g} within {float(allowed[worst]):.3g}"
        )


def _variance(rows: _Projected, dropping: Dropping, kept: tuple[int, ...] = ()) -> _Variance:
    """Return mean squares over all axes of (N, B, G, R) but those ``kept``."""
    over = tuple(axis for axis in range(4) if axis not in kept)
    count = np.asarray(rows.tells.sum(over), np.float64)
    held = np.maximum(count, 1)
    got = np.where(count, np.square(rows.values).sum(over) / held, 1)
    fourth = np.where(count, np.where(rows.tells, rows.fourth, 0).sum(over) / held, 3)
    # By Minkowski's inequality; the numbers are off by this root mean square at most.
    off = np.sqrt(np.square(rows.off).sum(over) / held)
    least, most = spread_limits(held, fourth, dropping.proxy, _depth(held.size))
    return _Variance(got, np.square(np.maximum(np.sqrt(least) - off, 0)), np.square(np.sqrt(most) + off))


def _shared_masks(rows: _Projected, axis: int, every: _Variance, dropping: Dropping) -> Iterator[str]:
    """Compare the variance of sums along an axis with that of independent numbers; it must not be larger."""
    found = replace(_variance(rows.sums(axis), dropping), least=np.zeros(()))
    # Where numbers are too large, so are their sums: the variance itself says more then.
    more = found.got / found.most > every.got / every.most
    if rows.values.shape[axis] > 1 and more and found.worst is not None:
        yield (
            f"different {_AXES[axis]} do not drop weights independently: the variance of sums over "
            f"{_AXES[axis]} {_words(found, (), dropping.p)}"
        )


def _variance_problems(rows: _Projected, every: _Variance, dropping: Dropping) -> Iterator[str]:
    p, calls = dropping.p, _calls(len(rows.values))
    if every.worst is not None:
        as_of = f", as of dropout {_p_of(float(every.got), p):.3g}"
        yield f"the variance of {calls} {_words(every, (), p)}{as_of}"
    for kept, words in (((3,), "at i={}"), ((1, 2), "at b={}, h={}")):
        found = _variance(rows, dropping, kept)
        if found.worst is not None:
            place = words.format(*found.worst)
            yield f"{place} the variance of {calls} {_words(found, found.worst, p)}"


def _words(found: _Variance, place: tuple[int, ...], p: float) -> str:
    return (
        f"is {float(found.got[place]):.3g} times that of dropout {p:g} "
        f"({float(found.least[place]):.3g} to {float(found.most[place]):.3g} is allowed)"
    )


def _p_of(ratio: float, p: float) -> float:
    """Return the p whose variance is ``ratio`` times that of p."""
    variance = ratio * p / (1 - p)
    return variance / (1 + variance) if math.isfinite(variance) else 1.0


def _calls(count: int) -> str:
    return "one output" if count == 1 else f"{count} outputs"


def _place(tally: Tally, index: tuple[int, ...]) -> str:
    """Write an index of :func:`attnbench.oracle.moments.in_groups` by the axes of the output."""
    b, g, r, f = index
    row = r if tally.rows is None else int(tally.rows[r])
    layer = tally.case.layer
    if layer is None:
        return element((b, g, row, f), "bhie")
    return element((b, row, f) if layer.out else (b, row, g * tally.case.Dv + f), "bie")
