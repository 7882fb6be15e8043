"""Solving a case: attention weights and outputs of all query rows, or of some.

Inputs come widened to float64, after rounding to the case's dtype. A float64 case is solved in
``np.longdouble`` (where that is wider), so that a float64 backend isn't judged by its like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Parameters
from attnbench.oracle.layer import Heads, finish, heads_of
from attnbench.oracle.weights import weights_of
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array


def solve(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp] | None = None,
) -> Array:
    """The output of the query rows ``rows`` (all where None).

    (B, H, R, Dv) for ``attention``; (B, R, E) for ``multihead``, or (B, R, H·Dv) without output projection.
    A row that keeps no key gives 0, before the output projection.

    parameters, activations: float64, in the shapes of :mod:`attnbench.types.shapes`.
    """
    case_rows = np.arange(case.Lq) if rows is None else rows
    parameters, heads = heads_for(case, rule, parameters, activations, case_rows, _wide(case))
    out = np.zeros((case.B, case.H, len(case_rows), case.Dv), heads.v.dtype)
    for b, h, at, weights in weights_of(case, rule, parameters.rule, heads.q, heads.k, case_rows):
        out[b, h, at] = weights @ heads.v[b, h // case.group]
    return finish(case, rule, parameters.projections, heads.q, out)


def solve_weights(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp] | None = None,
) -> Array:
    """The attention weights of those rows, (B, H, R, Lk): for examples and tests; memory for all pairs."""
    case_rows = np.arange(case.Lq) if rows is None else rows
    parameters, heads = heads_for(case, rule, parameters, activations, case_rows, _wide(case))
    all_weights = np.zeros((case.B, case.H, len(case_rows), case.Lk), heads.v.dtype)
    for b, h, at, weights in weights_of(case, rule, parameters.rule, heads.q, heads.k, case_rows):
        all_weights[b, h, at] = weights
    return all_weights


def heads_for(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp],
    wide: type[np.floating[Any]],
) -> tuple[Parameters, Heads]:
    """Parameters and heads in the dtype to compute in; queries of ``rows`` only."""
    own = {name: array.astype(wide) for name, array in parameters.rule.items()}
    projections = {name: array.astype(wide) for name, array in parameters.projections.items()}
    axis = 2 if case.layer is None else 1
    queries, keys, values = activations
    keys = np.take(keys, rows, axis) if rule.pairs_keys else keys
    sources = (np.take(queries, rows, axis).astype(wide), keys.astype(wide), values.astype(wide))
    return Parameters(own, projections), heads_of(case, projections, sources)


def _wide(case: Case) -> type[np.floating[Any]]:
    return np.longdouble if case.dtype == "float64" else np.float64
