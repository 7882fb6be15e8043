"""Right dropout passes with any seed; wrong dropout of many kinds is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from judging import judged, wide
from solved import BACKENDS, QUICK, Solved, solved, supported
from torch import Tensor
from torch.nn.functional import dropout

from attnbench.inputs.draw import Parameters, widen
from attnbench.kit.reference import PLAIN
from attnbench.oracle.moments import solve_moments
from attnbench.types.record import DropoutNumbers
from attnbench.verifier.tally import Tally, dropout_calls, judge_tally, telling_rows
from attnbench.worker.outputs import as_stored

if TYPE_CHECKING:
    from attnbench.types.backend import Call

DROPPING = [name for name in QUICK if BACKENDS[name].dropout]
CASES = [
    "attention/scaled_dot/B2-H2-Hkv1-Lq9-Lk17-D4/causal:lower_right/float32/cpu/forward/dropout0.1",
    "attention/scaled_dot/B1-H2-Lq3-Lk1-D4/none/float64/cpu/forward/dropout0.5",
    "attention/scaled_dot/B2-H2-Lq8-Lk8-D8/bool/bfloat16/cpu/forward/dropout0.2",
    "multihead/scaled_dot/B2-H2-Lq8-Lk8-D4-E8-bias/float/float32/cpu/forward/dropout0.1",
    "multihead/scaled_dot/B1-H2-Lq8-Lk8-D4-E8-noout/padding:5/float16/cpu/forward/dropout0.9",
]


def tally_of(each: Solved, *outputs: Tensor) -> Tally:
    exact = wide(each)
    own, projections = (
        {name: x.numpy() for name, x in given.items()}
        for given in (exact.setup.rule_parameters, exact.setup.projections)
    )
    a, b, c = (x.numpy() for x in exact.inputs)
    parameters = Parameters(own, projections)
    moments = solve_moments(each.case, each.setup.rule, parameters, (a, b, c), each.expected)
    tally = Tally(each.case, moments)
    for output in outputs:
        tally.add(widen(as_stored(output, each.case), each.case.dtype))
    return tally


def judge(
    each: Solved, call: Call, calls: int | None = None, mend: Callable[[Tensor], Tensor] = lambda x: x
) -> tuple[DropoutNumbers | None, str]:
    accuracy, _ = judged(PLAIN, [each])
    with torch.inference_mode():
        outputs = [mend(call(*each.inputs)).clone() for _ in range(calls or dropout_calls(each.case))]
    return judge_tally(tally_of(each, *outputs), rms_limit=accuracy.rms_limit, max_limit=accuracy.max_limit)


@pytest.mark.parametrize("name", DROPPING)
def test_right_ones_pass(name: str) -> None:
    cases = supported(name, CASES)
    assert cases or name == "sdpa_flash"
    for each in cases:
        numbers, problem = judge(each, BACKENDS[name].prepare(each.setup))
        assert problem == ""
        assert numbers.rows > 0
        assert numbers.p_least < each.case.dropout < numbers.p_most


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_compiled_one_passes() -> None:
    each = solved(CASES[0])
    backend = BACKENDS["compiled"]
    if backend.available("cpu"):
        pytest.skip("no compiler")
    assert judge(each, backend.prepare(each.setup))[1] == ""


@pytest.mark.nightly
@pytest.mark.slow
def test_none_of_hundreds_is_refused() -> None:
    text = "attention/scaled_dot/B2-H2-Lq{L}-Lk{L}-D4/{mask}/float32/cpu/forward/dropout{p}"
    refused = []
    for seed in range(200):
        mask, p = ("none", "causal")[seed % 2], (0.05, 0.1, 0.5)[seed % 3]
        each = solved(text.format(L=(4, 16, 31)[seed % 3], mask=mask, p=p), draw=seed)
        torch.manual_seed(seed)
        refused += [judge(each, BACKENDS["eager"].prepare(each.setup), calls)[1] for calls in (None, 1)]
    assert [words for words in refused if words] == []


WRONG = "attention/scaled_dot/B2-H4-Lq64-Lk64-D16/none/float32/cpu/forward/dropout0.1"
P = 0.1
ANSWER = "times the oracle's answer"
ALIKE = "do not drop weights independently"


def keep(*shape: int) -> Tensor:
    return (torch.rand(shape) >= P) / (1 - P)


def one_mask() -> Callable[[Tensor], Tensor]:
    made: list[Tensor] = []

    def for_ever(weights: Tensor) -> Tensor:
        made.extend([] if made else [keep(*weights.shape)])
        return weights * made[0]

    return for_ever


def without(weights: Tensor, *at: slice | int) -> Tensor:
    """No dropout in one part."""
    dropped = dropout(weights, P)
    dropped[at] = weights[at]
    return dropped


def exactly(weights: Tensor) -> Tensor:
    """The same number of keys dropped in every row."""
    places = torch.rand(weights.shape).argsort(-1)
    return weights * (places >= 6) * (64 / 58)


def scores_at(instead: float, weights: Tensor) -> Tensor:
    """Dropout of scores."""
    return (64 * weights).log().masked_fill(keep(*weights.shape) == 0, instead).softmax(-1)


def one_wrong(weights: Tensor, v: Tensor) -> Tensor:
    out = dropout(weights, P) @ v
    out[1, 2, 63, 5] += 0.5
    return out


EVERY = slice(None)
ON_WEIGHTS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "p a fifth larger": (lambda w: dropout(w, 1.2 * P), "the variance of"),
    "p a fifth smaller": (lambda w: dropout(w, P / 1.2), "the variance of"),
    "scaled by another p": (lambda w: w * (torch.rand(w.shape) >= 1.2 * P) / (1 - P), ANSWER),
    "not rescaled": (lambda w: dropout(w, P) * (1 - P), ANSWER),
    "no dropout": (lambda w: w, "the variance of"),
    "one mask for ever": (one_mask(), "different calls"),
    "renormalised": (lambda w: dropout(w, P) / dropout(w, P).sum(-1, keepdim=True), ""),
    "heads share masks": (lambda w: w * keep(2, 1, 64, 64), f"different heads {ALIKE}"),
    "batch elements share masks": (lambda w: w * keep(1, 4, 64, 64), f"batch elements {ALIKE}"),
    "whole rows": (lambda w: w * keep(2, 4, 64, 1), ""),
    "a fixed number of keys": (exactly, "the variance of"),
    "not in the last query": (lambda w: without(w, EVERY, EVERY, -1), "at i=63"),
    "not in the last keys": (lambda w: without(w, EVERY, EVERY, EVERY, slice(48, 64)), "the variance of"),
    "scores at 0": (partial(scores_at, 0.0), ""),
    "scores at -inf": (partial(scores_at, -torch.inf), ""),
}
ON_OUTPUTS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "of the output": (lambda w, v: dropout(w @ v, P), "the variance of"),
    "of the values": (lambda w, v: w @ dropout(v, P), "the variance of"),
    "noise instead": (lambda w, v: w @ v * (1 + 0.1 * torch.randn(())), ""),
    "one element wrong": (one_wrong, "(b=1, h=2, i=63, e=5)"),
    "NaN": (lambda w, v: dropout(w, P) @ v / torch.zeros(()), "is not finite"),
}


@pytest.mark.parametrize("name", [*ON_WEIGHTS, *ON_OUTPUTS])
def test_wrong_dropout_is_refused(name: str) -> None:
    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT / each.case.D**0.5).softmax(-1)
        return ON_OUTPUTS[name][0](weights, v) if name in ON_OUTPUTS else ON_WEIGHTS[name][0](weights) @ v

    torch.manual_seed(7)
    each = solved(WRONG)
    words = judge(each, call)[1]
    assert words
    assert (ON_WEIGHTS | ON_OUTPUTS)[name][1] in words


@pytest.mark.parametrize("p", [0.1, 0.2])
def test_double_and_half_p_are_refused_in_half_precision_and_on_small_cases(p: float) -> None:
    for text in (
        "attention/scaled_dot/B1-H2-Lq16-Lk8-D8/none/bfloat16/cpu/forward/dropout{}",
        "multihead/scaled_dot/B1-H2-Lq8-Lk8-D4-E8-bias/none/float16/cpu/forward/dropout{}",
    ):
        each = solved(text.format(p))
        other = replace(each.setup, case=replace(each.case, dropout=0.3 - p))
        assert judge(each, BACKENDS["eager"].prepare(other))[1]


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("right", lambda out: out),
        ("not rescaled", lambda out: out * 0.9),
        ("NaN", lambda out: out * torch.nan),
        ("of other inputs", lambda out: out.flip(-2)),
    ],
)
def test_one_output_alone_is_told_apart(name: str, mend: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(3)
    each = solved(WRONG)
    assert bool(judge(each, BACKENDS["eager"].prepare(each.setup), 1, mend)[1]) == (name != "right")


def test_rows_tell_something_where_rounding_is_less_than_what_is_dropped() -> None:
    tally = tally_of(solved(WRONG))
    assert telling_rows(tally, rms_limit=1e-6) == 2 * 4 * 64
    assert telling_rows(tally, rms_limit=1e6) == 0
