"""Mutants with a backward pass: right outputs, and gradients against those of the plain reference."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from mutant_calls import drawn, rule_of, setup_of

from attnbench.check.plain import PLAIN
from attnbench_selftest.mutants import MUTANTS
from attnbench.testing.mutants.mutant import Mutant
from attnbench.types.backend import Backend, Setup

CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk7-D4-Dv3/causal:lower_right/float64/cpu/both",
    "attention/alibi/B2-H4-Lq5-Lk7-D4/none/float64/cpu/both",
    "attention/sinks/B2-H4-Hkv2-L6-D4/causal/float64/cpu/backward",
    "attention/additive/B1-H2-Lq5-Lk7-D4/none/float64/cpu/both",
    "multihead/scaled_dot/B2-H4-L6-D4-E8-bias/causal/float64/cpu/both",
    "multihead/general/B2-H4-Hkv2-Lq5-Lk6-D4-E8/none/float64/cpu/both",
)
WRONG = [mutant for mutant in MUTANTS if mutant.trait == "gradient"]
RIGHT = [mutant for mutant in MUTANTS if mutant.right and "both" in mutant.passes]


class Made(NamedTuple):
    output: Tensor
    gradients: dict[str, Tensor]


def passes(backend: Mutant | Backend, text: str, times: int = 2) -> list[Made]:
    """Forward and backward with other inputs and upstream gradients each time."""
    plain = setup_of(text)
    own = {name: p.clone().requires_grad_() for name, p in plain.rule_parameters.items()}
    projections = {name: p.clone().requires_grad_() for name, p in plain.projections.items()}
    setup: Setup = replace(
        plain,
        scoring=plain.rule.bind(plain.case, own),
        rule_parameters=own,
        projections=projections,
    )
    call, made = backend.prepare(setup), []
    for index in range(times):
        given = drawn(text, index)
        leaves = {id(x): x.clone().requires_grad_() for x in given}
        named = {
            **{f"input {i}": leaf for i, leaf in enumerate(leaves.values())},
            **own,
            **projections,
        }
        output = call(*(leaves[id(x)] for x in given))
        upstream = torch.randn(
            output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(index)
        )
        found = torch.autograd.grad(output, list(named.values()), upstream, allow_unused=True)
        gradients = dict(zip(named, found, strict=True))
        made.append(Made(output.detach(), {n: g for n, g in gradients.items() if g is not None}))
    return made


def different(made: list[Made], expected: list[Made]) -> set[str]:
    """Names of gradients that are off in any of the passes."""
    return {
        name
        for one, other in zip(made, expected, strict=True)
        for name, gradient in other.gradients.items()
        if name not in one.gradients
        or not torch.allclose(one.gradients[name], gradient, rtol=1e-9, atol=1e-11)
    }


def cases_of(mutant: Mutant) -> list[str]:
    return [text for text in CASES if runs(mutant, setup_of(text).case, rule_of(text))]


@pytest.mark.parametrize("mutant", WRONG, ids=lambda mutant: mutant.backend_name)
def test_outputs_are_right_and_gradients_are_not(mutant: Mutant) -> None:
    texts = cases_of(mutant)
    assert texts, "applies to none of the cases"
    for text in texts:
        made, expected = passes(mutant, text), passes(PLAIN, text)
        for one, other in zip(made, expected, strict=True):
            torch.testing.assert_close(one.output, other.output, rtol=1e-9, atol=1e-11)
        assert different(made, expected), text


@pytest.mark.parametrize("mutant", RIGHT, ids=lambda mutant: mutant.backend_name)
def test_right_ones_have_right_gradients(mutant: Mutant) -> None:
    for text in cases_of(mutant):
        assert different(passes(mutant, text), passes(PLAIN, text)) == set(), text


def test_each_is_wrong_in_what_it_says() -> None:
    """One gradient is off, and those beside it are right: each has to be looked at."""
    by_name = {mutant.backend_name: mutant for mutant in WRONG}
    for name, off in (
        ("dq_zero", "input 0"),
        ("dk_1_percent", "input 1"),
        ("dv_of_unmasked_weights", "input 2"),
    ):
        text = CASES[0]
        assert different(passes(by_name[f"wrong_{name}"], text), passes(PLAIN, text)) == {off}
