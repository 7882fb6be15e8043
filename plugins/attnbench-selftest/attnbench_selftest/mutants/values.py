"""Wrong values that nobody computes by mistake: small errors, odd softmaxes, single rows, heads and keys."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from attnbench.inputs.known_scores import even_weights_apply, unlikely_values_apply
from attnbench.testing.mistakes.inputs import clamped
from attnbench.testing.mistakes.masks import Added, added_mask, explicit_mask, positions, without_keys
from attnbench.testing.mistakes.parts import (
    RIGHT,
    Form,
    normalised,
    right_mix,
    right_scores,
    right_spread,
    right_weights,
    sink_column,
    weighed,
    with_projections,
    with_scoring,
)
from attnbench.testing.mistakes.scores import shares, times
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Dtype, output_shape
from attnbench.types.rule import Rule, Scoring
from attnbench_selftest.mutants.known import WIDE
from attnbench_selftest.mutants.mutant import Applies, Mutant, around_call, mistaken
from attnbench_selftest.mutants.where import (
    any_of,
    both,
    drops,
    drops_keys,
    empty_rows,
    far_out_of_mask,
    keeps_a_key,
    keeps_beyond,
    keeps_more_than,
    kept,
    kept_counts,
    last_row_kept,
    many_key_heads,
    named,
    no_sink,
    other_mask,
    projects_out,
    scores_matter,
    several_heads,
    unbounded,
)

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

BLOCK = 16
HALF: tuple[Dtype, ...] = ("bfloat16", "float16")
ADDITIVE = ("additive", "additive_sum")


def _one_more(setup: Setup, scores: Tensor) -> Tensor:
    top = scores.amax(-1, keepdim=True).clamp_min(0)
    powers = (scores - top).exp()
    return powers / (powers.sum(-1, keepdim=True) + (-top).exp())


def _second_order(setup: Setup, scores: Tensor) -> Tensor:
    sink = setup.scoring.sink
    column = 0.0 if sink is None else (1 + sink + sink * sink / 2).to(scores)[:, None, None]
    dropped = scores.isneginf()
    kept = scores.masked_fill(dropped, 0)
    return shares(setup, (1 + kept + kept * kept / 2).masked_fill(dropped, 0), column)


def _few_keys(setup: Setup, scores: Tensor) -> Tensor:
    least = scores.topk(min(8, scores.shape[-1]), -1).values[..., -1:]
    return normalised(setup, scores.masked_fill(scores < least, -math.inf))


def _small_dropped(setup: Setup, scores: Tensor) -> Tensor:
    weights = normalised(setup, scores)
    return weights.masked_fill(weights < 0.25 * weights.amax(-1, keepdim=True), 0)


def _of_the_key_before(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k).roll(1, -1)


def _inverted_row(case: Case) -> Added:
    """Exchange the last query's kept and dropped keys of an explicit bool mask."""
    made = added_mask(case)
    if case.mask.explicit == "bool":
        made[:, :, -1] = np.where(np.isfinite(made[:, :, -1]), -np.inf, 0)
    return made


def _swapped(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    out = right_mix(setup, weights, v)
    return torch.cat((out[:, 1:2], out[:, :1], out[:, 2:]), 1)


def _last_forgotten(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    out = right_mix(setup, weights, v)
    return torch.cat((out[:, :-1], torch.zeros_like(out[:, -1:])), 1)


def _first_twice(case: Case) -> Added:
    made = added_mask(case)
    made[..., 0] += np.log(2)
    return made


def _by_columns(scoring: Scoring) -> Scoring:
    """Read the memory of a bias (Lq, Lk) as (Lk, Lq)."""
    right = scoring.bias
    assert right is not None

    def bias(rows: slice, cols: slice) -> Tensor:
        made = right(rows, cols)
        heads, queries, keys = made.shape
        return made.reshape(heads, keys, queries).mT

    return Scoring(scoring.dot, scoring.scores, bias, scoring.sink)


def _tail_linear(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """Additive scores of which the last features have no tanh."""
    import torch

    p, split = setup.rule_parameters, setup.case.D - max(1, setup.case.D % 8)
    from_k = k @ p["w_key"].mT + p["bias"][:, None]
    hidden = (q @ p["w_query"].mT)[:, :, :, None] + from_k[:, :, None]
    hidden = torch.cat((hidden[..., :split].tanh(), hidden[..., split:]), -1)
    return (hidden @ p["v"][:, None, :, None])[..., 0] if "v" in p else hidden.sum(-1)


def _additive_exchanged(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.scores is not None
    return setup.scoring.scores(k, q, slice(0, setup.case.Lq)).mT


def _joined_exchanged(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.scores is not None
    return setup.scoring.scores(k, q, slice(0, setup.case.Lk))


def _heads_before_queries(p: dict[str, Tensor], case: Case) -> dict[str, Tensor]:
    """[heads ; queries] for [queries ; heads]: the columns of the matrix trade places."""
    import torch

    split = case.H * case.Dv
    return {"w_o": torch.cat((p["w_o"][:, split:], p["w_o"][:, :split]), 1)}


def _nan_far_out(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    made = right_scores(setup, q, k)
    return made.masked_fill(made.abs() > 40, float("nan"))


def _maximum_of_a_block(setup: Setup, scores: Tensor) -> Tensor:
    top = scores[..., :BLOCK].amax(-1, keepdim=True)
    top = top.masked_fill(top.isneginf(), 0)
    return shares(setup, (scores - top).exp(), (sink_column(setup, scores) - top).exp())


def _not_rescaled(setup: Setup, scores: Tensor) -> Tensor:
    """Subtract from each block the maximum so far; leave what was summed before as it was."""
    import torch

    column = sink_column(setup, scores)
    top, parts = column, []
    for block in torch.split(scores, BLOCK, -1):
        top = torch.maximum(top, block.amax(-1, keepdim=True))
        parts.append((block - top.masked_fill(top.isneginf(), 0)).exp())
    return shares(setup, torch.cat(parts, -1), (column - top).nan_to_num(-math.inf).exp())


def _sum_of_powers_in_half(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Sum the denominator one by one in the case's dtype; leave the sink to the softmax."""
    import torch

    weights = right_weights(setup, scores, added)
    top = weights.amax(-1, keepdim=True)
    powers = weights / top.masked_fill(top == 0, 1)
    total = torch.zeros_like(top)
    for column in torch.split(powers, 1, -1):
        total = total + column
    exact = powers.to(added.dtype).sum(-1, keepdim=True)
    return (weights * (exact / total.masked_fill(total == 0, 1))).to(scores.dtype)


def _float_twice(case: Case) -> Added:
    numbers = explicit_mask(case)
    return added_mask(case) + np.where(np.isfinite(numbers), numbers, 0)


def _last_row_again(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    out = right_mix(setup, weights, v)
    return torch.cat((out[:, :, :-1], out[:, :, -2:-1]), 2)


def _residual(setup: Setup, layer: Call) -> Call:
    return lambda queries, keys, values: layer(queries, keys, values) + queries


def _cap_after_mask(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Uncap the scores, then cap them with the mask: dropped keys get -cap."""
    assert setup.scoring.dot is not None
    cap = setup.scoring.dot.cap
    assert cap is not None
    plain = cap * (scores.to(added.dtype) / cap).clamp(-0.9999, 0.9999).atanh()
    return normalised(setup, cap * ((plain + added) / cap).tanh()).to(scores.dtype)


def _sink_to_a_value(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    weights = right_weights(setup, scores, added)
    rest = 1 - weights.sum(-1, keepdim=True)
    return torch.cat((weights[..., :1] + rest, weights[..., 1:]), -1)


def _as_wide_as_the_model(case: Case, rule: Rule) -> bool:
    return output_shape(case)[-1] == (case.layer.E if case.layer else 0)


def _first_two_differ(case: Case, rule: Rule) -> bool:
    """Heads 0 and 1 have values of their own, or weights."""
    return case.H > 1 and (scores_matter if case.group > 1 else keeps_a_key)(case, rule)


def _first_among_others(case: Case, rule: Rule) -> bool:
    fewest = 1 if rule.sink is not None else 2
    return bool((kept(case)[..., 0] & (kept_counts(case) >= fewest)).any())


def _not_square(case: Case, rule: Rule) -> bool:
    return case.Lq != case.Lk and min(case.Lq, case.Lk) > 1


_near = without_keys(lambda case: np.abs(positions(case) - np.arange(case.Lk)) > 128)
_three_quarters = without_keys(lambda case: np.arange(case.Lk) >= -(-3 * case.Lk // 4))

FORMS: dict[str, tuple[str, Form, Applies]] = {
    "scores_of_the_key_before": (
        "each key has its neighbour's score",
        Form(scores=_of_the_key_before),
        both(lambda case, rule: case.Lk > 1, scores_matter),
    ),
    "one_more_in_the_denominator": (
        "1 / (1 + sum) for 1 / sum",
        weighed(_one_more),
        both(no_sink, keeps_a_key),
    ),
    "second_order_powers": ("1 + s + s²/2 for e^s", weighed(_second_order), scores_matter),
    "eight_keys_only": ("the eight largest scores count", weighed(_few_keys), keeps_more_than(8)),
    "small_weights_dropped": (
        "those below a quarter of the largest are 0",
        weighed(_small_dropped),
        keeps_more_than(8),
    ),
    "one_row_of_the_mask_inverted": (
        "keeps what it should drop in the last row",
        Form(mask=_inverted_row),
        other_mask(_inverted_row),
    ),
    "two_heads_swapped": ("outputs of heads 0 and 1 exchanged", Form(mix=_swapped), _first_two_differ),
    "last_head_forgotten": (
        "zeros in the last head",
        Form(mix=_last_forgotten),
        both(several_heads, keeps_a_key),
    ),
    "every_fifth_key_dropped": (
        "leaves out every fifth key",
        Form(mask=without_keys(lambda case: np.arange(case.Lk) % 5 == 4)),
        other_mask(without_keys(lambda case: np.arange(case.Lk) % 5 == 4)),
    ),
    "first_key_counted_twice": (
        "the first key has double weight",
        Form(mask=_first_twice),
        _first_among_others,
    ),
    "nan_for_large_logits": ("NaN where a logit is beyond 40", Form(scores=_nan_far_out), unbounded),
    "logits_clamped": (
        "logits kept within 20",
        Form(scores=lambda setup, q, k: right_scores(setup, q, k).clamp(-20, 20)),
        unbounded,
    ),
    "maximum_of_the_first_block": (
        "less the maximum of the first 16 keys: larger ones overflow",
        weighed(_maximum_of_a_block),
        both(keeps_beyond(BLOCK), unbounded),
    ),
    "blocks_not_rescaled": (
        "sums of earlier blocks are kept when a larger maximum comes",
        weighed(_not_rescaled),
        both(keeps_beyond(BLOCK), keeps_more_than(24)),
    ),
    "far_keys_dropped": ("no keys more than 128 positions away", Form(mask=_near), other_mask(_near)),
    "mask_is_minus_30": ("-30 for -inf", clamped(-30), any_of(empty_rows, far_out_of_mask)),
    "mask_is_minus_5": ("-5 for -inf", clamped(-5), any_of(empty_rows, drops)),
    "float_mask_added_twice": (
        "the numbers of a float mask are added twice",
        Form(mask=_float_twice),
        other_mask(_float_twice),
    ),
    "groups_reversed": (
        "key heads in reversed order",
        Form(spread=lambda setup, x: right_spread(setup, x.flip(1))),
        many_key_heads,
    ),
    "values_of_the_next_head": (
        "keys of one head, values of the next",
        Form(mix=lambda setup, weights, v: weights @ v.roll(-setup.case.group, 1)),
        many_key_heads,
    ),
    "last_quarter_of_keys_dropped": (
        "reads three quarters of the keys",
        Form(mask=_three_quarters),
        other_mask(_three_quarters),
    ),
    "last_query_is_the_one_before": (
        "the last row is a copy of the row before",
        Form(mix=_last_row_again),
        both(lambda case, rule: case.Lq > 1, last_row_kept, scores_matter),
    ),
    "cap_after_mask": (
        "capped with the mask: dropped keys get -cap",
        Form(weights=_cap_after_mask),
        both(named("softcap"), drops),
    ),
    "sink_added_to_values": (
        "the first value gets the weight of the sink",
        Form(weights=_sink_to_a_value),
        named("sinks"),
    ),
    "bias_by_columns": (
        "the memory of the bias read the other way round",
        with_scoring(_by_columns),
        both(named("alibi"), _not_square),
    ),
    "additive_exchanged": ("q takes the part of k", Form(scores=_additive_exchanged), named(*ADDITIVE)),
    "additive_linear_tail": ("no tanh on the last features", Form(scores=_tail_linear), named(*ADDITIVE)),
    "joined_in_wrong_order": ("[k ; q] for [q ; k]", Form(scores=_joined_exchanged), named("concat_linear")),
}

SCALES: dict[str, tuple[str, float, Applies, tuple[str, ...]]] = {
    "scale_1_percent": ("scores 1 % too large", 1.01, scores_matter, WIDE),
    # Elsewhere it is no more than a right kernel's rounding.
    "scale_1_percent_in_bfloat16": (
        "scores 1 % too large, for bfloat16 alone",
        1.01,
        unlikely_values_apply,
        ("bfloat16",),
    ),
    "scale_1_percent_in_float16": (
        "scores 1 % too large, for float16 alone",
        1.01,
        scores_matter,
        ("float16",),
    ),
    "scale_a_thousandth_in_float32": (
        "scores 0.1 % too large, for float32 alone",
        1.001,
        scores_matter,
        ("float32",),
    ),
}


def _weights_in_bfloat16(setup: Setup, scores: Tensor) -> Tensor:
    import torch

    return normalised(setup, scores).to(torch.bfloat16).to(scores.dtype)


MUTANTS: tuple[Mutant, ...] = (
    *(
        mistaken(name, words, times(factor), applies, dtypes=dtypes)
        for name, (words, factor, applies, dtypes) in SCALES.items()
    ),
    *(mistaken(name, words, form, applies) for name, (words, form, applies) in FORMS.items()),
    mistaken(
        "weighs_dropped_keys_with_0",
        "promises to ignore dropped keys, and gives their values the weight 0",
        RIGHT,
        drops_keys,
        operations=("attention",),
        ignores_dropped=True,
    ),
    # Elsewhere it is no more than a right kernel's rounding.
    mistaken(
        "weights_in_bfloat16_for_float16",
        "the weights of float16 are rounded to bfloat16",
        weighed(_weights_in_bfloat16),
        both(no_sink, even_weights_apply),
        dtypes=("float16",),
        operations=("attention",),
    ),
    mistaken(
        "denominator_in_half",
        "powers summed one by one in half precision",
        Form(weights=_sum_of_powers_in_half),
        keeps_more_than(500),
        dtypes=HALF,
    ),
    mistaken(
        "output_joined_in_wrong_order",
        "[heads ; queries] for [queries ; heads] before the last map",
        with_projections(_heads_before_queries),
        both(lambda case, rule: rule.concatenates, projects_out),
        operations=("multihead",),
    ),
    around_call(
        "residual_added",
        "the source of the queries is added",
        _residual,
        "value",
        _as_wide_as_the_model,
        operations=("multihead",),
    ),
)
