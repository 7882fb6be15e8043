"""Latent attention absorbed and expanded: one answer in two forms, by the oracle and by built-in backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnbench.backends.dequantise_blocks import prepare as from_latent
from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import Parameters
from attnbench.kit.latent import absorbed, expanded, mapped
from attnbench.kit.reference import prepare as plain
from attnbench.oracle.solve import solve
from attnbench.plugins.registry import load_registry
from attnbench.types.backend import Setup

B, H, Lq, Lk = 2, 3, 5, 11
N, R, C, V = 6, 4, 16, 8
SCALE = (N + R) ** -0.5
SIZES = f"B{B}-H{H}-Lq{Lq}-Lk{Lk}"
EXPANDED = f"attention/{{}}/{SIZES}-D{N + R}-Dv{V}/{{}}/float64"
ABSORBED = f"attention/{{}}@scale={{}}/B{B}-H{H}-Hkv1-Lq{Lq}-Lk{Lk}-D{C + R}-Dv{C}/{{}}/float64/kv=latent"


@pytest.fixture(scope="module")
def drawn() -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(7)
    shapes = {"q": (B, H, Lq, N + R), "kv": (B, 1, Lk, C + R), "w_k": (H, N, C), "w_v": (H, V, C)}
    return {name: torch.randn(shape, generator=rng, dtype=torch.float64) for name, shape in shapes.items()}


def by_oracle(case: str, *inputs: torch.Tensor) -> torch.Tensor:
    asked = parse_case(case)
    q, k, v = (x.numpy() for x in inputs)
    exact: Any = solve(asked, load_registry().rule(asked.rule), Parameters({}, {}), (q, k, v))
    return torch.from_numpy(np.asarray(exact, np.float64))


@pytest.mark.parametrize("mask", ["none", "causal:lower_right", "window:4"])
def test_both_forms_have_one_exact_answer(drawn: dict[str, torch.Tensor], mask: str) -> None:
    q, kv, w_k, w_v = drawn.values()
    heads = by_oracle(EXPANDED.format("scaled_dot", mask), q, *expanded(kv, w_k, w_v))
    latent = by_oracle(ABSORBED.format("scaled_dot", SCALE, mask), absorbed(q, w_k), kv, kv[..., :C])
    torch.testing.assert_close(mapped(latent, w_v), heads, rtol=1e-12, atol=1e-12)


def test_the_scale_of_the_latent_head_gives_another(drawn: dict[str, torch.Tensor]) -> None:
    q, kv, w_k, w_v = drawn.values()
    heads = by_oracle(EXPANDED.format("scaled_dot", "none"), q, *expanded(kv, w_k, w_v))
    own = ABSORBED.format("scaled_dot", (C + R) ** -0.5, "none")
    latent = by_oracle(own, absorbed(q, w_k), kv, kv[..., :C])
    assert (mapped(latent, w_v) - heads).abs().max() > 0.01


def test_kernels_of_both_forms_agree(drawn: dict[str, torch.Tensor]) -> None:
    q, kv, w_k, w_v = drawn.values()

    def setup(text: str) -> Setup:
        case = parse_case(text)
        rule = load_registry().rule(case.rule)
        return Setup(case, rule, rule.bind(case, {}), {}, {})

    heads = plain(setup(EXPANDED.format("scaled_dot", "causal")))(q, *expanded(kv, w_k, w_v))
    call: Any = from_latent(setup(ABSORBED.format("scaled_dot", SCALE, "causal")))
    torch.testing.assert_close(mapped(call(absorbed(q, w_k), kv), w_v), heads, rtol=1e-10, atol=1e-10)
