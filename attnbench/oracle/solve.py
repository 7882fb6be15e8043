"""The exact answer in float64: projections, attention weights in chunks of rows, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import Parameters
from attnbench.masks import added_rows, keep_rows, of_problem
from attnbench.types.case import Case
from attnbench.types.operation import Problem, operation_of
from attnbench.types.rule import Rule, of_head

if TYPE_CHECKING:
    from attnbench.types.operation import Heads
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class HeadInputs:
    """A case in heads, in the dtype to compute in.

    rows: the R query rows. q: (B, H, R, D). k: (B, Hkv, Lk or R, D). v: (B, Hkv, Lk, Dv).
    """

    case: Case
    rule: Rule
    parameters: Parameters
    rows: NDArray[np.intp]
    q: Array
    k: Array
    v: Array


def finish(heads: HeadInputs, out: Array) -> Array:
    """Return the output that an operation makes of (B, H, R, Dv)."""
    case = heads.case
    return _maps(case).finish(case, heads.rule, heads.parameters.projections, heads.q, out)


def _maps(case: Case) -> Heads:
    heads = operation_of(case).heads
    assert heads is not None, f"{case.operation} has no heads"
    return heads


ELEMENTS_AT_ONCE = 1 << 20
"""The elements of scores in a chunk: they fit a cache, and memory holds only a few such arrays."""


def weights_of(heads: HeadInputs) -> Iterator[tuple[int, int, slice, Array]]:
    """Yield (b, h, slice of ``rows``, weights (r, Lk)) for every chunk of every head."""
    case, rule, parameters = heads.case, heads.rule, heads.parameters.rule
    for b, h, at, scores in scores_of(case, rule, parameters, heads.q, heads.k, heads.rows):
        sink = None if rule.sink is None else rule.sink(of_head(case, rule, parameters, h))
        yield b, h, at, softmax(scores, sink)


def scores_of(
    case: Case, rule: Rule, parameters: Mapping[str, Array], q: Array, k: Array, rows: NDArray[np.intp]
) -> Iterator[tuple[int, int, slice, Array]]:
    """Yield (b, h, slice of ``rows``, scores (r, Lk)) for every chunk of every head; -inf for dropped pairs.

    q: (B, H, R, D) of these rows. k: (B, Hkv, Lk, D), or (B, Hkv, R, D) where the rule pairs keys.
    """
    positions = (rows + case.query_offset).astype(q.dtype)
    at_once = max(1, ELEMENTS_AT_ONCE // max(1, case.Lk * rule.score_elements(case)))
    own = [of_head(case, rule, parameters, h) for h in range(case.H)]
    for start in range(0, len(rows), at_once):
        at = slice(start, min(start + at_once, len(rows)))
        added, keep = added_rows(case, rows[at]), keep_rows(case, rows[at])
        for b in range(case.B):
            for h in range(case.H):
                keys = k[b, h // case.group]
                scores = rule.reference(
                    q[b, h, at], keys[at] if rule.pairs_keys else keys, own[h], positions[at]
                )
                if scores.shape != (at.stop - at.start, case.Lk):
                    raise ValueError(
                        f"the reference of the rule {rule.name} gives scores of shape {scores.shape}; "
                        f"{(at.stop - at.start, case.Lk)} is needed"
                    )
                if added is not None:
                    scores = scores + of_problem(added, b, h)
                if keep is not None:
                    scores = np.where(of_problem(keep, b, h), scores, -np.inf)
                yield b, h, at, scores


def softmax(scores: Array, sink: float | None = None) -> Array:
    """Return weights along the last axis; a row of only -inf gives 0. A sink takes a share and adds no
    value."""
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        largest = np.maximum(largest, sink)
    largest = np.where(np.isneginf(largest), 0, largest)
    powers = np.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
    return np.asarray(powers / np.where(total == 0, 1, total))


FEWEST_ROWS = 16

LONGDOUBLE_COST = 80
"""How many times longer a matrix product takes in longdouble, which has no BLAS, than in float64."""


def choose_rows(
    case: Case, rule: Rule, flops_limit: float, rng: np.random.Generator
) -> NDArray[np.intp] | None:
    """Choose query rows, sorted; None where solving all costs at most ``flops_limit`` operations.

    The first, the last, those beside likely edges of blocks (64, 128, 256, ...), then random ones: as many as
    the limit allows, and at least 16.
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
    """Return the operations for one query row of all heads and batch elements; dropped pairs cost as much."""
    by_pair = 2 * case.D if rule.score_flops is None else rule.score_flops(case)
    cost = case.B * case.H * case.Lk * (by_pair + 2.0 * case.Dv)
    return cost * LONGDOUBLE_COST if case.dtype == "float64" else cost


def solve(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp] | None = None,
) -> Array:
    """Compute the output of the query rows ``rows`` (None for all).

    (B, H, R, Dv) for ``attention``; (B, R, E) for ``multihead``, or (B, R, H·Dv) without output projection. A
    row that keeps no key gives 0, before the output projection.

    parameters, activations: float64, in the shapes of :mod:`attnbench.types.case`.
    """
    heads = heads_for(case, rule, parameters, activations, rows, _wide(case))
    out = np.zeros((case.B, case.H, len(heads.rows), case.Dv), heads.v.dtype)
    for b, h, at, weights in weights_of(heads):
        out[b, h, at] = weights @ heads.v[b, h // case.group]
    return finish(heads, out)


def log_sums(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp] | None = None,
) -> Array:
    """Compute the natural logarithm of the sum of exp(score) over the keys of each query row, (B, H, R).

    A sink is not in it. A row that keeps no key gives -inf. Arguments are those of :func:`solve`.
    """
    heads = heads_for(case, rule, parameters, activations, rows, _wide(case))
    found = np.full((case.B, case.H, len(heads.rows)), -np.inf, heads.q.dtype)
    own = heads.parameters.rule
    for b, h, at, scores in scores_of(case, rule, own, heads.q, heads.k, heads.rows):
        largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        largest = np.where(np.isneginf(largest), 0, largest)
        with np.errstate(divide="ignore"):
            found[b, h, at] = np.log(np.exp(scores - largest).sum(axis=-1)) + largest[..., 0]
    return found


def problem_of(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    inputs: Mapping[str, Any],
    rows: NDArray[np.intp] | None = None,
) -> Problem:
    """Return what an operation with its own ``solve`` gets: the query rows ``rows`` (None for all).

    inputs: of all rows, floats in float64.
    """
    if rows is not None:
        specs = {spec.name: spec for spec in operation_of(case).inputs(case, rule)}
        inputs = {name: _rows_of(array, specs[name].axes, rows) for name, array in inputs.items()}
    return Problem(case, rule, parameters.rule, parameters.projections, inputs, rows)


def _rows_of(array: Any, axes: str, rows: NDArray[np.intp]) -> Any:
    """Return the query rows of an input: they lie along "i", and keys that are paired with them along "p"."""
    for letter in "ip":
        if letter in axes:
            return np.take(array, rows, axes.index(letter))
    return array


def solve_outputs(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    inputs: Mapping[str, Any],
    rows: NDArray[np.intp] | None = None,
) -> dict[str, Array]:
    """Return all outputs by name for an operation with its own ``solve``, as :func:`problem_of` gets them.

    Raises:
        ValueError: the operation gives other outputs than it declares.
    """
    operation = operation_of(case)
    assert operation.solve is not None
    solved = operation.solve(problem_of(case, rule, parameters, inputs, rows))
    declared = {
        spec.name: tuple(
            len(rows) if rows is not None and letter == "i" else size
            for letter, size in zip_longest(spec.axes, spec.shape)
        )
        for spec in operation.outputs(case)
    }
    given = {name: array.shape for name, array in solved.items()}
    if given != declared:
        raise ValueError(f"the operation {case.operation!r} solves {given}; it declares {declared}")
    return {name: solved[name] for name in declared}


def solve_weights(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp] | None = None,
) -> Array:
    """Compute the attention weights of query rows, (B, H, R, Lk). For examples and tests: all pairs in
    memory."""
    heads = heads_for(case, rule, parameters, activations, rows, _wide(case))
    all_weights = np.zeros((case.B, case.H, len(heads.rows), case.Lk), heads.v.dtype)
    for b, h, at, weights in weights_of(heads):
        all_weights[b, h, at] = weights
    return all_weights


def heads_for(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    activations: tuple[Array, Array, Array],
    rows: NDArray[np.intp] | None,
    wide: type[np.floating[Any]],
) -> HeadInputs:
    """Return the heads of the query rows ``rows`` (None for all) in a dtype to compute in."""
    rows = np.arange(case.Lq) if rows is None else rows
    own = {name: array.astype(wide) for name, array in parameters.rule.items()}
    projections = {name: array.astype(wide) for name, array in parameters.projections.items()}
    maps = _maps(case)
    axis = maps.rows
    queries, keys, values = activations
    keys = np.take(keys, rows, axis) if rule.pairs_keys else keys
    # Keys and values that are in this dtype already stay what they are: nothing writes to them.
    sources = (
        np.take(queries, rows, axis).astype(wide),
        keys.astype(wide, copy=False),
        values.astype(wide, copy=False),
    )
    q, k, v = maps.project(case, projections, sources)
    return HeadInputs(case, rule, Parameters(own, projections), rows, q, k, v)


def _wide(case: Case) -> type[np.floating[Any]]:
    return np.longdouble if case.dtype == "float64" else np.float64
