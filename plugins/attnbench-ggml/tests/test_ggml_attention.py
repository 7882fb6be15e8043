"""ggml_flash_attn through attnbench's own check, right and with planted mistakes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import mistaken_attention
import pytest
from attnbench_ggml.attention import supports

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import load_wanted

needs_library = pytest.mark.skipif(find_spec("libggml") is None, reason="not installed: libggml-python")

LATENT = "scaled_dot@scale=0.0721688/B2-H4-Hkv1-Lq1-Lk70-D576-Dv512/bfloat16/kv=latent"
RIGHT = (
    "scaled_dot/B2-H4-Hkv2-Lq37-Lk70-D64/causal:lower_right+window:20/float32",
    "general/B1-H2-Lq65-Lk33-D13-Dv9/padding/bfloat16/threads2",
    "scaled_dot/B2-H4-Hkv2-Lq1-Lk600-D64-Dv32/bool:per_head/bfloat16",
    "scaled_dot/B1-H4-Hkv2-Lq70-Lk130-D64/float/float16",
    "alibi/B2-H4-Hkv2-Lq20-Lk50-D16/causal:lower_right+padding/float32",
    "alibi/B1-H6-Lq20-Lk50-D16/bfloat16",
    "alibi/B1-H2-Lq20-Lk50-D16/float/bfloat16",
    "softcap/B1-H4-Hkv1-Lq3-Lk50-D32/float32",
    "softcap/B1-H2-Lq70-Lk50-D32/causal/float32",
    "sinks/B1-H4-Hkv1-Lq70-Lk50-D32/causal/float32",
    "scaled_dot/B2-H4-Hkv2-Lq1-Lk300-D64-Dv32/padding/bfloat16/kv=q8_0",
    "sinks/B1-H4-Hkv2-Lq66-Lk90-D64/causal/bfloat16/kv=q4_0",
    "scaled_dot/B2-H4-Hkv2-Lq1-Lk300-D64/bfloat16/kv=q5_1",
    LATENT,
)
"""Each dtype and cache; one query, some, and enough for tiles; masks; sizes that are no multiple; threads."""

SHOWING = (
    LATENT,
    "alibi/H4-Lq20-Lk50-D16/float32",
    "softcap/H4-Lq3-Lk50-D32/float32",
    "sinks/H4-Hkv1-Lq3-Lk50-D32/float32",
    "scaled_dot/H4-Hkv2-Lq1-Lk90-D64/bfloat16/kv=q4_0",
    "scaled_dot/H4-Hkv2-Lq1-Lk90-D64/bfloat16/kv=q8_0",
)
"""Those that show the mistakes of mistaken_attention."""

REFUSED = {
    "scaled_dot/H2-Lq1-Lk300-D64/float16": "adds up in float16",
    "scaled_dot/H2-Lq70-Lk300-D64-Dv12/float16": "no multiple of 8",
    "softcap/H2-Lq70-Lk50-D64/float32": "caps keys that fill a tile",
    "scaled_dot/H2-Lq9-D64/float/float32": "takes what is added to scores in float16",
    "alibi/H4-Lq9-Lk4096-D64/float32": "takes what is added to scores in float16",
    "cosine/H1-Lq9-D64/bfloat16/kv=latent": "maps no encoded keys",
}


@needs_library
def test_right_by_the_oracle(tmp_path: Path) -> None:
    cases = [f"attention/{case}" for case in RIGHT]
    names = ["ggml_flash_attn", "ggml_flash_attn_blocks"]
    run = attnbench.run(cases, names, timed=False, out=tmp_path)
    found = {one.case: one.status for one in run.records if one.status != "unsupported"}
    # Blocks are read in a declared arithmetic, which is coarser than the dtype.
    assert found == {case: "inaccurate" if "kv=q" in case else "ok" for case in found}
    assert len(found) == len(RIGHT)


@needs_library
def test_a_large_bias_takes_no_bits_of_a_float_mask(tmp_path: Path) -> None:
    """Near -44 numbers of float16 are 1/32 apart."""
    case = "attention/alibi@slope=0.25/B1-H1-Lq177-Lk2-D1-Dv8/float/float16"
    (record,) = attnbench.run([case], ["ggml_flash_attn"], timed=False, out=tmp_path).records
    assert record.accuracy is not None
    assert record.accuracy.rms_error < 3 * record.accuracy.reference_rms


@needs_library
def test_planted_mistakes_are_found(tmp_path: Path) -> None:
    plugin = str(Path(__file__).with_name("mistaken_attention.py"))
    names = [backend.name for backend in mistaken_attention.attnbench_backends()]
    cases = [f"attention/{case}" for case in SHOWING]
    run = attnbench.run(cases, names, plugins=[plugin], timed=False, out=tmp_path)
    asked = [one for one in run.records if one.backend in names and one.status != "unsupported"]
    assert {(one.backend, one.status) for one in asked} == {(name, "mismatch") for name in names}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_operator_cannot_do_exactly_is_refused_in_words(case: str) -> None:
    asked = parse_case(f"attention/{case}")
    assert REFUSED[case] in (supports(asked, load_wanted([]).rule(asked.rule)) or "")
