"""The verdict refuses every known mistake in outputs on some case."""

from __future__ import annotations

from functools import cache

import pytest
from judged import Judge

from attnbench.cases.ids import parse_case
from attnbench.testing.mistakes import VALUES
from attnbench.testing.mistakes.parts import RIGHT, Mistake, built
from attnbench.testing.mistakes.structures import STRUCTURES

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
    "attention/t5_bias/B1-H4-Lq12-Lk30-D8/causal:lower_right/float32",
    "attention/softcap/B2-H2-Lq10-Lk18-D16/float/float32",
    "attention/softcap@c=5,scale=0.3/B2-H2-Lq10-Lk18-D16/causal/bfloat16",
    "attention/sinks/B1-H4-Hkv2-Lq20-Lk24-D16/causal/float32",
    "attention/scaled_dot/B2-H2-L24-D16/float/float32",
    "multihead/scaled_dot/B2-H4-L20-D8-E32-bias/causal/float32",
    "multihead/sinks/B2-H4-Hkv2-Lq19-Lk33-D8-E24-bias/padding/float32",
    "multihead/concat_linear/B2-H2-L17-D8-E16-bias-cross/none/float32",
    "multihead/softcap/B2-H2-L17-D8-E16-noout/none/bfloat16",
    "attention/scaled_dot/B1-H2-Lq4-Lk600-D16/none/bfloat16",
    "attention/scaled_dot/B2-H4-Hkv2-Lq16-Lk20-D8/bool:per_head/float32",
    "attention/scaled_dot/B2-H2-L24-D8/document/float32",
    "attention/scaled_dot/B3-H2-Lq9-Lk24-D8/causal:lower_right+left_padding:0,7,20/float32",
    "attention/scaled_dot/B1-H2-Lq20-Lk24-D8/causal:lower_right+chunked:5/float32",
    "attention/scaled_dot/B1-H2-Lq20-Lk24-D8/reach:5,2/float32",
    "attention/scaled_dot/B1-H2-Lq20-Lk23-D8/causal+dilated:3/float32",
    "attention/scaled_dot/B1-H2-L24-D8/blocks:4/float32",
    "attention/scaled_dot/B1-H2-Lq6-Lk24-D8/causal:lower_right+tree:0,0,1,1,3,2/float32",
    "attention/scaled_dot/B1-H2-L24-D8/causal+prefix:7/float32",
    "attention/scaled_dot/B1-H2-L24-D8/causal+window:3+first:4/bfloat16",
    "attention/scaled_dot/B1-H2-L24-D8/window:3+global:2/float32",
    "attention/scaled_dot/B1-H2-L24-D8/causal+image:3,6,12,5/float32",
)


@cache
def judge(text: str) -> Judge:
    return Judge(parse_case(text), draws=3)


def refused(mistake: Mistake, text: str) -> bool:
    asked = judge(text)
    if mistake.rules and asked.case.rule not in mistake.rules:
        return False
    try:
        call = mistake.prepare(asked.setup)
        outputs = [call(*inputs) for inputs in asked.inputs]
    except (AssertionError, KeyError, RuntimeError):
        # It can't be made in this case, such as a mistake of a layer where there is none.
        return False
    return bool(asked.verdict(outputs)[1])


@pytest.mark.parametrize("mistake", [*VALUES, *STRUCTURES], ids=lambda mistake: mistake.name)
def test_a_mistake_is_refused_on_some_case(mistake: Mistake) -> None:
    assert any(refused(mistake, text) for text in CASES)


@pytest.mark.parametrize("text", CASES)
def test_attention_made_of_the_right_parts_is_accepted(text: str) -> None:
    asked = judge(text)
    call = built(RIGHT, asked.setup)
    assert asked.verdict([call(*inputs) for inputs in asked.inputs])[1] == ""
