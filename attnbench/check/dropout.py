"""Whether outputs of many calls on the same inputs are those of dropout on the weights.

One output can't be compared with the oracle's: it differs from call to call. Their mean and their spread can,
since both are known exactly (:mod:`attnbench.oracle.moments`). Every test has limits that right outputs cross
with a known small chance, whatever the number of keys (:mod:`attnbench.check.tails`); together they refuse
right outputs in at most 1 of 10⁹ records (``FALSE_ALARMS``):

- no two outputs are equal;
- the mean of all outputs is the oracle's answer, as a whole (its scale) and in each element;
- the spread between calls is what p gives: over all rows, at each query, in each head and batch element;
- random numbers are independent: sums over calls, batch elements, heads or queries spread as sums of
  independent numbers do. Masks that are used again, or shared, make them spread more.

The last two look at each row along its two directions (``Moments.directions``). What counts as right besides
1 - p is a chance to keep of a number of 8 bits next to it, since kernels draw bytes; and what rounding
explains, by the limits of the check without dropout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from attnbench.check.dropout_spread import (
    along,
    dropout_of,
    rounding_of,
    sides_of,
    spread,
    spread_depth,
    spread_of_totals,
    spread_problems,
    spread_words,
    telling,
)
from attnbench.check.dropout_tally import Tally, place_of
from attnbench.check.tails import Dropping, mean_limit
from attnbench.inputs.rounding import Stored
from attnbench.oracle.moments import Moments
from attnbench.types.accuracy import DropoutNumbers
from attnbench.types.case import Case

FALSE_ALARMS = 1e-9
"""The chance at most that right outputs are refused, of one record.

A quarter of it is for elements, an eighth each for scale and equal outputs, half for the tests of spread.
"""

FEWEST_CALLS, MOST_CALLS, ROWS_TIMES_CALLS = 32, 1024, 1 << 15


def dropout_calls(case: Case, rows: int | None = None) -> int:
    """Calls to compare, 32 to 1024: so that about 32768 rows, of outputs of all calls, are compared.

    rows: query rows of which outputs are compared; None for all.
    """
    groups = case.H if case.layer is None or not case.layer.out else 1
    by_call = case.B * groups * (case.Lq if rows is None else rows)
    return min(MOST_CALLS, max(FEWEST_CALLS, math.ceil(ROWS_TIMES_CALLS / by_call)))


def judge_dropout(
    outputs: Sequence[Stored], moments: Moments, case: Case, *, rms_limit: float, max_limit: float
) -> tuple[DropoutNumbers | None, str]:
    """The check in numbers, and why it failed in words ("" if it didn't); see :func:`judge_tally`."""
    tally = Tally(case, moments)
    for output in outputs:
        tally.add(output)
    return judge_tally(tally, rms_limit=rms_limit, max_limit=max_limit)


def judge_tally(tally: Tally, *, rms_limit: float, max_limit: float) -> tuple[DropoutNumbers | None, str]:
    """The check in numbers (None where an output isn't finite), and why it failed in words ("" if it didn't).

    tally: of the outputs of at least two calls. rms_limit, max_limit: what rounding explains, from the check
    of these inputs without dropout: those of the plain reference's own ``Accuracy``.
    """
    case, calls = tally.case, len(tally.sums)
    if tally.not_finite:
        return None, tally.not_finite
    if not case.dropout or calls < 2:
        raise ValueError(f"{calls} outputs with dropout {case.dropout:g}: two or more, with some, are needed")
    problem = ""
    for keep in keep_chances(case.dropout):
        dropping = Dropping(case.dropout, keep)
        found = next(_problems(tally, dropping, rms_limit, max_limit), "")
        if not found:
            return _numbers(tally, dropping, rms_limit), ""
        problem = problem or found
    return _numbers(tally, Dropping(case.dropout, 1 - case.dropout), rms_limit), problem


def judge_one(tally: Tally, *, rms_limit: float, max_limit: float) -> str:
    """Whether the output of one call can be that of dropout: why not in words, "" where it can.

    tally: of that call alone. It tells an answer to other inputs, or without any dropout, from a right one
    wherever rows are enough, but nothing of how calls differ. Right outputs are refused with a chance of
    ``FALSE_ALARMS`` at most.
    """
    if tally.not_finite:
        return tally.not_finite
    if len(tally.sums) != 1:
        raise ValueError(f"{len(tally.sums)} outputs where one is judged")
    problem = ""
    for keep in keep_chances(tally.case.dropout):
        found = next(_problems_of_one(tally, Dropping(tally.case.dropout, keep), rms_limit, max_limit), "")
        if not found:
            return ""
        problem = problem or found
    return problem


def telling_rows(tally: Tally, *, rms_limit: float) -> int:
    """Rows in which dropout can be seen, of none or more outputs; where none can, a check tells nothing."""
    return int(telling(tally, Dropping(tally.case.dropout, 1 - tally.case.dropout), rms_limit).rows[0].sum())


def keep_chances(p: float) -> list[float]:
    """With which a weight may be kept: 1 - p, and what kernels make of it that draw bytes.

    FlashAttention keeps where a byte is at most floor(255 (1 - p)). None is more than p/4 away.
    """
    keep = 1 - p
    bytes_kept = (math.floor(256 * keep), math.ceil(256 * keep), math.floor(255 * keep) + 1)
    near = [each / 256 for each in bytes_kept if 0 < each < 256 and abs(each / 256 - keep) <= p / 4]
    return list(dict.fromkeys([keep, *near]))


def _problems(tally: Tally, dropping: Dropping, rms_limit: float, max_limit: float) -> Iterator[str]:
    yield from _equal(tally, dropping, rms_limit)
    yield from _scale_problem(tally, dropping, rms_limit)
    sides = sides_of(tally, dropping, rms_limit)
    yield from spread_problems(sides, dropping, len(tally.sums), FALSE_ALARMS / 2)
    yield from _element_problem(tally, dropping, max_limit)


def _problems_of_one(tally: Tally, dropping: Dropping, rms_limit: float, max_limit: float) -> Iterator[str]:
    yield from _scale_problem(tally, dropping, rms_limit)
    depth = spread_depth(FALSE_ALARMS / 2)
    for side in sides_of(tally, dropping, rms_limit):
        found = spread_of_totals(side, dropping, depth)
        if found.worst() is not None:
            yield f"the spread about the oracle's answer {spread_words(found, (), dropping.p)}"
    yield from _element_problem(tally, dropping, max_limit)


def _equal(tally: Tally, dropping: Dropping, rms_limit: float) -> Iterator[str]:
    """Two outputs that are equal, where chance doesn't explain it.

    The difference D of a row's deviations in two calls has E D² = 2 and E D⁴ = 2 E X⁴ + 6, in units of the
    variance. By Paley and Zygmund D² > 2t with a chance of (1 - t)² 2 / (E X⁴ + 3) at least; at t = 1/32,
    which is above rounding, that is more than 1.8 / (E X⁴ + 3). Rows are independent.
    """
    first: dict[bytes, int] = {}
    for call, digest in enumerate(tally.digests):
        other = first.setdefault(digest, call)
        if other == call:
            continue
        side, _ = sides_of(tally, dropping, rms_limit)
        calls = len(tally.sums)
        log_chance = 2 * math.log(calls) + float(np.log1p(-1.8 / (side.fourth[side.tells] + 3)).sum())
        if log_chance < math.log(FALSE_ALARMS / 8):
            yield f"calls {other} and {call} of {calls} gave the same output: each must drop other weights"
        return


def _scale(tally: Tally, dropping: Dropping, rms_limit: float) -> tuple[float, float]:
    """By how much the mean's scale differs from 1, and how far that may be from ``dropping.scale``."""
    moments, calls = tally.moments, len(tally.sums)
    answer, rounding = along(tally)[0], rounding_of(tally, rms_limit)[0]
    variance = dropping.variance * moments.squares[0] / calls
    # The best factors for a sum of rows, but that rows lost in rounding count less.
    noise = variance + rounding**2
    factors = answer / np.where(noise == 0, 1, noise)
    unit = float((factors * answer).sum())
    if unit == 0:
        return dropping.scale, 0.0
    largest = np.max(np.abs(factors) * moments.fourths[0] ** 0.25, keepdims=True) * dropping.largest / calls
    total = np.asarray(np.sum(factors**2 * variance, keepdims=True), np.float64)
    chance = float(mean_limit(total, largest, math.log(2 * 8 / FALSE_ALARMS)).item())
    measured = float((factors * np.mean([sums[0] for sums in tally.sums], axis=0)).sum()) / unit
    return measured, (chance + float((np.abs(factors) * rounding).sum())) / unit


def _scale_problem(tally: Tally, dropping: Dropping, rms_limit: float) -> Iterator[str]:
    measured, within = _scale(tally, dropping, rms_limit)
    # Written so that NaN is refused, here and below.
    if not abs(measured - dropping.scale) <= within:
        yield (
            f"the mean of {len(tally.sums)} outputs is {1 + measured:.4g} times the oracle's answer, "
            f"expected {1 + dropping.scale:.4g} within {within:.2g}"
        )


def _element_problem(tally: Tally, dropping: Dropping, max_limit: float) -> Iterator[str]:
    """The mean of each element against the oracle's answer."""
    case, moments, calls = tally.case, tally.moments, len(tally.sums)
    squares = moments.variance * (1 - case.dropout) / case.dropout
    # No term is larger than the root of the sum of all squares.
    chance = mean_limit(
        np.asarray(squares * (dropping.variance / calls), np.float64),
        np.asarray(np.sqrt(squares) * (dropping.largest / calls), np.float64),
        math.log(2 * 4 * squares.size / FALSE_ALARMS),
    )
    allowed = chance + max_limit / (1 - case.dropout)
    off = tally.total / calls - dropping.scale * moments.dropped
    outside = np.where(np.abs(off) <= allowed, -np.inf, np.abs(off) - allowed)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), outside.shape))
    if outside[worst] == -np.inf:
        return
    expected = float(moments.mean[worst])
    yield (
        f"the mean of {calls} outputs at {place_of(case, worst)} is {expected + float(off[worst]):.6g}, "
        f"expected {expected:.6g} within {float(allowed[worst]):.3g}"
    )


def _numbers(tally: Tally, dropping: Dropping, rms_limit: float) -> DropoutNumbers:
    side, _ = sides_of(tally, dropping, rms_limit)
    every = spread(side, dropping, spread_depth(FALSE_ALARMS / 2))
    # Of what p gives, where the kernel's own chance to keep is another.
    unit = dropping.variance * (1 - dropping.p) / dropping.p
    got, least, most = (float(each) * unit for each in (every.got, every.least, every.most))
    return DropoutNumbers(
        calls=len(tally.sums),
        rows=int(side.tells.sum()),
        rows_of=side.tells.size,
        scale=1 + _scale(tally, dropping, rms_limit)[0],
        spread=got,
        spread_least=least,
        spread_most=most,
        p=dropout_of(got, dropping.p),
        p_least=dropout_of(least, dropping.p),
        p_most=dropout_of(most, dropping.p),
    )
