"""Which query rows the oracle solves where all would cost too much."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.types.case import Case
from attnbench.types.rule import Rule

FEWEST_ROWS = 16

LONGDOUBLE_COST = 30
"""How much longer an operation takes in longdouble, which has no BLAS, than in float64."""


def choose_rows(
    case: Case, rule: Rule, flops_limit: float, rng: np.random.Generator
) -> NDArray[np.intp] | None:
    """None where solving the case costs less than ``flops_limit`` operations; else rows, sorted.

    The first, the last, those on both sides of likely block edges (64, 128, 256, ...), then random ones,
    as many as the limit allows and at least 16.
    """
    by_row = row_flops(case, rule)
    if by_row * case.Lq <= flops_limit:
        return None
    count = min(case.Lq, max(FEWEST_ROWS, int(flops_limit / by_row)))
    edges = [0, case.Lq - 1]
    edge = 64
    while edge < case.Lq:
        edges += [edge - 1, edge]
        edge *= 2
    chosen = list(dict.fromkeys(edges))[: max(2, count // 2)]
    others = np.setdiff1d(np.arange(case.Lq), chosen)
    drawn = rng.choice(others, size=min(count - len(chosen), len(others)), replace=False)
    return np.sort(np.concatenate([np.array(chosen, np.intp), drawn.astype(np.intp)]))


def row_flops(case: Case, rule: Rule) -> float:
    """What one query row of all heads and batch elements costs the oracle, which solves dropped pairs too."""
    by_pair = 2 * case.D if rule.score_flops is None else rule.score_flops(case)
    cost = case.B * case.H * case.Lk * (by_pair + 2.0 * case.Dv)
    return cost * LONGDOUBLE_COST if case.dtype == "float64" else cost
