"""The judge compares what our calls give, by stand-ins with the libraries' signatures; mistakes are found."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from attnbench_cuda import BACKENDS, DENSE
from library_modules import FUNCTIONS, modules
from published import PUBLISHED, arguments_of, installed
from stood_in import MISTAKES, RIGHT

from attnbench import Backend
from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.trial.judge import TrialOutcome, judge
from attnbench.trial.point import parse_point

PLUGIN = Path(__file__).parent / "stood_in.py"

EQUAL = {
    "longer_keys": "scaled_dot@scale=0.3/H4-Hkv2-Lq40-Lk72-D64/causal:lower_right/bfloat16",
    "causal_window": "scaled_dot@scale=0.3/H2-L40-D64/causal+window:9/float16",
    "cap": "softcap/H2-Lq40-Lk64-D64/window:9/bfloat16",
    "matrix": "scaled_dot/H3-L40-D64/bool/bfloat16",
    "slopes": "alibi/H2-L40-D64/causal/bfloat16",
    "sink": "sinks/H2-L40-D64/causal/bfloat16",
    "causal": "scaled_dot@scale=0.3/B2-H2-L40-D64/causal/bfloat16",
    "longer_queries": "scaled_dot/B2-H2-Lq40-Lk24-D64/causal:lower_right/bfloat16",
    "unmasked": "dot/B2-H4-Hkv2-Lq33-Lk72-D64/bfloat16",
    "layer": "multihead/cosine/B2-H2-L40-D64-E40/causal/bfloat16/both",
    "two_sides": "scaled_dot/H2-Lq20-Lk30-D64/reach:12,3/bfloat16",
    "dilated": "scaled_dot/H2-Lq20-Lk30-D64/causal:lower_right+dilated:3/bfloat16",
    "first_keys": "scaled_dot/H2-Lq20-Lk30-D64/causal:lower_right+window:4+first:2/bfloat16",
}
"""Of equal sequences. The last three have structures of masks."""
BATCHES = {
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
    "flash_attn": "longer_keys causal_window cap slopes causal longer_queries unmasked layer two_sides",
    "flash_attn_3": "longer_keys causal_window cap causal longer_queries unmasked layer two_sides",
    "flash_attn_4": "longer_keys causal_window cap sink causal unmasked layer two_sides",
    "kernels_flash_attn3": "longer_keys causal_window cap causal longer_queries unmasked layer two_sides",
    "flashinfer_prefill": "longer_keys causal_window cap matrix two_sides dilated first_keys",
    "xformers_attention": (
        "longer_keys causal_window matrix slopes sink causal longer_queries unmasked layer two_sides dilated "
        "first_keys"
    ),
    "transformer_engine": "longer_keys causal_window cap causal unmasked layer",
    "sageattention": "causal unmasked",
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


CASES = EQUAL | BATCHES | RECURRENT | WIDE


def asked(backend: Backend) -> Mapping[str, str]:
    """The cases that a backend is asked for."""
    if backend in DENSE:
        return EQUAL
    if "recurrent" not in backend.operations:
        return BATCHES
    return WIDE if backend.name == "flashinfer_gated_delta" else RECURRENT


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([str(PLUGIN)])


def outcome(registry: Registry, backend: str, word: str) -> TrialOutcome:
    operation = "recurrent" if word in RECURRENT | WIDE else "attention"
    text = CASES[word] if CASES[word].startswith("multihead/") else f"{operation}/{CASES[word]}"
    own, rule = registry.backends[backend], registry.rules[parse_case(text).rule]
    try:
        return judge(parse_point(text), backend, own.source, rule.source)
    finally:
        # Other tests ask what is installed.
        for name in modules():
            sys.modules.pop(name, None)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_judge_finds_our_calls_right(backend: Backend, registry: Registry) -> None:
    found = {word: outcome(registry, f"{backend.name}_{RIGHT}", word) for word in asked(backend)}
    assert {word: one for word, one in found.items() if one.status not in ("right", "declined")} == {}
    assert " ".join(word for word, one in found.items() if one.status == "right") == TAKEN[backend.name]


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, word) for name, wrong in MISTAKES.items() for word in wrong]
)
def test_the_judge_finds_mistakes_in_our_calls(name: str, mistake: str, registry: Registry) -> None:
    taken = TAKEN[name].split()
    assert any(outcome(registry, f"{name}_{mistake}", word).status == "wrong" for word in taken)


@pytest.mark.parametrize("name", PUBLISHED)
def test_stand_ins_have_the_published_signatures(name: str) -> None:
    assert arguments_of(FUNCTIONS[name]) == PUBLISHED[name].arguments


@pytest.mark.parametrize("name", PUBLISHED)
def test_installed_libraries_have_the_published_signatures(name: str) -> None:
    function = installed(PUBLISHED[name])
    if function is None:
        pytest.skip(f"{PUBLISHED[name].source} is not installed")
    assert arguments_of(function) == PUBLISHED[name].arguments
