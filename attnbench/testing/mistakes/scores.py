"""Mistakes in scores and softmax, in what one rule has and others have not, and in precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mistakes.parts import (
    RIGHT,
    Form,
    Mistake,
    heads_of,
    normalised,
    right_mix,
    right_scores,
    right_weights,
    sink_column,
    weighed,
    with_parameter,
    with_scoring,
)
from attnbench.types.backend import Setup
from attnbench.types.rule import DotForm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call

_MAXIMUM = "subtract each row's maximum before exp"
_MAP = "apply setup.scoring.dot.map_q and map_k (attnbench.kit.scores.map_queries) as they are"
_SINK = "the sink is one more logit in the softmax's denominator: setup.scoring.sink[h] as it is"
_BIAS = "add setup.scoring.bias(rows, columns) to the scores, or decline rules that have one"
_PARAMETER = "add setup.rule_parameters['bias']"
_CAP = "cap the scores (setup.scoring.dot.cap, attnbench.kit.scores.soft_cap), or decline the rule"
_BY_DTYPE = "in the case's dtype, or remove this dtype from dtypes"
_WIDE = "compute softmax and sums in float32 (attnbench.kit.dtypes.softmax_dtype), and round once at the end"


def times(factor: float) -> Form:
    """Scores that are too large by a factor; in the wide dtype, so that no rounding hides it."""

    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        return right_weights(setup, scores.to(added.dtype) * factor, added).to(scores.dtype)

    return Form(weights=weights)


def _root(power: int) -> Form:
    """Queries times √D to some power."""
    return Form(scores=lambda setup, q, k: right_scores(setup, q * setup.case.D ** (power / 2), k))


def shares(setup: Setup, powers: Tensor, sink: Tensor | float) -> Tensor:
    """Powers divided by their sum and what the sink adds to it, 0 where that is 0."""
    total = powers.sum(-1, keepdim=True) + sink
    return powers / total.masked_fill(total == 0, 1)


def _base_2(setup: Setup, scores: Tensor) -> Tensor:
    return shares(setup, (scores * math.log(2)).exp(), (sink_column(setup, scores) * math.log(2)).exp())


def _over_queries(setup: Setup, scores: Tensor) -> Tensor:
    empty = scores.isneginf().all(-2, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-2).masked_fill(scores.isneginf(), 0)


def _no_maximum(setup: Setup, scores: Tensor) -> Tensor:
    return shares(setup, scores.exp(), sink_column(setup, scores).exp())


def _never_normalised(setup: Setup, scores: Tensor) -> Tensor:
    top = scores.amax(-1, keepdim=True)
    return (scores - top.masked_fill(top.isneginf(), 0)).exp()


SCORES: tuple[Mistake, ...] = (
    Mistake(
        "scale_twice", "divided by √D once too often",
        "scale once: many kernels divide by √D themselves (give them scale=1.0, or don't scale q)", _root(-1),
    ),
    Mistake(
        "scale_omitted", "not divided by √D", "multiply the products by setup.scoring.dot.scale", _root(1)
    ),
    Mistake(
        "scores_negated", "scores with the other sign",
        "look at the signs: the softmax is of the scores, not of distances", times(-1),
    ),
    Mistake(
        "powers_of_2", "2^s for e^s", "use exp, or multiply by log2(e) before exp2", weighed(_base_2)
    ),
    Mistake(
        "softmax_over_queries", "the softmax is taken over the queries",
        "take the softmax over the last axis of (B, H, Lq, Lk), the keys: dim=-1", weighed(_over_queries),
    ),
    Mistake(
        "no_maximum", "e^s without subtracting the maximum: large logits overflow", _MAXIMUM,
        weighed(_no_maximum),
    ),
    Mistake(
        "never_normalised", "powers that are not divided by their sum",
        "divide by the sum of powers of each row", weighed(_never_normalised),
    ),
)  # fmt: skip


def _not_rescaled(block: int) -> Callable[[Setup, Tensor], Tensor]:
    """Return weights of an online softmax with a right sum and an accumulator that keeps earlier powers."""

    def weights(setup: Setup, scores: Tensor) -> Tensor:
        import torch

        top = torch.full_like(scores[..., :1], -math.inf)
        powers = []
        for part in torch.split(scores, block, -1):
            top = torch.maximum(top, part.amax(-1, keepdim=True))
            powers.append((part - _finite(top)).exp())
        column = sink_column(setup, scores)
        top = _finite(torch.maximum(top, column))
        total = (scores - top).exp().sum(-1, keepdim=True) + (column - top).exp()
        return torch.cat(powers, -1) / total.masked_fill(total == 0, 1)

    return weights


def _finite(top: Tensor) -> Tensor:
    return top.masked_fill(top.isneginf(), 0)


BLOCKS: tuple[Mistake, ...] = tuple(
    Mistake(
        f"accumulator_of_{block}_not_rescaled",
        f"the accumulator is not rescaled when a larger maximum comes, in blocks of {block} keys",
        "where the running maximum rises, multiply the accumulator, and the sum, by exp(old - new maximum)",
        weighed(_not_rescaled(block)),
    )
    for block in (16, 32, 64, 128)
)
"""Mistakes of an online softmax, which show where keys have more than one block."""


def with_dot(change: Callable[[DotForm], DotForm]) -> Form:
    """A form with another dot form; an error for a rule without one."""

    def changed(setup: Setup) -> Setup:
        assert setup.scoring.dot is not None
        return replace(setup, scoring=replace(setup.scoring, dot=change(setup.scoring.dot)))

    return Form(setup=changed)


def _cap_before_scale(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    dot = setup.scoring.dot
    assert dot is not None
    assert dot.cap is not None
    return dot.cap * (q @ k.mT / dot.cap).tanh() * dot.scale


def _from_the_first_key(setup: Setup) -> Setup:
    """Measure distances as if query 0 stood at key 0."""
    import torch

    slope = setup.rule_parameters["slope"]

    def bias(rows: slice, cols: slice) -> Tensor:
        queries = torch.arange(rows.start, rows.stop, device=slope.device)[:, None]
        keys = torch.arange(cols.start, cols.stop, device=slope.device)
        return -slope[:, None, None] * (queries - keys).abs()

    return replace(setup, scoring=replace(setup.scoring, bias=bias))


def _other_sides(setup: Setup) -> Setup:
    """Count the buckets of T5's bias as for a decoder in an encoder, and the other way."""
    other = {"sides": 3 - setup.constants["sides"]}
    case = replace(setup.case, constants=tuple((dict(setup.case.constants) | other).items()))
    return replace(setup, scoring=setup.rule.bind(case, setup.rule_parameters))


def _without_constants(setup: Setup) -> Setup:
    assert setup.case.constants
    plain = replace(setup.case, constants=())
    return replace(setup, case=plain, scoring=setup.rule.bind(plain, setup.rule_parameters))


RULES: tuple[Mistake, ...] = (
    Mistake(
        "constants_ignored", "the rule's defaults, whatever the case chooses",
        "take scale and cap from setup.scoring.dot, or decline cases with constants (case.constants)",
        Form(setup=_without_constants),
    ),
    Mistake("cap_forgotten", "no cap", _CAP, with_dot(lambda dot: replace(dot, cap=None)), ("softcap",)),
    Mistake(
        "cap_before_scale", "capped, then divided by √D",
        "cap after the scale: cap * tanh(scale * q·k / cap)", Form(scores=_cap_before_scale), ("softcap",),
    ),
    Mistake(
        "sink_forgotten", "no sink", _SINK, with_scoring(lambda scoring: replace(scoring, sink=None)),
        ("sinks",),
    ),
    Mistake(
        "sink_of_other_heads", "sinks in reversed order", _SINK,
        with_parameter("sink", lambda case, sink: sink.flip(0)), ("sinks",),
    ),
    Mistake(
        "sink_divided_by_root", "the sink is divided by √D too", _SINK,
        with_parameter("sink", lambda case, sink: sink * case.D**-0.5), ("sinks",),
    ),
    Mistake(
        "slopes_reversed", "slopes in reversed order", _BIAS,
        with_parameter("slope", lambda case, slope: slope.flip(0)), ("alibi",),
    ),
    Mistake(
        "slopes_negated", "slopes with the other sign: far keys weigh more", _BIAS,
        with_parameter("slope", lambda case, slope: -slope), ("alibi",),
    ),
    Mistake(
        "slopes_forgotten", "no distances", _BIAS, with_scoring(lambda scoring: replace(scoring, bias=None)),
        ("alibi",),
    ),
    Mistake(
        "distances_from_the_first_key", "distances as if query 0 stood at key 0",
        f"query 0 stands at case.query_offset; {_BIAS}", Form(setup=_from_the_first_key), ("alibi",),
    ),
    Mistake(
        "buckets_forgotten", "no bias of buckets", _BIAS,
        with_scoring(lambda scoring: replace(scoring, bias=None)), ("t5_bias",),
    ),
    Mistake(
        "buckets_of_other_sides", "an encoder's buckets in a decoder, or a decoder's in an encoder",
        f"take the sides from setup.constants['sides'], as decodes have no mask; {_BIAS}",
        Form(setup=_other_sides), ("t5_bias",),
    ),
    Mistake(
        "general_transposed", "Wᵀ for W", _MAP, with_parameter("w", lambda case, w: w.mT), ("general",)
    ),
    Mistake("general_without_matrix", "no W", _MAP, with_dot(lambda dot: DotForm()), ("general",)),
    Mistake(
        "cosine_of_keys_as_they_are", "keys are not normalised",
        "apply setup.scoring.dot.map_k to the keys", with_dot(lambda dot: replace(dot, map_k=None)),
        ("cosine",),
    ),
    Mistake(
        "cosine_of_queries_as_they_are", "queries are not normalised",
        "apply setup.scoring.dot.map_q to the queries", with_dot(lambda dot: replace(dot, map_q=None)),
        ("cosine",),
    ),
    Mistake(
        "additive_without_bias", "no bias in the tanh", _PARAMETER,
        with_parameter("bias", lambda case, bias: bias * 0), ("additive", "additive_sum"),
    ),
    Mistake(
        "joined_without_bias", "no bias in the logits", _PARAMETER,
        with_parameter("bias", lambda case, bias: bias * 0), ("concat_linear",),
    ),
)  # fmt: skip


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).to(x.dtype)


def _to_bfloat16(x: Tensor) -> Tensor:
    import torch

    return _rounded(x, torch.bfloat16)


def _to_ten_bits(x: Tensor) -> Tensor:
    # Tensor cores round float32 so where nobody forbids it. Adding and taking away a number 2^13 ulps larger
    # leaves 10 bits behind the point of x.
    large = x * (1 + 2**13)
    return large - (large - x)


def _products(rounded: Callable[[Tensor], Tensor]) -> Form:
    return Form(scores=lambda setup, q, k: right_scores(setup, rounded(q), rounded(k)))


def _sums_in_float16(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    total = torch.zeros(*weights.shape[:-1], v.shape[-1], dtype=torch.float16, device=v.device)
    for part, values in zip(torch.split(weights, 8, -1), torch.split(v, 8, 2), strict=True):
        total = total + (part @ values).to(torch.float16)
    return total.to(v.dtype)


def _overflowing(setup: Setup, powers: Tensor, v: Tensor) -> Tensor:
    """Sum powers times values in float16, as an online softmax whose accumulator has the dtype of v."""
    return _sums_in_float16(setup, powers, v) / powers.sum(-1, keepdim=True)


def _softmax_in_float16(setup: Setup, scores: Tensor) -> Tensor:
    import torch

    return normalised(setup, scores.to(torch.float16))


def _float32_inside(setup: Setup) -> Call:
    """Compute everything behind the rule's scores of a float64 case in float32."""
    import torch

    attend = heads_of(RIGHT, setup)
    return for_operation(lambda *inputs: attend(*(_rounded(x, torch.float32) for x in inputs)), setup)


PRECISION: tuple[Mistake, ...] = (
    Mistake(
        "products_in_bfloat16", "q and k are rounded to bfloat16", f"multiply q and k {_BY_DTYPE}",
        _products(_to_bfloat16),
    ),
    Mistake(
        "products_of_10_bits", "q and k are rounded to 10 bits",
        f"turn TF32 off: multiply q and k {_BY_DTYPE}", _products(_to_ten_bits), by_rounding=True,
    ),
    Mistake(
        "values_in_bfloat16", "v is rounded to bfloat16", f"keep v {_BY_DTYPE}",
        Form(mix=lambda setup, weights, v: right_mix(setup, weights, _to_bfloat16(v))),
    ),
    Mistake(
        "sums_in_float16", "weighted values are summed in float16", _WIDE, Form(mix=_sums_in_float16)
    ),
    Mistake("softmax_in_float16", "the softmax is computed in float16", _WIDE, weighed(_softmax_in_float16)),
    Mistake(
        "weights_in_bfloat16", "the weights are rounded to bfloat16", _WIDE,
        weighed(lambda setup, scores: _to_bfloat16(normalised(setup, scores))),
    ),
    Mistake(
        "float32_inside", "float32 for a float64 case",
        "compute in float64, or remove 'float64' from dtypes", _float32_inside,
    ),
)  # fmt: skip


def _running_sums(setup: Setup, powers: Tensor, v: Tensor) -> Tensor:
    """Sum powers, and powers times values, block by block in the dtype of v; then divide."""
    import torch

    total, out = torch.zeros_like(powers[..., :1]), torch.zeros_like(powers[..., :1] @ v[..., :1, :])
    for part, values in zip(torch.split(powers, 64, -1), torch.split(v, 64, 2), strict=True):
        total = total + part.sum(-1, keepdim=True)
        out = out + part @ values
    return out / total.masked_fill(total == 0, 1)


RUNNING_SUMS: tuple[Mistake, ...] = (
    Mistake(
        "running_sums_in_half_precision", "the accumulator, or the sum of powers, is kept in half precision",
        "keep both in float32, divide, and round once at the end",
        Form(weights=weighed(_never_normalised).weights, mix=_running_sums), by_rounding=True,
    ),
)  # fmt: skip
"""A mistake of half precision that shows on many keys."""

OVERFLOWS: tuple[Mistake, ...] = (
    Mistake(
        "accumulator_overflows_float16", "the accumulator overflows float16 before the division",
        "keep it in float32, divide, and round once at the end",
        Form(weights=weighed(_never_normalised).weights, mix=_overflowing),
    ),
)  # fmt: skip
"""A mistake that shows on values too large for their sum, which the search alone asks."""
