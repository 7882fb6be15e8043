"""Mistakes in the scores and on the way from them to weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.inputs import unlikely_values
from attnbench.testing.mutants.mutant import (
    Applies,
    Form,
    Mutant,
    mistaken,
    normalised,
    right_scores,
    sink_column,
)
from attnbench.testing.mutants.where import (
    both,
    choosing,
    keeps_a_key,
    keeps_beyond,
    keeps_more_than,
    kept,
    scaled,
    scores_matter,
    unbounded,
)
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor


def _times(factor: float) -> Form:
    """Scores that are too large by a factor; in the wide dtype, so that no rounding hides it."""

    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        return normalised(setup, scores.to(added.dtype) * factor + added).to(scores.dtype)

    return Form(weights=weights)


def _root(power: int) -> Form:
    """Queries times √D to some power."""
    return Form(scores=lambda setup, q, k: right_scores(setup, q * setup.case.D ** (power / 2), k))


def _nan_far_out(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    made = right_scores(setup, q, k)
    return made.masked_fill(made.abs() > 40, float("nan"))


def _clamped(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k).clamp(-20, 20)


def _of_the_key_before(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k).roll(1, -1)


BLOCK = 16


def weighed(function: Callable[[Setup, Tensor], Tensor]) -> Form:
    """A form whose weights are a function of masked scores in the wide dtype."""

    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        return function(setup, scores.to(added.dtype) + added).to(scores.dtype)

    return Form(weights=weights)


def _shares(setup: Setup, powers: Tensor, sink: Tensor | float) -> Tensor:
    """Powers divided by their sum and what the sink adds to it, 0 where that is 0."""
    total = powers.sum(-1, keepdim=True) + sink
    return powers / total.masked_fill(total == 0, 1)


def _base_2(setup: Setup, scores: Tensor) -> Tensor:
    return _shares(setup, (scores * math.log(2)).exp(), (sink_column(setup, scores) * math.log(2)).exp())


def _over_queries(setup: Setup, scores: Tensor) -> Tensor:
    empty = scores.isneginf().all(-2, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-2).masked_fill(scores.isneginf(), 0)


def _no_maximum(setup: Setup, scores: Tensor) -> Tensor:
    return _shares(setup, scores.exp(), sink_column(setup, scores).exp())


def _maximum_of_a_block(setup: Setup, scores: Tensor) -> Tensor:
    top = scores[..., :BLOCK].amax(-1, keepdim=True)
    top = top.masked_fill(top.isneginf(), 0)
    return _shares(setup, (scores - top).exp(), (sink_column(setup, scores) - top).exp())


def _not_rescaled(setup: Setup, scores: Tensor) -> Tensor:
    """Each block less the maximum so far; what was summed before is left as it was."""
    import torch

    column = sink_column(setup, scores)
    top, parts = column, []
    for block in torch.split(scores, BLOCK, -1):
        top = torch.maximum(top, block.amax(-1, keepdim=True))
        parts.append((block - top.masked_fill(top.isneginf(), 0)).exp())
    return _shares(setup, torch.cat(parts, -1), (column - top).nan_to_num(-math.inf).exp())


def _one_more(setup: Setup, scores: Tensor) -> Tensor:
    top = scores.amax(-1, keepdim=True).clamp_min(0)
    powers = (scores - top).exp()
    return powers / (powers.sum(-1, keepdim=True) + (-top).exp())


def _second_order(setup: Setup, scores: Tensor) -> Tensor:
    sink = sink_column(setup, scores)
    column = (1 + sink + sink * sink / 2) if setup.scoring.sink is not None else 0.0
    dropped = scores.isneginf()
    kept = scores.masked_fill(dropped, 0)
    return _shares(setup, (1 + kept + kept * kept / 2).masked_fill(dropped, 0), column)


def _few_keys(setup: Setup, scores: Tensor) -> Tensor:
    least = scores.topk(min(8, scores.shape[-1]), -1).values[..., -1:]
    return normalised(setup, scores.masked_fill(scores < least, -math.inf))


def _small_dropped(setup: Setup, scores: Tensor) -> Tensor:
    weights = normalised(setup, scores)
    return weights.masked_fill(weights < 0.25 * weights.amax(-1, keepdim=True), 0)


def _never_normalised(setup: Setup, scores: Tensor) -> Tensor:
    top = scores.amax(-1, keepdim=True)
    return (scores - top.masked_fill(top.isneginf(), 0)).exp()


def _axes_differ(case: Case, rule: Rule) -> bool:
    """Some key serves several queries, or some query has a choice."""
    return bool((kept(case).sum(-2) > 1).any() or choosing(case, rule).any())


def _no_sink(case: Case, rule: Rule) -> bool:
    return rule.sink is None and keeps_a_key(case, rule)


SOFTMAX: dict[str, tuple[str, Callable[[Setup, Tensor], Tensor], Applies]] = {
    "powers_of_2": ("2^s for e^s", _base_2, scores_matter),
    "softmax_over_queries": ("normalised along the other axis", _over_queries, _axes_differ),
    "no_maximum": ("e^s without less the maximum: large logits overflow", _no_maximum, unbounded),
    "maximum_of_the_first_block": (
        "less the maximum of the first 16 keys: larger ones overflow",
        _maximum_of_a_block,
        both(keeps_beyond(BLOCK), unbounded),
    ),
    "blocks_not_rescaled": (
        "sums of earlier blocks are kept when a larger maximum comes",
        _not_rescaled,
        both(keeps_beyond(BLOCK), keeps_more_than(24)),
    ),
    "one_more_in_the_denominator": ("1 / (1 + sum) for 1 / sum", _one_more, _no_sink),
    "second_order_powers": ("1 + s + s²/2 for e^s", _second_order, scores_matter),
    "eight_keys_only": ("the eight largest scores count", _few_keys, keeps_more_than(8)),
    "small_weights_dropped": (
        "those below a quarter of the largest are 0",
        _small_dropped,
        keeps_more_than(8),
    ),
    "never_normalised": ("powers that nobody divides by their sum", _never_normalised, scores_matter),
}

MUTANTS: tuple[Mutant, ...] = (
    mistaken(
        "scale_1_percent", "scores 1 % too large", _times(1.01), scores_matter, dtypes=("float32", "float64")
    ),
    mistaken(
        "scale_1_percent_in_bfloat16",
        "scores 1 % too large, for bfloat16 alone",
        _times(1.01),
        # Elsewhere it is no more than a right kernel's rounding.
        unlikely_values.applies,
        dtypes=("bfloat16",),
    ),
    mistaken(
        "scale_1_percent_in_float16",
        "scores 1 % too large, for float16 alone",
        _times(1.01),
        scores_matter,
        dtypes=("float16",),
    ),
    mistaken(
        "scale_a_thousandth_in_float32",
        "scores 0.1 % too large, for float32 alone",
        _times(1.001),
        scores_matter,
        dtypes=("float32",),
    ),
    mistaken("scale_twice", "divided by √D once more", _root(-1), scaled),
    mistaken("scale_omitted", "not divided by √D", _root(1), scaled),
    mistaken("scores_negated", "the farthest keys have most weight", _times(-1), scores_matter),
    mistaken(
        "scores_of_the_key_before",
        "each key has its neighbour's score",
        Form(scores=_of_the_key_before),
        lambda case, rule: case.Lk > 1 and scores_matter(case, rule),
    ),
    mistaken("nan_for_large_logits", "NaN where a logit is beyond 40", Form(scores=_nan_far_out), unbounded),
    mistaken("logits_clamped", "logits kept within 20", Form(scores=_clamped), unbounded),
    *(
        mistaken(name, words, weighed(function), applies)
        for name, (words, function, applies) in SOFTMAX.items()
    ),
)
