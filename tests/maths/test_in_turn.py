"""Sums in turn: the plain reference in other orders, so that no right kernel is refused for its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from judged import Judge
from maths_tools import setup_of, small_case
from right_kernels import Kernel, one_query_at_a_time, online, repeated, unfused, with_mask_and_sink
from torch import Tensor

import attnbench.check.reference as module
from attnbench.cases.ids import parse_case
from attnbench.check.reference import MOST_PRODUCTS, PLAIN, counts_in_turn, in_turn
from attnbench.inputs.draw import EPS
from attnbench.types.backend import Setup
from attnbench.types.case import Layer

FEW_ROWS = "attention/sinks/B2-H2-Lq2-Lk168-D64/causal:lower_right+window:16"


def refusals(seeds: range) -> Iterator[str]:
    """Yield the right kernels that are refused on the family of changed elements, by seed."""
    right: dict[str, Kernel] = {kernel.__name__: kernel for kernel in (unfused, online, one_query_at_a_time)}
    for step in (1, -1):
        right[f"step {step}"] = lambda *args, step=step: summed(*args, step=step)
    for seed in seeds:
        judge = Judge(replace(parse_case(FEW_ROWS), seed=seed), family="deep_change")
        yield from (f"{name} on {seed}" for name, kernel in right.items() if judge.of(kernel)[1])


def test_no_right_kernel_is_refused_where_one_product_leads_in_a_few_rows() -> None:
    assert list(refusals(range(20))) == []


def test_without_sums_in_turn_some_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one depends on the order of the machine's matmul."""
    monkeypatch.setattr(module, "ONE_PRODUCT_LEADS", ())
    assert next(refusals(range(100)), "") != ""


def summed(setup: Setup, q: Tensor, k: Tensor, v: Tensor, *, step: int) -> Tensor:
    """A right kernel whose scores are added feature by feature, in float32."""
    assert setup.scoring.dot is not None
    k = repeated(setup, k)
    scores = torch.zeros(*q.shape[:-1], k.shape[2])
    for d in range(setup.case.D)[::step]:
        scores += q[..., :, None, d] * k[..., None, :, d]
    weights = with_mask_and_sink(setup, scores * setup.scoring.dot.scale).softmax(-1)[..., :-1]
    return weights @ repeated(setup, v)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rule", ["scaled_dot", "general", "cosine", "alibi", "softcap", "sinks"])
def test_sums_in_turn_are_the_rule(rule: str, dtype: str, backwards: bool) -> None:
    case = small_case(rule, Lq=9, Lk=12, D=8, dtype=dtype)
    judge = Judge(case)
    turned = PLAIN.prepare(in_turn(judge.setup, backwards=backwards))
    accuracy, problem = judge.of(lambda _, *inputs: turned(*inputs))
    assert problem == ""
    assert 0.3 < accuracy.error_budget < 2


def test_a_rule_without_products_stays_as_it_is() -> None:
    setup = setup_of(small_case("additive"))
    assert in_turn(setup, backwards=False) is setup


def test_what_comes_after_the_large_product_is_rounded_by_it() -> None:
    setup = setup_of(small_case("dot", B=1, H=1, Hkv=1, Lq=1, Lk=1, D=3))
    q, k = torch.tensor([[[[1.0, 1.0, 1.0]]]]), torch.tensor([[[[2.0**24, 1.0, 1.0]]]])
    forwards, backwards = (in_turn(setup, backwards=turn).scoring.scores for turn in (False, True))
    assert forwards is not None
    assert backwards is not None
    assert forwards(q, k, slice(0, 1)).item() == 2.0**24, "each 1 is rounded away"
    assert backwards(q, k, slice(0, 1)).item() == 2.0**24 + 2


def test_half_precision_is_summed_in_float32() -> None:
    setup = setup_of(small_case("dot", B=1, H=1, Hkv=1, Lq=1, Lk=1, D=300, dtype="bfloat16"))
    ones = torch.ones(1, 1, 1, 300, dtype=torch.bfloat16)
    scores = in_turn(setup, backwards=False).scoring.scores
    assert scores is not None
    made = scores(ones, ones, slice(0, 1))
    assert made.dtype == torch.bfloat16
    assert abs(made.item() - 300) <= 300 * EPS["bfloat16"], "bfloat16 would stop at 256"


def test_they_are_asked_for_where_they_matter() -> None:
    case = small_case()
    assert counts_in_turn(case, "deep_change")
    assert not counts_in_turn(case, "normal")
    assert not counts_in_turn(replace(case, pass_="both"), "deep_change")
    assert not counts_in_turn(small_case(layer=Layer(6)), "deep_change")
    wide = replace(case, B=1, H=1, Hkv=1, Lq=1024, Lk=1024)
    assert counts_in_turn(replace(wide, D=MOST_PRODUCTS // 2**20), "deep_change")
    assert not counts_in_turn(replace(wide, D=MOST_PRODUCTS // 2**20 + 1), "deep_change")
