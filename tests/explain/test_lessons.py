"""Lessons with numbers of their own, computed again in another way."""

from __future__ import annotations

import math

import numpy as np
import torch

from attnbench.explain.lessons import LESSONS
from attnbench.explain.steps import Step
from attnbench.rules import attnbench_rules

RULES = {rule.name: rule for rule in attnbench_rules()}


def lesson(name: str, seed: int = 0) -> dict[str, Step]:
    return {step.name: step for step in LESSONS[name][1](RULES.__getitem__, seed)}


def test_masks_by_their_definition() -> None:
    steps = lesson("masks")
    kept = {
        "causal, 4 queries of 4 keys": lambda i, j: j <= i,
        "causal, 2 queries of 5 keys": lambda i, j: j <= i,
        "causal:lower_right, 2 queries of 5 keys": lambda i, j: j <= i + 3,
        "causal, 5 queries of 2 keys": lambda i, j: j <= i,
        "causal:lower_right, 5 queries of 2 keys": lambda i, j: j <= i - 3,
        "padding:3, 4 queries of 5 keys": lambda i, j: j < 3,
        "window:2, 5 queries of 5 keys": lambda i, j: abs(i - j) < 2,
        "causal+window:2, 5 queries of 5 keys": lambda i, j: j <= i and i - j < 2,
    }
    for name, keeps in kept.items():
        values = steps[name].values
        assert all(values[i, j] == keeps(i, j) for i, j in np.ndindex(values.shape)), name


def test_softmax_in_bfloat16_and_in_float32_cast_back_are_those_of_torch() -> None:
    steps = lesson("precision")
    scores = torch.tensor(steps["scores"].values).bfloat16()
    assert torch.equal(scores.double(), torch.tensor(steps["scores"].values))
    cast = torch.softmax(scores.float(), -1).bfloat16().double()
    np.testing.assert_array_equal(steps["weights cast back"].values, cast)
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    total = powers[:, 0]
    for column in range(1, 4):
        total = total + powers[:, column]
    narrow = (powers / total[:, None]).double()
    np.testing.assert_array_equal(steps["weights in bfloat16"].values, narrow)
    assert np.count_nonzero(steps["difference"].values) > 3


def test_a_batched_product_by_loops() -> None:
    steps = lesson("bmm", seed=1)
    A, B, C = (steps[name].values for name in "ABC")
    for b, i, j in np.ndindex(10, 3, 5):
        assert C[b, i, j] == sum(A[b, i, m] * B[b, m, j] for m in range(4))


def test_saturation_element_by_element() -> None:
    steps = lesson("saturation")
    for D in (4, 64, 512):
        scores, weights, gradient = (
            steps[f"{name}, D = {D}"].values for name in ("scores", "weights", "gradient")
        )
        np.testing.assert_allclose(scores[1] * math.sqrt(D), scores[0])
        for row in range(2):
            (jacobian,) = torch.autograd.functional.jacobian(
                lambda x: (torch.softmax(x, -1),), torch.tensor(scores[row])
            )
            np.testing.assert_allclose(weights[row], torch.softmax(torch.tensor(scores[row]), -1), atol=1e-15)
            np.testing.assert_allclose(gradient[row], torch.diagonal(jacobian), atol=1e-15)
    assert steps["gradient, D = 512"].values[0].max() < 1e-4 < steps["gradient, D = 512"].values[1].min()
