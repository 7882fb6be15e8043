"""Less precision than the case asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mutants.mutant import (
    RIGHT,
    Applies,
    Form,
    Mutant,
    heads_of,
    mistaken,
    normalised,
    right_mix,
    right_scores,
)
from attnbench.testing.mutants.where import keeps_a_key, keeps_more_than, scores_matter
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Dtype
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call


SINGLE: tuple[Dtype, ...] = ("float32",)
WIDE: tuple[Dtype, ...] = ("float32", "float64")
HALF: tuple[Dtype, ...] = ("bfloat16", "float16")


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).to(x.dtype)


def _factors_in_bfloat16(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    import torch

    return right_scores(setup, _rounded(q, torch.bfloat16), _rounded(k, torch.bfloat16))


def _factors_of_10_bits(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """Rounded as tensor cores round float32 where nobody forbids it."""
    return right_scores(setup, _ten_bits(q), _ten_bits(k))


def _ten_bits(x: Tensor) -> Tensor:
    # Adding and taking away a number 2^13 ulps larger leaves 10 bits behind the point of x.
    large = x * (1 + 2**13)
    return large - (large - x)


def _values_in_bfloat16(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    return right_mix(setup, weights, _rounded(v, torch.bfloat16))


def _sums_in_float16(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    import torch

    total = torch.zeros(*weights.shape[:-1], v.shape[-1], dtype=torch.float16, device=v.device)
    for part, values in zip(torch.split(weights, 8, -1), torch.split(v, 8, 2), strict=True):
        total = total + (part @ values).to(torch.float16)
    return total.to(v.dtype)


def _softmax_in_float16(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    half = (scores.to(added.dtype) + added).to(torch.float16)
    return normalised(setup, half).to(scores.dtype)


def _weights_in_bfloat16(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    return _rounded(normalised(setup, scores.to(added.dtype) + added), torch.bfloat16).to(scores.dtype)


def _sum_of_powers_in_half(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """The denominator, summed one by one in the case's dtype; the sink is left to the softmax."""
    import torch

    weights = normalised(setup, scores.to(added.dtype) + added).to(scores.dtype)
    top = weights.amax(-1, keepdim=True)
    powers = weights / top.masked_fill(top == 0, 1)
    total = torch.zeros_like(top)
    for column in torch.split(powers, 1, -1):
        total = total + column
    exact = powers.to(added.dtype).sum(-1, keepdim=True)
    return (weights * (exact / total.masked_fill(total == 0, 1))).to(scores.dtype)


def _float32_inside(setup: Setup) -> Call:
    """Everything behind the rule's scores in float32, of a float64 case."""
    import torch

    attend = heads_of(RIGHT, setup)

    def narrow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(*(_rounded(x, torch.float32) for x in (q, k, v)))

    return for_operation(narrow, setup)


def _products_matter(case: Case, rule: Rule) -> bool:
    """Not where vectors of one feature become 1 or -1 whatever they are rounded to."""
    return scores_matter(case, rule) and not (rule.name == "cosine" and case.D == 1)


KINDS: dict[str, tuple[str, Form, Applies, tuple[Dtype, ...]]] = {
    "products_in_bfloat16": (
        "q and k rounded to bfloat16",
        Form(scores=_factors_in_bfloat16),
        _products_matter,
        WIDE,
    ),
    "products_of_10_bits": (
        "q and k rounded to 10 bits",
        Form(scores=_factors_of_10_bits),
        _products_matter,
        SINGLE,
    ),
    "values_in_bfloat16": ("v rounded to bfloat16", Form(mix=_values_in_bfloat16), keeps_a_key, WIDE),
    "sums_in_float16": ("weighted values summed in float16", Form(mix=_sums_in_float16), keeps_a_key, WIDE),
    "softmax_in_float16": ("the softmax in float16", Form(weights=_softmax_in_float16), scores_matter, WIDE),
    "weights_in_bfloat16": (
        "weights rounded to bfloat16",
        Form(weights=_weights_in_bfloat16),
        scores_matter,
        WIDE,
    ),
    "denominator_in_half": (
        "powers summed one by one in half precision",
        Form(weights=_sum_of_powers_in_half),
        keeps_more_than(500),
        HALF,
    ),
}

MUTANTS: tuple[Mutant, ...] = (
    *(
        mistaken(name, words, form, applies, dtypes=dtypes)
        for name, (words, form, applies, dtypes) in KINDS.items()
    ),
    Mutant(
        name="float32_inside",
        summary="float32 for a float64 case",
        prepare=_float32_inside,
        applies=keeps_a_key,
        dtypes=("float64",),
    ),
)
