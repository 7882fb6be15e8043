"""Right attention in other orders: of keys, features, queries, heads; of sums, products and divisions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.kit.scores import map_keys, map_queries, soft_cap
from attnbench.testing.mistakes.parts import (
    RIGHT,
    Form,
    built,
    mask_of,
    normalised,
    plus_bias,
    right_mix,
    right_scores,
    sink_column,
    wide_dtype,
)
from attnbench.types.backend import Setup
from attnbench.types.case import PASSES, Case
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import Applies, Mutant
from attnbench_selftest.mutants.where import anywhere

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def powers(scores: Tensor) -> Tensor:
    """e^(s - largest); zeros in a row that keeps nothing."""
    top = scores.amax(-1, keepdim=True)
    return (scores - top.masked_fill(top.isneginf(), 0)).exp()


def _by_hand(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    wide = torch.cat((scores.to(added.dtype) + added, sink_column(setup, added + scores)), -1)
    raised = powers(wide)
    total = raised.sum(-1, keepdim=True)
    return (raised / total.masked_fill(total == 0, 1))[..., :-1].to(scores.dtype)


def _base_2(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    wide = torch.cat((scores.to(added.dtype) + added, sink_column(setup, added + scores)), -1)
    wide = wide * math.log2(math.e)
    top = wide.amax(-1, keepdim=True)
    raised = (wide - top.masked_fill(top.isneginf(), 0)).exp2()
    total = raised.sum(-1, keepdim=True)
    return (raised / total.masked_fill(total == 0, 1))[..., :-1].to(scores.dtype)


def _log_sum(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    wide = torch.cat((scores.to(added.dtype) + added, sink_column(setup, added + scores)), -1)
    # Without the maximum first, e^(s - total) loses as many digits as the scores have before the point.
    largest = wide.amax(-1, keepdim=True)
    lower = wide - largest.masked_fill(largest.isneginf(), 0)
    total = lower.logsumexp(-1, keepdim=True)
    weights = (lower - total.masked_fill(total.isneginf(), 0)).exp()
    return weights[..., :-1].to(scores.dtype)


def _wide_log_sum(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """A log-sum-exp handed over in the wide dtype: of ±1000 it has an ulp of 6e-5 in float32."""
    import torch

    wide = torch.cat((scores.to(added.dtype) + added, sink_column(setup, added + scores)), -1)
    total = wide.logsumexp(-1, keepdim=True)
    return (wide - total.masked_fill(total.isneginf(), 0)).exp()[..., :-1].to(scores.dtype)


def _exp_20_ulp(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """An error that swings between -20 and 20 ulp five times in each power of two."""
    import torch

    wide = torch.cat((scores.to(added.dtype) + added, sink_column(setup, added + scores)), -1)
    top = wide.amax(-1, keepdim=True)
    lower = wide - top.masked_fill(top.isneginf(), 0)
    place = (lower.detach().double() / math.log(2)).masked_fill(lower.isneginf(), 0)
    error = 10 * torch.finfo(wide.dtype).eps * (10 * math.pi * place).sin()
    raised = (lower.exp() * (1 + error)).to(wide.dtype)
    total = raised.sum(-1, keepdim=True)
    return (raised / total.masked_fill(total == 0, 1))[..., :-1].to(scores.dtype)


def _other_axis(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Keys on the first axis, in a copy."""
    import torch

    wide = torch.cat((scores.to(added.dtype) + added, sink_column(setup, added + scores)), -1)
    turned = wide.permute(3, 0, 2, 1).contiguous().softmax(0).permute(1, 3, 2, 0)
    return turned.nan_to_num(0)[..., :-1].to(scores.dtype)


def _keys_by_queries(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    dot = setup.scoring.dot
    if dot is None:
        return right_scores(setup, q, k)
    return soft_cap(dot, (map_keys(dot, k) @ map_queries(dot, q).mT).mT * dot.scale)


def _queries_scaled(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    dot = setup.scoring.dot
    if dot is None:
        return right_scores(setup, q, k)
    return soft_cap(dot, (map_queries(dot, q) * dot.scale) @ map_keys(dot, k).mT)


def _features_reversed(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    dot = setup.scoring.dot
    assert dot is not None
    product = map_queries(dot, q).flip(-1) @ map_keys(dot, k).flip(-1).mT
    return soft_cap(dot, product * dot.scale)


def _features_in_halves(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """Two products of half of the features each, added in the wide dtype."""
    dot = setup.scoring.dot
    assert dot is not None
    wide, half = wide_dtype(setup), setup.case.D // 2
    a, b = map_queries(dot, q).to(wide), map_keys(dot, k).to(wide)
    product = a[..., :half] @ b[..., :half].mT + a[..., half:] @ b[..., half:].mT
    return soft_cap(dot, product * dot.scale).to(q.dtype)


def _by_einsum(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    import torch

    dot = setup.scoring.dot
    if dot is None:
        return right_scores(setup, q, k)
    product: Tensor = torch.einsum("bhid,bhjd->bhij", map_queries(dot, q), map_keys(dot, k))
    return soft_cap(dot, product * dot.scale)


def _mixed_by_einsum(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    mixed: Tensor = torch.einsum("bhij,bhjd->bhid", weights, v)
    return mixed


def _keys_reversed(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    return weights.flip(-1) @ v.flip(2)


def _in_pairs(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    """Sums of sums of eight keys, two and two, in the wide dtype."""
    import torch

    wide = wide_dtype(setup)
    pairs = zip(torch.split(weights, 8, -1), torch.split(v, 8, 2), strict=True)
    parts = [a.to(wide) @ b.to(wide) for a, b in pairs]
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + odd
    return parts[0].to(v.dtype)


def _one_by_one(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    """One key after the other, in the wide dtype."""
    wide = wide_dtype(setup)
    total = weights.new_zeros((*weights.shape[:-1], v.shape[-1]), dtype=wide)
    for of_key, value in zip(weights.to(wide).unbind(-1), v.to(wide).unbind(-2), strict=True):
        total = total + of_key[..., None] * value[..., None, :]
    return total.to(v.dtype)


def _wide_values(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    wide = wide_dtype(setup)
    return right_mix(setup, weights.to(wide), v.to(wide)).to(v.dtype)


def _masked_by_bool(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """The mask's numbers added where they are finite, the rest filled in."""
    dropped = added.isneginf()
    wide = scores.to(added.dtype) + added.masked_fill(dropped, 0)
    return normalised(setup, wide.masked_fill(dropped, -math.inf)).to(scores.dtype)


def _divided_last(setup: Setup) -> Call:
    """Powers times values, divided by the sum of powers at the end."""
    import torch

    added = plus_bias(setup, mask_of(RIGHT, setup))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = RIGHT.scores(setup, q, RIGHT.spread(setup, k)).to(added.dtype) + added
        raised = powers(torch.cat((scores, sink_column(setup, scores)), -1))
        total = raised.sum(-1, keepdim=True)
        out = raised[..., :-1] @ RIGHT.spread(setup, v).to(added.dtype)
        return (out / total.masked_fill(total == 0, 1)).to(q.dtype)

    return for_operation(attend, setup)


def _has_dot(case: Case, rule: Rule) -> bool:
    return rule.has_dot_form


FORMS: dict[str, tuple[str, Form, Applies]] = {
    "plain": ("the form that wrong ones are made of", RIGHT, anywhere),
    "softmax_by_hand": ("maximum, powers, sum and division one by one", Form(weights=_by_hand), anywhere),
    "powers_of_2": ("2^(s·log2 e)", Form(weights=_base_2), anywhere),
    "log_sum_exp": ("e^(s - m - log Σ e^(s - m))", Form(weights=_log_sum), anywhere),
    "wide_log_sum_exp": ("e^(s - log Σ e^s) in the wide dtype", Form(weights=_wide_log_sum), anywhere),
    "exp_within_20_ulp": ("an exp that is up to 20 ulp off", Form(weights=_exp_20_ulp), anywhere),
    "softmax_of_a_turned_copy": ("keys on another axis", Form(weights=_other_axis), anywhere),
    "masked_by_bool": ("filled with -inf instead of adding it", Form(weights=_masked_by_bool), anywhere),
    "scores_transposed": ("keys times queries", Form(scores=_keys_by_queries), anywhere),
    "queries_scaled": ("the scale on the queries", Form(scores=_queries_scaled), anywhere),
    "features_reversed": ("features from the last to the first", Form(scores=_features_reversed), _has_dot),
    "features_in_halves": ("two halves of the features, added", Form(scores=_features_in_halves), _has_dot),
    "einsum": ("both products by einsum", Form(scores=_by_einsum, mix=_mixed_by_einsum), anywhere),
    "keys_reversed": ("keys from the last to the first", Form(mix=_keys_reversed), anywhere),
    "sums_in_pairs": ("weighted values summed two and two", Form(mix=_in_pairs), anywhere),
    "sums_one_by_one": ("weighted values added key by key", Form(mix=_one_by_one), anywhere),
    "wide_values": ("weights times values in float32 for half precision", Form(mix=_wide_values), anywhere),
}

NO_BACKWARD = ("log_sum_exp", "wide_log_sum_exp", "exp_within_20_ulp", "softmax_of_a_turned_copy")
"""Without gradients: NaN in rows that keep nothing, which their answers hide."""

MUTANTS: tuple[Mutant, ...] = (
    *(
        Mutant(
            name=name,
            summary=words,
            prepare=lambda setup, form=form: built(form, setup),  # type: ignore[misc]
            right=True,
            applies=applies,
            passes=("forward",) if name in NO_BACKWARD else PASSES,
            masks_by_head=True,
        )
        for name, (words, form, applies) in FORMS.items()
    ),
    Mutant(
        name="divided_last",
        summary="powers times values, divided at the end",
        prepare=_divided_last,
        right=True,
        applies=anywhere,
    ),
)
