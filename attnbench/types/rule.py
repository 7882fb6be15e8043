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
"""Transforms that keep the weights under any mask. flip_features: flip the sign of the same features of q
and k. scale_features: multiply features of q by powers of two, and divide those of k by them.
permute_queries: permute queries with their rows (rules that ignore positions). Scores must keep their
bits."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a rule, one for each query head.

    shape: for one head; the whole parameter is (H, *shape). draw: ``draw(rng, H, shape)`` gives float64
    values of shape (H, *shape) that keep scores of unit-variance q and k in a range where softmax is neither
    saturated nor flat.
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

    weights = softmax(scores + bias + mask) over the keys, with one more logit for a sink, whose weight is
    dropped.

    dot: the scores as a dot product; None where the rule has no such form. scores: ``scores(q, k, cols)``
    gives (B, H, rows, cols) for q (B, H, rows, D) and the keys k (B, H, cols, D) of the columns ``cols``,
    already repeated to H heads. For a rule that pairs keys with queries k is (B, H, rows, D). Bias and mask
    are not included. None where ``dot`` suffices; :func:`attnbench.kit.scores.scores_of` gives the function
    for either. bias: ``bias(rows, cols)`` gives (H, rows, cols) to add to the scores. It depends on positions
    and parameters alone, so it can be prepared. sink: (H,) logits, or None.
    """

    dot: DotForm | None = None
    scores: Callable[[Tensor, Tensor, slice], Tensor] | None = None
    bias: Callable[[slice, slice], Tensor] | None = None
    sink: Tensor | None = None


@dataclass(frozen=True)
class Rule:
    """A scoring rule.

    name: used everywhere. formula: the score of query i and key j in one line. source: of the formula, one
    line.

    reference: the NumPy scores of one head, ``reference(q, k, parameters, positions)``. q is (rows, D); k is
    (Lk, D), or (rows, D) for paired keys. ``parameters`` are those of the head by name; ``positions`` (rows,)
    are the rows' positions on the key axis. It returns (rows, Lk) in the dtype of its inputs, float64 or
    wider, with bias but without mask and sink.

    bind: the same for torch: ``bind(case, parameters)`` with parameters (H, ...) gives a :class:`Scoring`.

    parameters: those that a case needs. sink: for a rule with one, ``sink(parameters)`` of one head gives its
    logit. pairs_keys: k has the length of q; each query is paired with its own key. concatenates: as a layer,
    the output projection maps [query ; merged heads] instead of the merged heads.

    score_elements: elements that a broadcasting form holds for each (query, key) pair while it computes the
    scores: 1, or D for ``additive``. score_flops: ``score_flops(case)`` gives operations for the score of one
    kept pair; None for 2·D, the dot product.

    laws: the ones of :data:`Law` that hold. They let attnbench check outputs on new inputs in every call.
    Those that hold for any rule need no entry.

    supports: gives the reason in words why a case makes no sense for the rule, or None. no_gradients: gives
    the reason why gradients are meaningless there, so that no backend is asked for them, or None.
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
