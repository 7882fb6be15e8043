"""The comparison of these tests finds common mistakes: each wrong kernel is off on one of their cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from solved import Solved, solved
from test_backends_against_oracle import MASKS, texts

from attnbench.kit.attention import masked_softmax
from attnbench.kit.masks import additive_mask, empty_rows, plus_bias
from attnbench.kit.scores import scores_of

Kernel = Callable[[Solved, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
FOUND = 1e-6


def right_scores(case: Solved, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return scores_of(case.setup.scoring)(q, k, slice(0, case.case.Lk))


def finish(case: Solved, scores: torch.Tensor, v: torch.Tensor, *, leave_out: str = "") -> torch.Tensor:
    """Bias, mask, softmax, values, with one part left out or done wrongly."""
    c, scoring = case.case, case.setup.scoring
    added = None if leave_out == "mask" else additive_mask(c, torch.float64, "cpu")
    if leave_out == "-inf" and added is not None:
        added = added.clamp_min(-3)
    if leave_out != "bias":
        added = plus_bias(added, scoring, slice(0, c.Lq), slice(0, c.Lk), torch.float64)
    empty = None if leave_out == "empty rows" else empty_rows(c, "cpu")
    sink = None if leave_out == "sink" else scoring.sink
    if leave_out == "order" and added is not None:
        weights = masked_softmax(scores, None, None, sink).masked_fill(added == -torch.inf, 0)
    else:
        weights = masked_softmax(scores, added, empty, sink)
    heads = torch.arange(c.H) % c.Hkv if leave_out == "groups" else torch.arange(c.H) // c.group
    if leave_out == "last key":
        weights = weights * (torch.arange(c.Lk) < max(1, c.Lk - 1))
    return weights @ v[:, heads]


def with_scale(factor: float) -> Kernel:
    return lambda case, q, k, v: finish(case, right_scores(case, q * factor, k), v)


def without(part: str) -> Kernel:
    return lambda case, q, k, v: finish(case, right_scores(case, q, k), v, leave_out=part)


KERNELS: dict[str, Kernel] = {
    "right": without(""),
    "another scale": with_scale(1.001),
    "no mask": without("mask"),
    "a mask that isn't -inf": without("-inf"),
    "mask after the softmax": without("order"),
    "no bias": without("bias"),
    "no sink": without("sink"),
    "NaN in empty rows": without("empty rows"),
    "heads in the wrong groups": without("groups"),
    "the last key forgotten": without("last key"),
    "zeros": lambda case, q, k, v: torch.zeros(case.expected.shape, dtype=q.dtype),
    "mean of v": lambda case, q, k, v: finish(case, right_scores(case, q, k) * 0, v),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_wrong_kernel_is_off_somewhere_and_the_right_one_nowhere(kernel: str) -> None:
    worst = 0.0
    for mask in MASKS:
        for text in texts("attention", mask, "float64"):
            case = solved(text)
            output = KERNELS[kernel](case, *case.inputs).numpy()
            error = np.abs(output - case.expected).max()
            worst = max(worst, float("inf") if np.isnan(error) else float(error))
    assert (worst > FOUND) == (kernel != "right"), f"off by {worst:.3g}"
