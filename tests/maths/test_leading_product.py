"""Right kernels that add in other orders, where one product of features is far above the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from judged import Judge
from right_kernels import Kernel, one_query_at_a_time, online, repeated, unfused, with_mask_and_sink
from torch import Tensor

from attnbench.cases.ids import parse_case
from attnbench.types.backend import Setup

FEW_ROWS = (
    "attention/sinks/B2-H2-Lq2-Lk168-D64/causal:lower_right+window:16",
    "attention/scaled_dot/B1-H2-Lq1-Lk300-D128",
)


def refusals(text: str, seeds: range) -> Iterator[str]:
    """Yield the right kernels that are refused on the family of changed elements, by seed."""
    right: dict[str, Kernel] = {kernel.__name__: kernel for kernel in (unfused, online, one_query_at_a_time)}
    for step in (1, -1):
        right[f"step {step}"] = lambda *args, step=step: summed(*args, step=step)
    for seed in seeds:
        judge = Judge(replace(parse_case(text), seed=seed), family="deep_change")
        yield from (f"{name} on {seed}" for name, kernel in right.items() if judge.of(kernel)[1])


@pytest.mark.parametrize("text", FEW_ROWS)
def test_no_right_kernel_is_refused_where_one_product_leads_in_a_few_rows(text: str) -> None:
    assert list(refusals(text, range(20))) == []


def summed(setup: Setup, q: Tensor, k: Tensor, v: Tensor, *, step: int) -> Tensor:
    """A right kernel whose scores are added feature by feature, in float32."""
    assert setup.scoring.dot is not None
    k = repeated(setup, k)
    scores = torch.zeros(*q.shape[:-1], k.shape[2])
    for d in range(setup.case.D)[::step]:
        scores += q[..., :, None, d] * k[..., None, :, d]
    weights = with_mask_and_sink(setup, scores * setup.scoring.dot.scale).softmax(-1)[..., :-1]
    return weights @ repeated(setup, v)
