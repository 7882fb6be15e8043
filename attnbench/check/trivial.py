"""Trivial answers, which need no attention. A case on which one of them passes the check proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Parameters, Stored, store, widen
from attnbench.masks import keep_rows
from attnbench.oracle.solve import Heads, finish, heads_of, weights_of
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
    inputs: tuple[Stored, Stored, Stored],
    rows: Rows | None = None,
) -> dict[str, Stored]:
    """Return the output of every trivial answer by name, of the query rows ``rows`` (None for all), as
    stored.

    Shapes are those of :func:`attnbench.oracle.solve.solve`. In ``multihead`` the output projection follows,
    so that a layer can't hide behind its projections. Rows that see no key get whatever the rule of the
    answer gives.

    parameters: float64, as for the oracle. inputs: as stored.
    """
    case_rows = np.arange(case.Lq) if rows is None else rows
    wide = tuple(widen(array, case.dtype) for array in inputs)
    heads = _heads(case, rule, parameters, (wide[0], wide[1], wide[2]), case_rows)
    outs = {name: make(case, heads, case_rows) for name, make in _CHEAP.items()}
    outs["nearest_value"] = _nearest_value(case, rule, parameters, heads, case_rows)
    return {
        name: store(
            finish(case, rule, parameters.projections, heads.q, outs[name]).astype(np.float64), case.dtype
        )
        for name in TRIVIAL_ANSWERS
    }


def _heads(
    case: Case, rule: Rule, parameters: Parameters, sources: tuple[Array, Array, Array], rows: Rows
) -> Heads:
    """Return projected heads for the given query rows alone."""
    axis = 2 if case.layer is None else 1
    queries, keys, values = sources
    keys = np.take(keys, rows, axis) if rule.pairs_keys else keys
    return heads_of(case, parameters.projections, (np.take(queries, rows, axis), keys, values))


def _zeros(case: Case, heads: Heads, rows: Rows) -> Array:
    return np.zeros((case.B, case.H, len(rows), case.Dv))


def _first_value(case: Case, heads: Heads, rows: Rows) -> Array:
    return _by_query_head(case, np.repeat(heads.v[:, :, :1], len(rows), axis=2))


def _own_value(case: Case, heads: Heads, rows: Rows) -> Array:
    own = np.clip(rows + case.query_offset, 0, case.Lk - 1)
    return _by_query_head(case, heads.v[:, :, own])


def _mean(case: Case, heads: Heads, rows: Rows) -> Array:
    mean = heads.v.mean(axis=2, keepdims=True)
    return _by_query_head(case, np.repeat(mean, len(rows), axis=2))


def _running_mean(case: Case, heads: Heads, rows: Rows) -> Array:
    out = np.zeros((case.B, case.Hkv, len(rows), case.Dv))
    at_once = max(1, PAIRS_AT_ONCE // (case.B * case.Lk))
    for start in range(0, len(rows), at_once):
        at = slice(start, start + at_once)
        keep = keep_rows(case, rows[at])
        if keep is None:
            out[:, :, at] = heads.v.mean(axis=2, keepdims=True)
            continue
        share = keep / np.maximum(1, keep.sum(-1, keepdims=True))
        out[:, :, at] = share @ heads.v
    return _by_query_head(case, out)


_CHEAP: dict[str, Callable[[Case, Heads, Rows], Array]] = {
    "zeros": _zeros,
    "first_value": _first_value,
    "own_value": _own_value,
    "mean": _mean,
    "running_mean": _running_mean,
}


def _nearest_value(case: Case, rule: Rule, parameters: Parameters, heads: Heads, rows: Rows) -> Array:
    out = np.zeros((case.B, case.H, len(rows), case.Dv))
    for b, h, at, weights in weights_of(case, rule, parameters.rule, heads.q, heads.k, rows):
        out[b, h, at] = heads.v[b, h // case.group, weights.argmax(axis=-1)]
    return out


def _by_query_head(case: Case, of_values: Array) -> Array:
    """Repeat (B, Hkv, R, Dv) to (B, H, R, Dv): the query heads of a group have the same values."""
    return np.repeat(of_values, case.group, axis=1)
