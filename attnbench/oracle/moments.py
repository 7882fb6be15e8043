"""The exact mean and variance of outputs with dropout over calls.

Let w_j be the weights of a row and v_j what key j adds to an output feature per unit of weight. Dropout makes
it sum_j (m_j / (1 - p)) w_j v_j with independent m_j: 1 with probability 1 - p, else 0. Write x_j = m_j / (1
- p) - 1, which is p / (1 - p) or -1, so that

    E x = 0        E x² = p² / (1 - p) + p = p / (1 - p)        E x⁴ = p⁴ / (1 - p)³ + p

The output is its mean, the answer without dropout, plus sum_j x_j w_j v_j, whose variance is p / (1 - p) ·
sum_j w_j² v_j². All features of a row share the x_j. Their sum with factors u is sum_j x_j c_j with c_j = w_j
(u · v_j). Its variance and fourth moment follow from sum_j c_j² and sum_j c_j⁴. Such sums are independent
between rows. In ``multihead`` the output projection W makes feature e from all heads: key j of head h adds
w_hj (W_eh · v_hj), and j runs over all keys of all heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Parameters
from attnbench.oracle.solve import finish, heads_for, weights_of
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Moments:
    """Moments of the outputs of a case with dropout, in groups (B, G, R, F): see :func:`in_groups`.

    mean: the answer without dropout. dropped: the part of it that weights make, without what an output
    projection adds (biases, queries of a rule that concatenates). variance: of each element between calls.
    directions: (B, G, R, F), each row's ``dropped`` at length 1; scale and shared masks show best along it.
    squares, fourths: (B, G, R), sum c² and sum c⁴ of the features' sum along the direction.
    """

    mean: Array
    dropped: Array
    variance: Array
    directions: Array
    squares: Array
    fourths: Array


def solve_moments(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    expected: Array,
    rows: NDArray[np.intp] | None = None,
) -> Moments:
    """Compute the moments of the query rows ``rows`` (None for all), in float64.

    parameters, activations: float64, as for :func:`attnbench.oracle.solve.solve`. expected: its result for
    these rows. The cost is about twice that of solving, times E / Dv with an output projection.
    """
    heads = heads_for(case, rule, parameters, activations, rows, np.float64)
    mean = in_groups(case, expected.astype(np.float64))
    nothing = np.zeros((case.B, case.H, len(heads.rows), case.Dv))
    dropped = mean - in_groups(case, finish(heads, nothing))
    length = np.linalg.norm(dropped, axis=-1, keepdims=True)
    directions = dropped / np.where(length == 0, 1, length)
    variance = np.zeros(mean.shape)
    squares, fourths = np.zeros(directions.shape[:-1]), np.zeros(directions.shape[:-1])
    for b, h, at, weights in weights_of(heads):
        values = heads.v[b, h // case.group]
        last = _last_map(case, heads.parameters, h)
        g = h if last is None else 0
        shown = values if last is None else values @ last.T
        variance[b, g, at] += np.square(weights) @ np.square(shown)
        shares = np.square(weights * (directions[b, g, at] @ shown.T))
        squares[b, g, at] += shares.sum(-1)
        fourths[b, g, at] += np.square(shares).sum(-1)
    variance *= case.dropout / (1 - case.dropout)
    return Moments(mean, dropped, variance, directions, squares, fourths)


def in_groups(case: Case, output: Array) -> Array:
    """Reshape an output to (B, G, R, F); rows of different b, g or r share no random numbers.

    G = H and F = Dv where heads stay separate (``attention``, and ``multihead`` without output projection);
    else G = 1 and F = E.
    """
    if case.layer is None:
        return output
    if case.layer.out:
        return output[:, None]
    B, R, _ = output.shape
    return output.reshape(B, R, case.H, case.Dv).swapaxes(1, 2)


def _last_map(case: Case, parameters: Parameters, h: int) -> Array | None:
    """Return the columns of the output projection that read head h, (E, Dv); None where heads stay
    separate."""
    if case.layer is None or not case.layer.out:
        return None
    w_o = parameters.projections["w_o"]
    first = w_o.shape[1] - case.H * case.Dv + h * case.Dv
    return w_o[:, first : first + case.Dv]
