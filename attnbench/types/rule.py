"""Scoring rules: the maths from queries and keys to attention weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnbench.types.case import Case

    Array = NDArray[np.floating[Any]]


Law = Literal["flip_features", "scale_features", "permute_queries"]
"""What leaves the weights as they are, whatever the mask: flipping the sign of the same features of q and k;
multiplying features of q by powers of two that those of k are divided by; permuting queries, with whom
their rows go (rules that look at no positions). The scores must come out with the same bits."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a rule, one for each query head.

    shape: the shape for one head; the whole parameter is (H, *shape).
    draw: ``draw(rng, H, shape)`` gives float64 values of shape (H, *shape) that keep scores of
        unit-variance q and k in a range where softmax neither saturates nor is flat.
    """

    name: str
    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, int, tuple[int, ...]], Array]


@dataclass(frozen=True)
class DotForm:
    """Scores written as ``cap(scale * map_q(q) @ map_k(k)ᵀ)``, so that dot-product kernels can run them.

    map_q, map_k: (B, H, Lq, D) and (B, H or Hkv, Lk, D) to the same shapes; None for no change.
        ``map_q`` always sees all H query heads.
    scale: multiplies the dot product (1 for none).
    cap: scores are ``cap * tanh(scores / cap)`` where it isn't None, before any bias.
    """

    scale: float = 1.0
    map_q: Callable[[Tensor], Tensor] | None = None
    map_k: Callable[[Tensor], Tensor] | None = None
    cap: float | None = None


@dataclass(frozen=True)
class Scoring:
    """A rule bound to a case and its parameters, in torch: what a backend computes with.

    weights = softmax(scores + bias + mask) over the keys and, where there is a sink, one more
    logit whose weight goes nowhere.

    dot: the scores as a dot product, where the rule has that form; None otherwise.
    scores: ``scores(q, k, cols)`` gives (B, H, rows, cols) for q (B, H, rows, D) and the keys k
        (B, H, cols, D) of the columns ``cols``, already repeated to H heads; for a rule that pairs
        keys with queries k is (B, H, rows, D). Without bias, without mask. None where ``dot`` says it
        all: :func:`attnbench.kit.scores.scores_of` gives the function for either.
    bias: ``bias(rows, cols)`` gives (H, rows, cols) to add to the scores; depends on positions and
        parameters alone, so it's made in preparation.
    sink: (H,) logits, or None.
    """

    dot: DotForm | None = None
    scores: Callable[[Tensor, Tensor, slice], Tensor] | None = None
    bias: Callable[[slice, slice], Tensor] | None = None
    sink: Tensor | None = None


@dataclass(frozen=True)
class Rule:
    """A scoring rule.

    name: how it's called everywhere. formula: the score of query i and key j in one line.
    source: where the formula comes from, one line.

    reference: the NumPy scores of one head, ``reference(q, k, parameters, positions)`` with q
        (rows, D), k (Lk, D) (or (rows, D) where keys are paired with queries), ``parameters`` of that
        head by name, and ``positions`` the rows' positions on the key axis, (rows,); gives (rows, Lk).
        It computes in the dtype it is given, float64 or wider, and includes bias but not mask or sink.
    bind: the same maths for torch: ``bind(case, parameters)`` with parameters (H, ...) gives a
        :class:`Scoring`.
    parameters: what it needs for a case.
    sink: for rules with one, ``sink(parameters)`` of one head gives its logit.
    pairs_keys: k has the length of q: each query is paired with its own key.
    concatenates: as a layer its last map is of [query ; merged heads] instead of the merged heads.
    score_elements: how many elements a straightforward (broadcasting) form holds per (query, key)
        pair while it computes the scores: 1, or D for ``additive``.
    score_flops: ``score_flops(case)`` gives operations per kept (query, key) pair for the scores; None for
        2·D, the dot product.
    laws: which of :data:`Law` hold for it. With them its outputs can be checked on inputs made anew all the
        time; those that hold for any rule need no word.
    supports: gives the reason in words why a case makes no sense for the rule, or None.
    no_gradients: likewise why its gradients tell nothing there, so that no backend is asked for them.
    """

    name: str
    formula: str
    source: str
    reference: Callable[[Array, Array, Mapping[str, Array], Array], Array]
    bind: Callable[[Case, Mapping[str, Tensor]], Scoring]
    parameters: Callable[[Case], tuple[Parameter, ...]] = lambda case: ()
    sink: Callable[[Mapping[str, Array]], float] | None = None
    pairs_keys: bool = False
    concatenates: bool = False
    has_dot_form: bool = True
    score_elements: Callable[[Case], int] = lambda case: 1
    score_flops: Callable[[Case], int] | None = None
    laws: tuple[Law, ...] = ()
    supports: Callable[[Case], str | None] = lambda case: None
    no_gradients: Callable[[Case], str | None] = lambda case: None
