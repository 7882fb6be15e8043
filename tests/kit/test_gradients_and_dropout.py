"""Gradients without NaN, a graph for each backward pass, and dropout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from small import layer_setup, randn, rule

from attnbench.kit.attention import attention, softmax_of
from attnbench.kit.scores import derived
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask
from attnbench.types.rule import DotForm, Scoring

if TYPE_CHECKING:
    from attnbench.types.backend import Call

EMPTY = Case(
    "attention", "dot", 1, 1, 1, 4, 2, 3, 3, mask=Mask(causal="lower_right"), dtype="float64", pass_="both"
)
"""Its first two queries keep no key."""


def test_a_row_that_keeps_nothing_makes_no_gradient_nan() -> None:
    setup = Setup(EMPTY, rule(), Scoring(dot=DotForm()), {}, {})
    q, k, v = (randn(1, 1, L, 3, seed=L).requires_grad_() for L in (4, 2, 2))
    attention(setup)(q, k, v).sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
    assert not q.grad[..., :2, :].any()


def squared(setup: Setup) -> Call:
    """A product that is made of a parameter once has one graph."""
    weight = setup.projections["w_q"] ** 2
    return lambda q, k, v: q @ weight


def test_what_is_made_of_parameters_has_a_graph_for_each_backward_pass() -> None:
    setup = layer_setup(replace(EMPTY, operation="multihead", layer=Layer(3), mask=Mask()))
    setup.projections["w_q"].requires_grad_()
    call = derived(setup, squared)
    for _ in range(2):
        call(*(randn(1, 3) for _ in range(3))).sum().backward()


def test_in_a_forward_pass_it_is_made_once() -> None:
    made = []

    def make(setup: Setup) -> Call:
        made.append(setup)
        return squared(setup)

    case = replace(EMPTY, operation="multihead", layer=Layer(3), mask=Mask(), pass_="forward")
    call = derived(layer_setup(case), make)
    for _ in range(2):
        call(*(randn(1, 3) for _ in range(3)))
    assert len(made) == 1


def test_each_weight_is_dropped_with_the_probability_of_the_case() -> None:
    torch.manual_seed(0)
    softmax = softmax_of(replace(EMPTY, dropout=0.2, pass_="forward"))
    weights = softmax(torch.zeros(1, 1, 1000, 10, dtype=torch.float64), None, None, None)
    dropped = float((weights == 0).double().mean())
    # Ten standard deviations of 10,000 draws.
    assert abs(dropped - 0.2) < 0.04
    torch.testing.assert_close(weights[weights > 0], torch.full_like(weights[weights > 0], 0.1 / 0.8))
