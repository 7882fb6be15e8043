"""Every known mistake is refused by the verdict on some case where it can show."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from judged import Judge
from maths_tools import RULES
from torch import Tensor

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import EPS
from attnbench.testing.mistakes import VALUES
from attnbench.testing.mutants.mutant import RIGHT, Mutant, built
from attnbench.types.case import Case

CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq19-Lk37-D13-Dv11/causal:lower_right+window:9/float32",
    "attention/scaled_dot/B2-H2-Lq37-Lk19-D16-Dv8/causal+padding/float32",
    "attention/scaled_dot/B1-H2-Lq5-Lk150-D24/window:7/float64",
    "attention/dot/B1-H3-Hkv1-Lq17-Lk70-D4096-Dv8/none/float32",
    "attention/dot/B2-H2-L33-D16/bool/bfloat16",
    "attention/general/B2-H4-Hkv2-Lq16-Lk20-D8-Dv12/float/float32",
    "attention/additive/B1-H2-Lq9-Lk21-D12/padding/float32",
    "attention/additive_sum/B2-H1-L18-D8/causal/float16",
    "attention/concat_linear/B2-H2-Lq19-Lk17-D8/none/float32",
    "attention/cosine/B2-H4-Hkv2-Lq21-Lk19-D16/bool/float64",
    "attention/alibi/B1-H4-Lq12-Lk30-D8/padding/float32",
    "attention/softcap/B2-H2-Lq10-Lk18-D16/float/float32",
    "attention/sinks/B1-H4-Hkv2-Lq20-Lk24-D16/causal/float32",
    "attention/scaled_dot/B2-H2-L24-D16/float/float32",
    "multihead/scaled_dot/B2-H4-L20-D8-E32-bias/causal/float32",
    "multihead/sinks/B2-H4-Hkv2-Lq19-Lk33-D8-E24-bias/padding/float32",
    "multihead/concat_linear/B2-H2-L17-D8-E16-bias-cross/none/float32",
    "multihead/softcap/B2-H2-L17-D8-E16-noout/none/bfloat16",
    "attention/scaled_dot/B1-H2-Lq4-Lk600-D16/none/bfloat16",
)
NEEDS_FAMILIES = {"wrong_scale_1_percent_in_bfloat16"}
"""Hidden by the rounding of half precision in inputs that are drawn as they come: made ones show it."""

WRONG = VALUES


@cache
def judge(text: str) -> Judge:
    return Judge(parse_case(text), draws=3)


def outputs(mutant: Mutant, judge: Judge) -> list[Tensor]:
    """Of all draws, in BHLD; every output is kept, so that one that is overwritten shows."""
    call = mutant.prepare(judge.setup)
    exchanged = mutant.layout == "BLHD"
    made = []
    for inputs in judge.inputs:
        given = [x.transpose(1, 2).contiguous() for x in inputs] if exchanged else inputs
        made.append(call(*given))
    return [out.transpose(1, 2) if exchanged else out for out in made]


def cases_of(mutant: Mutant, texts: tuple[str, ...]) -> list[str]:
    parsed = {text: parse_case(text) for text in texts}
    return [text for text, case in parsed.items() if mutant.runs(case, RULES[case.rule])]


@pytest.mark.parametrize("mutant", WRONG, ids=lambda mutant: mutant.backend_name)
def test_wrong_mutants_are_refused_where_they_apply(mutant: Mutant) -> None:
    """On one case at least by this verdict on drawn inputs; they compute on all, without raising."""
    texts = cases_of(mutant, CASES)
    assert texts, "applies to none of the cases"
    problems = [judge(text).verdict(outputs(mutant, judge(text)))[1] for text in texts]
    assert any(problems) or mutant.backend_name in NEEDS_FAMILIES


def unlikely_keys(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Two keys whose logits are 8 apart, and values on the unlikely one that make its share the answer."""
    dtype = getattr(torch, case.dtype)
    q = torch.ones(1, 1, 1, case.D, dtype=dtype)
    k = torch.zeros(1, 1, 2, case.D, dtype=dtype)
    k[..., 1, :] = 8 * case.D**-0.5
    v = torch.zeros(1, 1, 2, case.Dv, dtype=dtype)
    v[..., 0, :] = 1024
    return q, k, v


@pytest.mark.parametrize("name", sorted(NEEDS_FAMILIES))
def test_what_rounding_hides_shows_where_values_lie_on_unlikely_keys(name: str) -> None:
    text = "attention/scaled_dot/B1-H1-Lq1-Lk2-D64-Dv8/none/bfloat16"
    (mutant,) = (mutant for mutant in VALUES if mutant.backend_name == name)
    setup = judge(text).setup
    inputs = unlikely_keys(setup.case)
    right = built(RIGHT, setup)(*inputs).double()
    off = (mutant.prepare(setup)(*inputs).double() - right).abs() / right
    assert float(off.max()) > 6 * EPS["bfloat16"]
