"""Mistakes in the mask, in heads and batch elements, in the ends of axes, and in the layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.testing.mistakes.masks import (
    added_mask,
    explicit_transposed,
    inverted,
    nothing_dropped_by_float,
    whole_blocks,
    without_keys,
)
from attnbench.testing.mistakes.parts import (
    RIGHT,
    Form,
    Mistake,
    built,
    normalised,
    right_mix,
    right_scores,
    weighed,
    with_projections,
)
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

_MASK = (
    "attnbench.kit.masks makes the case's mask, and attnbench.masks.keep_rows gives the pairs that it keeps"
)
_WINDOW = (
    "a window of n keys keeps |p - j| < n, so n keys including the query's own; "
    "a kernel that counts the others, as window_size=(n, 0), takes n - 1"
)
_PADDING = "key j counts where j < the length of its batch element"
_CORNER = (
    "look at case.mask.causal: upper_left lets query i see keys up to i (torch's is_causal), lower_right "
    "lets the last query see the last key (flash-attn); query 0 stands at case.query_offset"
)
_DIAGONAL = "keep key j for query i where j <= i + case.query_offset, which is 0 with upper_left"
_INVERTED = "True keeps a pair here and in torch's SDPA, but drops it in nn.MultiheadAttention: invert it"
_EMPTY = (
    "set rows of queries that keep no key to 0 (masked_fill, after the softmax; with a running "
    "maximum, subtract 0 where it is -inf, and divide by 1 where the sum is 0)"
)
_EMPTY_ROWS = f"the output of a query without keys is 0 here: {_EMPTY}, or decline such cases in supports()"
_NEGATIVE = f"use -inf, not a large negative number, and {_EMPTY}"
_WEIGH = f"dropped keys still have weight: {_NEGATIVE}"
_SHARED = (
    "key/value head h // (H // Hkv) serves query head h: repeat_interleave(case.group, dim=1) or enable_gqa"
)
_BATCH = "read the keys and values of each batch element"
_TRANSPOSE = "exchange heads and positions by transpose(1, 2), not by view or reshape"
_LAYOUT = "declare the layout that you use, for inputs and output: BHLD is (B, H, L, D), BLHD is (B, L, H, D)"
_KEYS = "give the last keys, past the last whole block, a block of their own or a mask"
_QUERIES = "write the last rows too, past the last whole block"
_VECTORS = "need not be a multiple of a vector's length: handle the rest, or decline it"
_BIAS = "add the bias where setup.projections has one"

BLOCK, LARGE_BLOCK, VECTOR = 16, 64, 8


def _ignored(part: str, where: str) -> str:
    return f"apply the {part}, or decline {where} in supports(); {_MASK}"


def _masked(**wrong: Any) -> Form:
    return Form(mask=partial(added_mask, **wrong))


def clamped(least: float) -> Form:
    """Add a large negative number for dropped keys, instead of -inf."""
    return Form(
        weights=lambda setup, scores, added: RIGHT.weights(setup, scores, added.clamp_min(least)),
    )


def _filled(score: float) -> Form:
    """Give dropped keys this score, whatever their own is."""
    return weighed(
        lambda setup, scores: normalised(setup, scores.masked_fill(scores.isneginf(), score)),
    )


def _after_softmax(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    dropped = added.isneginf()
    return RIGHT.weights(setup, scores, added.masked_fill(dropped, 0)).masked_fill(dropped, 0)


def _before_scale(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return RIGHT.weights(setup, scores, added * setup.case.D**-0.5)


def _mean_rows(setup: Setup, scores: Tensor) -> Tensor:
    return normalised(setup, scores.masked_fill(scores.isneginf().all(-1, keepdim=True), 0))


def _first_head_only(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    heads = torch.arange(setup.case.H, device=scores.device)[:, None, None]
    return RIGHT.weights(setup, scores, torch.where(heads == 0, added, 0))


MASKS: tuple[Mistake, ...] = (
    Mistake(
        "causal_from_the_other_corner", "causal from the other corner", _CORNER, _masked(other_corner=True)
    ),
    Mistake("causal_one_key_more", "causal, one key more", _DIAGONAL, _masked(ahead=1)),
    Mistake("causal_one_key_less", "causal, without the query's own key", _DIAGONAL, _masked(ahead=-1)),
    Mistake("causal_ignored", "no causal mask", _ignored("causal mask", "it"), _masked(left_out=("causal",))),
    Mistake("window_one_wider", "a window of one key too many", _WINDOW, _masked(earlier=1, later=1)),
    Mistake("window_one_narrower", "a window of one key too few", _WINDOW, _masked(earlier=-1, later=-1)),
    Mistake("window_one_more_behind", "a window of one key too many behind", _WINDOW, _masked(earlier=1)),
    Mistake("window_one_less_behind", "a window of one key too few behind", _WINDOW, _masked(earlier=-1)),
    Mistake("window_one_more_ahead", "a window of one key too many ahead", _WINDOW, _masked(later=1)),
    Mistake("window_one_less_ahead", "a window of one key too few ahead", _WINDOW, _masked(later=-1)),
    Mistake(
        "window_one_sided", "a window that looks back only",
        "without causal a window looks both ways: |p - j| < window", _masked(past_only=True),
    ),
    Mistake(
        "window_ignored", "no window", _ignored("window", "case.mask.window"), _masked(left_out=("window",))
    ),
    Mistake("padding_one_longer", "padding, one key more", _PADDING, _masked(longer=1)),
    Mistake("padding_one_shorter", "padding, one key less", _PADDING, _masked(longer=-1)),
    Mistake(
        "padding_ignored", "no padding", _ignored("padding", "case.mask.padding"),
        _masked(left_out=("padding",)),
    ),
    Mistake(
        "explicit_mask_ignored", "no explicit mask", _ignored("mask", "case.mask.explicit"),
        _masked(left_out=("explicit",)),
    ),
    Mistake(
        "mask_ignored", "no mask at all", _ignored("mask", "cases with one"),
        Form(mask=lambda case: np.zeros((case.B, 1, case.Lq, case.Lk))),
    ),
    Mistake(
        "mask_of_the_first_batch_element", "the mask of the first batch element for all",
        "each batch element has a mask of its own", _masked(one_for_all=True),
    ),
    Mistake(
        "mask_of_the_first_head", "the mask of the first head for all",
        "the mask is (B, H, Lq, Lk): give each head its own, or don't declare masks_by_head",
        _masked(first_head=True),
    ),
    Mistake(
        "float_mask_drops_nothing", "-inf of a float mask is read as 0",
        "a float mask contains -inf too: don't replace it by 0", Form(mask=nothing_dropped_by_float),
    ),
    Mistake(
        "explicit_mask_transposed", "a square mask with queries and keys exchanged",
        "the mask is (B, 1, Lq, Lk): queries first", Form(mask=explicit_transposed),
    ),
    Mistake(
        "mask_is_minus_10000", "dropped pairs get a finite number such as -1e4, not -inf", _WEIGH,
        clamped(-1e4),
    ),
    Mistake(
        "mask_after_softmax", "weights are masked and not normalised again",
        "mask the scores with -inf before the softmax, not the weights after it",
        Form(weights=_after_softmax),
    ),
    Mistake(
        "masked_scores_are_0", "the scores of dropped keys are 0, not -inf",
        "a dropped score is -inf: a score of 0 still has the weight e^0",
        weighed(lambda setup, scores: normalised(setup, scores.masked_fill(scores.isneginf(), 0))),
    ),
    Mistake(
        "float_mask_before_scale", "a float mask is divided by √D too",
        "add the float mask after the scale, as it is", Form(weights=_before_scale),
    ),
    Mistake(
        "nan_in_empty_rows", "NaN for a query that keeps no key", _EMPTY_ROWS,
        weighed(lambda setup, scores: scores.softmax(-1)),
    ),
    Mistake(
        "mean_in_empty_rows", "the mean of v for a query that keeps no key", _EMPTY_ROWS, weighed(_mean_rows)
    ),
    Mistake(
        "mask_in_the_first_head_only", "only the first head is masked",
        "the mask (B, 1, Lq, Lk) is for all heads: expand it", Form(weights=_first_head_only),
    ),
)  # fmt: skip

WEIGHS: tuple[Mistake, ...] = tuple(
    Mistake(f"{name}_minus_{number}", f"dropped pairs get {words} -{number}, not -inf", _WEIGH, form)
    for number in (1000, 100, 50, 30, 20, 10, 5, 2, 1)
    for name, words, form in (
        ("mask_is", "a finite number such as", clamped(-number)),
        ("masked_scores_are", "a finite score such as", _filled(-number)),
    )
)
"""Dropped keys that keep some weight: less where the number is larger, and then in rows of large scores."""


def _modulo(setup: Setup, x: Tensor) -> Tensor:
    return x.repeat(1, setup.case.group, 1, 1)


def _viewed(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    out = right_mix(setup, weights, v)
    return out.transpose(1, 2).reshape(out.shape)


def _heads_for_positions(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    """Read the memory of (B, H, Lq, Dv) as (B, Lq, H, Dv)."""
    out = weights @ v
    return out.reshape(out.shape[0], out.shape[2], out.shape[1], out.shape[3]).transpose(1, 2)


FIRST_TRIES: tuple[Mistake, ...] = (
    Mistake("mask_inverted", "the mask the other way round", _INVERTED, Form(mask=inverted)),
    Mistake(
        "layouts_exchanged", "the memory of the output has heads and queries in the other order",
        f"{_TRANSPOSE}, and {_LAYOUT}", Form(mix=_heads_for_positions),
    ),
    Mistake(
        "weights_transposed", "the weights are transposed",
        "the output is weights @ v with weights (Lq, Lk)", Form(mix=lambda setup, weights, v: weights.mT @ v),
    ),
    Mistake(
        "scores_ignored", "all keys that are kept weigh the same", "use the scores in the softmax",
        Form(weights=lambda setup, scores, added: RIGHT.weights(setup, scores * 0, added)),
    ),
)  # fmt: skip

HEADS: tuple[Mistake, ...] = (
    Mistake(
        "heads_modulo", "query head h reads key head h % Hkv", f"repeat heads, don't tile them: {_SHARED}",
        Form(spread=_modulo),
    ),
    Mistake(
        "first_key_head_for_all", "all heads read the first key head", _SHARED,
        Form(spread=lambda setup, x: x[:, :1].expand(-1, setup.case.H, -1, -1)),
    ),
    Mistake(
        "heads_viewed_not_transposed", "a view where heads and queries must be exchanged", _TRANSPOSE,
        Form(mix=_viewed),
    ),
    Mistake(
        "keys_of_the_first_batch_element", "the keys of the first batch element for all", _BATCH,
        Form(scores=lambda setup, q, k: right_scores(setup, q, k[:1].expand(k.shape))),
    ),
    Mistake(
        "values_of_the_first_batch_element", "the values of the first batch element for all", _BATCH,
        Form(mix=lambda setup, weights, v: weights @ v[:1].expand(v.shape)),
    ),
)  # fmt: skip


def _from(length: int, first: int, like: Tensor) -> Tensor:
    import torch

    return torch.arange(length, device=like.device) >= first


def _without_rows(first_of: Callable[[int], int]) -> Form:
    """Zeros in the rows from a number of the queries on."""

    def mix(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
        Lq = setup.case.Lq
        return right_mix(setup, weights, v).masked_fill(_from(Lq, first_of(Lq), v)[:, None], 0)

    return Form(mix=mix)


def _without_features(first_of: Callable[[int], int]) -> Form:
    """Features of q from a number on are read as 0."""

    def scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
        D = setup.case.D
        return right_scores(setup, q.masked_fill(_from(D, first_of(D), q), 0), k)

    return Form(scores=scores)


def _value_tail_zero(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    Dv = setup.case.Dv
    return right_mix(setup, weights, v.masked_fill(_from(Dv, whole_blocks(Dv, VECTOR), v), 0))


ENDS: tuple[Mistake, ...] = (
    Mistake(
        "tail_of_keys_dropped", "no keys after the last whole block of 16", _KEYS,
        Form(mask=without_keys(lambda case: np.arange(case.Lk) >= whole_blocks(case.Lk, BLOCK))),
    ),
    Mistake(
        "last_block_of_keys_dropped", "no keys after the last whole block of 64", _KEYS,
        Form(mask=without_keys(lambda case: np.arange(case.Lk) >= whole_blocks(case.Lk, LARGE_BLOCK))),
    ),
    Mistake(
        "first_key_dropped", "without the first key", "the loop over keys starts one too late",
        Form(mask=without_keys(lambda case: np.arange(case.Lk) == 0)),
    ),
    Mistake(
        "last_key_dropped", "without the last key", "the loop over keys ends one too early",
        Form(mask=without_keys(lambda case: np.arange(case.Lk) == case.Lk - 1)),
    ),
    Mistake("last_query_never_written", "zeros in the last row", _QUERIES, _without_rows(lambda Lq: Lq - 1)),
    Mistake(
        "tail_of_queries_never_written", "zeros in rows after the last whole block of 16", _QUERIES,
        _without_rows(lambda Lq: whole_blocks(Lq, BLOCK)),
    ),
    Mistake(
        "tail_of_values_dropped", "features of v after the last eight are read as 0", f"case.Dv {_VECTORS}",
        Form(mix=_value_tail_zero),
    ),
    Mistake(
        "tail_of_features_dropped", "features of q after the last eight are read as 0", f"case.D {_VECTORS}",
        _without_features(lambda D: whole_blocks(D, VECTOR)),
    ),
    Mistake(
        "last_feature_dropped", "the last feature of q is read as 0",
        "the loop over features ends one too early", _without_features(lambda D: D - 1),
    ),
)  # fmt: skip


def _without(bias: str) -> Form:
    return with_projections(lambda p, case: {bias: p[bias] * 0})


def _exchanged(one: str, other: str) -> Form:
    return with_projections(lambda p, case: {one: p[other], other: p[one]})


def _by_the_model_width(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.case.layer is not None
    return right_scores(setup, q * (setup.case.D / setup.case.layer.E) ** 0.5, k)


def _context_ignored(setup: Setup) -> Call:
    assert setup.case.layer is not None
    layer = built(RIGHT, setup)
    return lambda queries, keys, values: layer(queries, queries, queries)


LAYER: tuple[Mistake, ...] = (
    Mistake("bias_of_queries_forgotten", "no b_q", _BIAS, _without("b_q")),
    Mistake("bias_of_values_forgotten", "no b_v", _BIAS, _without("b_v")),
    Mistake("bias_of_the_output_forgotten", "no b_o", _BIAS, _without("b_o")),
    Mistake(
        "bias_of_the_output_by_head", "b_o is added once for each head",
        "add b_o once, to the sum over the heads",
        with_projections(lambda p, case: {"b_o": p["b_o"] * case.H}),
    ),
    Mistake(
        "output_matrix_transposed", "w_oᵀ for w_o",
        "a projection is x @ w.T, as in torch.nn.functional.linear",
        with_projections(lambda p, case: {"w_o": p["w_o"].mT}),
    ),
    Mistake(
        "keys_and_values_exchanged", "w_k makes values and w_v keys",
        "w_k makes the keys and w_v the values", _exchanged("w_k", "w_v"),
    ),
    Mistake(
        "queries_and_keys_exchanged", "w_q makes keys and w_k queries",
        "w_q makes the queries and w_k the keys", _exchanged("w_q", "w_k"),
    ),
    Mistake(
        "context_ignored", "attention to the source of the queries",
        "keys and values come from the second and third input", _context_ignored,
    ),
    Mistake(
        "scale_of_the_model_width", "scores are divided by √E, not by √D", "D is the width of one head",
        Form(scores=_by_the_model_width),
    ),
)  # fmt: skip
