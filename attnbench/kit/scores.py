"""The scores of any rule as one function, and the ways to bind a rule to parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.layer import matmul_shared, repeat_heads
from attnbench.types.backend import Setup
from attnbench.types.case import rule_parameter_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import DotForm, Rule, Scoring

    Scores = Callable[[Tensor, Tensor, slice], Tensor]


def scores_of(scoring: Scoring, scale_queries: bool = True) -> Scores:
    """Make ``scores(q, k, cols)``, which gives (B, H, rows, cols), without bias and mask.

    q (B, H, rows, D); k (B, Hkv, cols, D), or the keys of the rows for a rule that pairs keys with
    queries; ``cols``: the columns of these keys, ``slice(0, Lk)`` for all. A dot form never repeats keys to H
    heads; a free form does.

    scale_queries: multiply the queries of a dot form by its scale, D numbers a row, instead of the scores,
    Lk numbers a row. Turn it off for a compiler that fuses the scale into the softmax.
    """
    if scoring.dot is not None:
        return _dot_scores(scoring.dot, scale_queries)
    free = scoring.scores
    assert free is not None, "a rule has a dot form or a score function"
    return lambda q, k, cols: free(q, repeat_heads(k, q.shape[1]), cols)


def map_queries(dot: DotForm, q: Tensor) -> Tensor:
    """q' of a dot form, without the scale: (B, H, L, D) as q."""
    return q if dot.map_q is None else dot.map_q(q)


def map_keys(dot: DotForm, k: Tensor) -> Tensor:
    """k' of a dot form: (B, H or Hkv, L, D) as k."""
    return k if dot.map_k is None else dot.map_k(k)


def soft_cap(dot: DotForm, scores: Tensor) -> Tensor:
    """Compute ``cap * tanh(scores / cap)``; without a cap return the scores."""
    if dot.cap is None:
        return scores
    return (scores * (1 / dot.cap)).tanh() * dot.cap


def _dot_scores(dot: DotForm, scale_queries: bool) -> Scores:
    def scores(q: Tensor, k: Tensor, cols: slice) -> Tensor:
        mapped = map_queries(dot, q)
        if scale_queries and dot.scale != 1:
            mapped = mapped * dot.scale
        product = matmul_shared(mapped, map_keys(dot, k).transpose(-1, -2))
        if not scale_queries and dot.scale != 1:
            product = product * dot.scale
        return soft_cap(dot, product)

    return scores


def form_of(case: Case, rule: Rule) -> Scoring:
    """Bind the rule to parameters of zeros, for ``supports``.

    The result shows which parts the rule has on this case (dot form, cap, bias, sink); ignore its numbers.
    """
    import torch

    shapes = rule_parameter_shapes(case, rule)
    zeros = {name: torch.zeros(shape, dtype=case_dtype(case)) for name, shape in shapes.items()}
    return rule.bind(case, zeros)


def derived(setup: Setup, make: Callable[[Setup], Call]) -> Call:
    """Return ``make(setup)`` in a forward pass; else a function that calls ``make`` anew in each call.

    A gradient reaches a parameter through a graph, and a backward pass uses the graph up. In ``backward`` and
    ``both`` each call therefore computes anew everything that comes from parameters: the rule's binding with
    its bias, joined or split matrices. Make masks outside of ``make``: they depend on the case alone.
    """
    if setup.case.pass_ == "forward":
        return make(setup)
    return lambda a, b, c: make(bound_anew(setup))(a, b, c)


def bound_anew(setup: Setup) -> Setup:
    """Bind the rule to its parameters once more, so that the binding has a fresh graph."""
    scoring = setup.rule.bind(setup.case, setup.rule_parameters)
    return Setup(setup.case, setup.rule, scoring, setup.rule_parameters, setup.projections)
