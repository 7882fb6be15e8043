"""Trivial answers, which need no attention. A case on which one of them passes the check proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Parameters, Stored, store
from attnbench.masks import keep_rows, mask_heads
from attnbench.oracle.solve import HeadInputs, finish, heads_for, weights_of
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array


Rows = NDArray[np.intp]

PAIRS_AT_ONCE = 1 << 20

TRIVIAL_ANSWERS = ("zeros", "first_value", "own_value", "mean", "running_mean", "nearest_value")
"""Zeros; the value of the first key; of the key at the query's own place; the mean of all values; the mean
of the values that the query sees; the value of the key with the largest weight."""


def trivial_answers(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    inputs: tuple[Array, Array, Array],
    rows: Rows | None = None,
) -> dict[str, Stored]:
    """Return the output of every trivial answer by name, of the query rows ``rows`` (None for all), as
    stored.

    Shapes are those of :func:`attnbench.oracle.solve.solve`. In ``multihead`` the output projection follows,
    so that a layer can't hide behind its projections. Rows that see no key get whatever the rule of the
    answer gives.

    parameters, inputs: float64, as for the oracle.
    """
    heads = heads_for(case, rule, parameters, inputs, rows, np.float64)
    # (1 or B, Hkv, 1 or R, 1 or Dv): the query heads of a group have the same values.
    own_places = np.clip(heads.rows + case.query_offset, 0, case.Lk - 1)
    by_value = {
        "zeros": np.zeros((1, case.Hkv, 1, 1)),
        "first_value": heads.v[:, :, :1],
        "own_value": heads.v[:, :, own_places],
        "mean": heads.v.mean(axis=2, keepdims=True),
        "running_mean": _running_mean(heads),
    }
    shape = (case.B, case.H, len(heads.rows), case.Dv)
    outs = {n: np.broadcast_to(np.repeat(x, case.H // x.shape[1], 1), shape) for n, x in by_value.items()}
    outs["nearest_value"] = _nearest_value(heads)
    return {name: store(finish(heads, outs[name]).astype(np.float64), case.dtype) for name in TRIVIAL_ANSWERS}


def wrong_constants(case: Case, rule: Rule) -> Iterator[Case]:
    """Yield the case with one of its constants at its default, or at an end of its range.

    Those within 5 % of the constant are left out, as a default with fewer digits is.
    """
    for constant in rule.constants:
        own = dict(case.constants).get(constant.name)
        for other in (constant.default_of(case), constant.least, constant.most):
            if own is not None and other is not None and not isclose(own, other, rel_tol=0.05):
                chosen = dict(case.constants) | {constant.name: other}
                yield replace(case, constants=tuple(chosen.items()))


def _running_mean(heads: HeadInputs) -> Array:
    case, rows = heads.case, heads.rows
    heads_of = max(mask_heads(case), case.Hkv)
    v = np.repeat(heads.v, heads_of // case.Hkv, axis=1)
    out = np.zeros((case.B, heads_of, len(rows), case.Dv))
    at_once = max(1, PAIRS_AT_ONCE // (case.B * case.Lk))
    for start in range(0, len(rows), at_once):
        at = slice(start, start + at_once)
        keep = keep_rows(case, rows[at])
        if keep is None:
            out[:, :, at] = v.mean(axis=2, keepdims=True)
            continue
        share = keep / np.maximum(1, keep.sum(-1, keepdims=True))
        out[:, :, at] = share @ v
    return out


def _nearest_value(heads: HeadInputs) -> Array:
    case = heads.case
    out = np.zeros((case.B, case.H, len(heads.rows), case.Dv))
    for b, h, at, weights in weights_of(heads):
        out[b, h, at] = heads.v[b, h // case.group, weights.argmax(axis=-1)]
    return out
