"""The judge compares what our calls for batches and recurrences give, by stand-ins; mistakes are found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attnbench_cuda import BACKENDS
from library_modules import modules
from stood_in import MISTAKES, RIGHT

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.trial.judge import TrialOutcome, judge
from attnbench.trial.point import parse_point

PLUGIN = Path(__file__).parent / "stood_in.py"

CASES = {
    "packed": "scaled_dot@scale=0.3/q5s40_q1s33_q9_q0s7-H4-Hkv2-D64/causal:lower_right/bfloat16/packed/lse",
    "no_keys": "scaled_dot/q7s4_q3s50_q2s0-H2-D64/causal:lower_right/float16/packed/lse",
    "unlike": "scaled_dot/q7s4_q3s50-H2-D64/none/float16/packed/lse",
    "window": "scaled_dot@scale=0.3/q20s30_q9-H2-D64/causal:lower_right+window:9/bfloat16/packed/lse",
    "reach": "softcap/q20s30_q9-H2-D64/reach:12,3/bfloat16/packed",
    "alibi": "alibi/q20s30_q9-H2-D64/causal:lower_right/bfloat16/packed",
    "sinks": "sinks/q20s30_q9-H2-D64/causal:lower_right/bfloat16/packed",
    "floats": "scaled_dot@scale=0.3/q20s30_q9_q0s3-H2-D64/causal:lower_right+window:9/float32/packed",
    "groups": "scaled_dot@scale=0.3/q5s40_q1s33-H4-Hkv2-D64/causal:lower_right/float16/packed",
    "gradients": "scaled_dot/q5s9_q9-H2-D64/causal:lower_right/bfloat16/cpu/both/packed",
    "pages": "scaled_dot@scale=0.3/q3s300_q2s513_q0s7-H4-Hkv2-D64/causal:lower_right/bfloat16/paged:256/lse",
    "decode": "scaled_dot/3q1s270-H4-Hkv2-D64/causal:lower_right+window:200/float16/paged:256/lse",
    "verify": "scaled_dot@scale=0.3/2q2s270_q2s40-H2-D64/causal:lower_right/bfloat16/paged:256/lse",
    "no_keys_in_pages": "scaled_dot/2q1s5_q1s0-H2-D64/none/bfloat16/paged:256/lse",
    "small_pages": "scaled_dot/q5s40_q1s33_q40-H4-Hkv2-D64/causal:lower_right/bfloat16/paged/lse",
    "pages_alone": "scaled_dot@scale=0.3/q3s300_q2s270-H4-Hkv2-D64/causal:lower_right/bfloat16/paged:256",
}
RECURRENT = {
    "chunks": "gated_delta/B2-H4-Hkv2-L66-D16/bfloat16",
    "ragged": "gated_delta/q17_q0_q66-H4-Hkv2-D16-Dv8/bfloat16/packed",
    "linear": "linear/B2-H2-L70-D16/bfloat16",
    "gated": "gated/B1-H4-Hkv2-L70-D16/bfloat16",
    "gated_floats": "gated/B2-H4-Hkv2-L70-D16/float32",
    "delta": "delta/q17_q0_q70-H4-Hkv2-D16-Dv8/float16/packed",
    "channels": "gated_delta_channels/q17_q0_q70-H4-Hkv2-D16-Dv8/bfloat16/packed",
    "rwkv7": "rwkv7/q17_q1_q70-H2-D16-Dv8/bfloat16/packed",
    "recurrent_gradients": "gated_delta/q17_q9-H2-D16-Dv8/none/bfloat16/cpu/both/packed",
}
WIDE = {
    "wide_chunks": "gated_delta/B2-H2-Hkv1-L9-D128/bfloat16",
    "wide_ragged": "gated_delta/q17_q0_q3-H2-Hkv1-D128/bfloat16/packed",
    "pooled": "delta/q3_q0_q17-H2-D128/bfloat16/pooled",
}
"""For the kernel that takes heads of 128 features alone."""

TAKEN = {
    "flash_attn_varlen": (
        "packed no_keys unlike window reach alibi groups gradients pages decode verify no_keys_in_pages "
        "pages_alone"
    ),
    "flash_attn_kvcache": "decode verify no_keys_in_pages",
    "flash_attn_3_varlen": (
        "packed no_keys unlike window reach groups gradients pages decode verify no_keys_in_pages "
        "small_pages pages_alone"
    ),
    "flash_attn_4_varlen": "packed unlike window reach sinks groups gradients",
    "flash_attn_4_paged": "pages decode verify small_pages pages_alone",
    "flashinfer_ragged": "packed unlike window groups",
    "flashinfer_paged": "pages decode verify small_pages pages_alone",
    "flashinfer_decode": "decode",
    "xformers_varlen": "floats groups gradients",
    "xformers_paged": "pages_alone",
    "fla_chunks": "chunks ragged linear gated delta channels rwkv7 recurrent_gradients",
    "fla_steps": "chunks ragged linear gated delta channels rwkv7",
    "flashinfer_gated_delta": "wide_chunks wide_ragged pooled",
    "mamba_chunk_scan": "linear gated_floats",
}
"""The cases that each backend takes."""


OWN = {backend.name: RECURRENT if "recurrent" in backend.operations else CASES for backend in BACKENDS}
OWN["flashinfer_gated_delta"] = WIDE
"""The cases that each backend is asked for."""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    yield load_wanted([str(PLUGIN)])
    # Other tests ask what is installed.
    for name in modules():
        sys.modules.pop(name, None)


def outcome(registry: Registry, backend: str, word: str) -> TrialOutcome:
    text = f"attention/{CASES[word]}" if word in CASES else f"recurrent/{(RECURRENT | WIDE)[word]}"
    return judged(registry, backend, text)


def judged(registry: Registry, backend: str, text: str) -> TrialOutcome:
    own, rule = registry.backends[backend], registry.rules[parse_case(text).rule]
    return judge(parse_point(text), backend, own.source, rule.source)


@pytest.mark.parametrize("name", TAKEN)
def test_our_calls_are_right(name: str, registry: Registry) -> None:
    found = {word: outcome(registry, f"{name}_{RIGHT}", word) for word in OWN[name]}
    assert {word: one for word, one in found.items() if one.status not in ("right", "declined")} == {}
    assert " ".join(word for word, one in found.items() if one.status == "right") == TAKEN[name]


@pytest.mark.parametrize(("name", "mistake"), [(name, word) for name in TAKEN for word in MISTAKES[name]])
def test_mistakes_in_our_calls_are_refused(name: str, mistake: str, registry: Registry) -> None:
    taken = TAKEN[name].split()
    assert any(outcome(registry, f"{name}_{mistake}", word).status == "wrong" for word in taken)


def test_structures_of_masks_are_passed_as_the_library_takes_them_or_declined(registry: Registry) -> None:
    """A reach of two sides is a window; the others are tensors for those that take one."""
    bands, tensors = (
        ("flash_attn", "flash_attn_3", "flash_attn_4"),
        ("flashinfer_prefill", "xformers_attention"),
    )
    for mask in ("reach:12,3", "causal:lower_right+dilated:3", "causal:lower_right+window:4+first:2"):
        text = f"attention/scaled_dot/H2-Lq20-Lk30-D64/{mask}/bfloat16"
        found = {name: judged(registry, f"{name}_{RIGHT}", text).status for name in (*bands, *tensors)}
        expected = "right" if mask.startswith("reach") else "declined"
        assert found == dict.fromkeys(bands, expected) | dict.fromkeys(tensors, "right"), mask
