"""The plain reference's gradients against finite differences of the oracle, which knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from maths_tools import RULES, setup_of, tensors

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import EPS, Parameters, draw_activations, draw_parameters
from attnbench.kit import reference as plain
from attnbench.oracle.solve import solve
from attnbench.types.case import Case
from attnbench.worker.gradients import (
    NoGradient,
    leaf_inputs,
    leaves,
    passed,
    plain_errors,
    plain_gradients,
    recast,
    source_names,
    with_gradients,
)

Array = np.ndarray[Any, Any]

STEP = 1e-6
TOLERANCE = 1e-8
DIRECTIONS = 2
SIZES = {"attention": "B2-H2-Hkv1-Lq4-Lk3-D3-Dv2", "multihead": "B2-H2-Hkv1-Lq4-Lk3-D2-E3-bias"}
MASKS = (
    "none",
    "causal",
    "causal:lower_right+window:2",
    "padding:0,2",
    "bool",
    "float+causal",
)


def drawn(case: Case) -> tuple[dict[str, Array], Callable[[dict[str, Array]], Array]]:
    """Inputs and parameters by leaf in extended precision, and the oracle's output of leaves."""
    rule = RULES[case.rule]
    parameters, names = draw_parameters(case, rule), source_names(case, rule)
    leaves = dict(zip(names, draw_activations(case, rule, 1, 0), strict=True))
    leaves |= {f"rule.{name}": array for name, array in parameters.rule.items()} | parameters.projections

    def output(leaves: dict[str, Array]) -> Array:
        of_rule = {name: leaves[f"rule.{name}"] for name in parameters.rule}
        projections = {name: leaves[name] for name in parameters.projections}
        a, b, c = (leaves[name] for name in names)
        return solve(case, rule, Parameters(of_rule, projections), (a, b, c))

    return {name: array.astype(np.longdouble) for name, array in leaves.items()}, output


ASKED = (
    # Rows that keep no key are among those of bool, float, padding and lower_right.
    *(f"{operation}/{{}}/{sizes}/{mask}" for operation, sizes in SIZES.items() for mask in MASKS),
    # One key, one source, and no output projection.
    "attention/{}/H3-L1-D2/none",
    "attention/{}/B2-H2-Lq4-Lk1-D3-Dv1/bool",
    "multihead/{}/B2-H2-L3-D2-E4-noout/causal",
    "multihead/{}/H2-L3-D2-E2-cross/float",
)


@pytest.mark.parametrize("form", ASKED)
@pytest.mark.parametrize("rule", sorted(RULES))
def test_gradients_are_the_oracles_slopes(rule: str, form: str) -> None:
    """Central differences in random directions, of which any wrong element shows in each."""
    case = parse_case(f"{form.format(rule)}/float64/both")
    leaves, output = drawn(case)
    rng = np.random.default_rng(0)
    upstream = rng.standard_normal(output(leaves).shape)
    a, b, c = tensors(case)
    got = plain_gradients(setup_of(case), (a, b, c), torch.from_numpy(upstream))
    assert list(got) == list(leaves)
    for name, gradient in got.items():
        assert gradient.shape == leaves[name].shape
        for direction in rng.standard_normal((DIRECTIONS, *gradient.shape)):
            ahead, behind = (
                np.sum(output(leaves | {name: leaves[name] + step * direction}) * upstream)
                for step in (STEP, -STEP)
            )
            expected = float((ahead - behind) / (2 * STEP))
            error = abs(float((gradient.numpy() * direction).sum()) - expected)
            largest = max(1.0, float(gradient.abs().max()), abs(expected))
            assert error < TOLERANCE * largest, f"the slope along {name} is off by {error:.3g}"


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rule", sorted(RULES))
def test_no_mask_and_no_logit_gives_nan(rule: str, dtype: str) -> None:
    for mask in ("padding:0", "causal:lower_right", "bool"):
        case = parse_case(f"attention/{rule}/H2-Lq6-Lk3-D4/{mask}/{dtype}/both")
        a, b, c = tensors(case)
        upstream = torch.ones(1, 2, 6, 4, dtype=a.dtype)
        for factor in (1.0, 1000.0):
            for name, gradient in plain_gradients(setup_of(case), (a * factor, b, c), upstream).items():
                assert torch.isfinite(gradient).all(), (mask, factor, name)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_rows_in_chunks_give_the_same_and_again(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = parse_case(f"multihead/{rule}/{SIZES['multihead']}/bool/float64/both")
    a, b, c = tensors(case)
    upstream = torch.randn(2, 4, 3, dtype=torch.float64)
    whole = plain_gradients(setup_of(case), (a, b, c), upstream)
    monkeypatch.setattr(plain, "SCORES_AT_ONCE", 1)
    backward = replace(with_gradients(setup_of(case)), case=replace(case, pass_="backward"))
    inputs = leaf_inputs((a, b, c))
    call = passed(plain.PLAIN.prepare(backward), backward, upstream)
    call.renew(inputs)
    for _ in range(2):
        chunked = dict(zip(call.names, call(*inputs), strict=True))
        assert list(chunked) == list(whole)
        for name in whole:
            torch.testing.assert_close(chunked[name], whole[name], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("rule", sorted(RULES))
def test_held_denominators_change_gradients_of_scores_alone(rule: str, mask: str) -> None:
    """The gradient of scores is P·dP where they are held, P·(dP − D) where they aren't; that of v is one."""
    case = parse_case(f"attention/{rule}/{SIZES['attention']}/{mask}/float64/both")
    setup, (a, b, c) = setup_of(case), tensors(case)
    upstream = torch.randn(2, 2, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = plain_gradients(setup, (a, b, c), upstream)
    held = plain_gradients(setup, (a, b, c), upstream, held=True)
    torch.testing.assert_close(held["v"], exact["v"])
    assert all(torch.isfinite(gradient).all() for gradient in held.values())
    assert not torch.allclose(held["q"], exact["q"])
    # A constant more in every value gives the exact gradient nothing more.
    moved = plain_gradients(setup, (a, b, c + 3), upstream)
    if RULES[rule].sink is None:
        torch.testing.assert_close(moved["q"], exact["q"])
    else:
        assert not torch.allclose(moved["q"], exact["q"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_errors_of_the_plain_reference_are_some_roundings(dtype: str) -> None:
    case = parse_case(f"multihead/scaled_dot/B2-H2-L9-D8-E16/causal/{dtype}/both")
    x, _, _ = tensors(case)
    upstream = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0)).to(x.dtype)
    errors = plain_errors(setup_of(case), (x, x, x), upstream)
    exact = plain_gradients(*recast(setup_of(case), (x, x, x), "float64"), upstream.double())
    assert list(errors) == list(exact) == ["x", "w_q", "w_k", "w_v", "w_o"]
    for name, error in errors.items():
        relative = float(error.square().mean().sqrt() / exact[name].square().mean().sqrt())
        assert 0.05 < relative / EPS[dtype] < 10, name


def test_what_gradients_are_of() -> None:
    def names(text: str) -> list[str]:
        case = parse_case(f"{text}/float64/both")
        setup = with_gradients(setup_of(case))
        found = leaves(setup, [x.requires_grad_() for x in tensors(case)])
        assert len({id(x) for x in found.values()}) == len(found)
        return list(found)

    assert names("attention/dot/H2-L3-D2") == ["q", "k", "v"]
    # The additive rule has a parameter called v, and is told apart from the values.
    assert names("attention/additive/H2-L3-D2") == [
        "q", "k", "v", "rule.w_query", "rule.w_key", "rule.bias", "rule.v",
    ]  # fmt: skip
    assert names("multihead/dot/H2-L3-D2-E4-bias") == [
        "x", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o",
    ]  # fmt: skip
    assert names("multihead/dot/H2-L3-D2-E4-cross-noout")[:2] == ["x", "context"]
    assert names("multihead/concat_linear/H2-Lq3-Lk5-D2-E4")[:3] == ["queries", "keys", "values"]


def test_what_is_no_leaf_is_told_by_name() -> None:
    case = parse_case("attention/general/H2-L3-D2/float64/both")
    inputs = [x.requires_grad_() for x in tensors(case)]
    with pytest.raises(NoGradient, match=r"^rule\.w is not a leaf that requires a gradient$"):
        leaves(setup_of(case), inputs)
    with pytest.raises(NoGradient, match="k is not a leaf"):
        leaves(with_gradients(setup_of(case)), (inputs[0], inputs[1] * 2, inputs[2]))
