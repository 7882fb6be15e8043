"""per_head_loop: one head after the other, each with projection matrices of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.attention import softmax_of
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import output_projection
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import derived, scores_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call, Weigh

    Project = Callable[[Tensor], Tensor]


def head_weights(setup: Setup, mask: Tensor | None, empty: Tensor | None) -> list[Weigh]:
    """Make for each query head the function of q and k, (B, 1, L, D), to weights (B, 1, Lq, Lk)."""
    case = setup.case
    alone = replace(case, H=1, Hkv=1)
    dtype = softmax_dtype(case_dtype(case))
    every = slice(0, case.Lk)
    softmax = softmax_of(case)

    def only(x: Tensor | None, h: int) -> Tensor | None:
        return x if x is None or x.shape[1] == 1 else x[:, h : h + 1]

    def of_head(h: int) -> Weigh:
        own = {name: parameter[h : h + 1] for name, parameter in setup.rule_parameters.items()}
        scoring = setup.rule.bind(alone, own)
        scores = scores_of(scoring)
        added = plus_bias(only(mask, h), scoring, slice(0, case.Lq), every, dtype)
        own_empty = only(empty, h)

        def weigh(q: Tensor, k: Tensor) -> Tensor:
            return softmax(scores(q, k, every), added, own_empty, scoring.sink)

        return weigh

    return [of_head(h) for h in range(case.H)]


def attention(setup: Setup, mask: Tensor | None, empty: Tensor | None) -> Call:
    """Loop over the heads."""
    import torch

    heads = head_weights(setup, mask, empty)
    group = setup.case.group

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outputs = []
        for h, head in enumerate(heads):
            shared = slice(h // group, h // group + 1)
            outputs.append(head(q[:, h : h + 1], k[:, shared]) @ v[:, shared])
        return torch.cat(outputs, dim=1)

    return attend


def multihead(setup: Setup, mask: Tensor | None, empty: Tensor | None) -> Call:
    """Loop over the heads; each projects with its own matrices, a shared key/value head once."""
    import torch

    case = setup.case
    heads = head_weights(setup, mask, empty)
    project_q = _projections(setup, "q", case.H)
    project_k = _projections(setup, "k", case.Hkv)
    project_v = _projections(setup, "v", case.Hkv)
    project_out = output_projection(setup)

    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        projected, outputs = [], []
        for h, head in enumerate(heads):
            if h % case.group == 0:
                k, v = project_k[h // case.group](keys), project_v[h // case.group](values)
            q = project_q[h](queries)
            projected.append(q)
            outputs.append(head(q[:, None], k[:, None]) @ v[:, None])
        return project_out(torch.cat(projected, dim=-1), torch.cat(outputs, dim=1))

    return layer


def _projections(setup: Setup, letter: str, heads: int) -> list[Project]:
    """Make for each head the function from (B, L, E) to its (B, L, D)."""
    from torch.nn.functional import linear

    weights = setup.projections[f"w_{letter}"].chunk(heads)
    biases = setup.projections[f"b_{letter}"].chunk(heads) if f"b_{letter}" in setup.projections else None

    def of_head(h: int) -> Project:
        weight = weights[h].contiguous()
        bias = None if biases is None else biases[h]
        return lambda x: linear(x, weight, bias)

    return [of_head(h) for h in range(heads)]


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    case = setup.case
    mask, empty = softmax_mask(setup, softmax_dtype(case_dtype(case)))
    make = attention if case.layer is None else multihead
    return derived(setup, lambda setup: make(setup, mask, empty))


PER_HEAD_LOOP = Backend(
    name="per_head_loop",
    summary="one head at a time, each with its own projection matrices",
    prepare=prepare,
    operations=("attention", "multihead"),
    passes=PASSES,
    quadratic_copies=1,
    masks=("any",),
    masks_by_head=True,
    dropout=True,
)
