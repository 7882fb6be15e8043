"""GroupQueryAttention through attnbench's own check, from numbers and from codes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import mistaken_caches
import pytest
from attnbench_onnxruntime.group_query_attention import supports

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import load_wanted

MISSING = [name for name in ("onnxruntime", "onnx") if find_spec(name) is None]
needs_library = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

NUMBERS, CODES = "onnxruntime_gqa", "onnxruntime_gqa_codes"
RIGHT = {
    "scaled_dot/B3-H4-Hkv2-Lq1-Lk33-D16/padding/float16": NUMBERS,
    "general/B1-H4-Hkv2-Lq20-Lk33-D16/causal/float32": NUMBERS,
    "sinks/B1-H4-Hkv1-Lq7-Lk70-D32/causal:lower_right/float32": NUMBERS,
    "scaled_dot/B3-H4-Hkv2-Lq1-Lk90-D64/padding/float32/kv=int8:tensor/threads2": CODES,
    "alibi/B1-H4-Hkv2-Lq9-Lk30-D64/float32/kv=int8:head": CODES,
    "scaled_dot@scale=0.3/B1-H4-Hkv2-Lq5-Lk70-D64/causal:lower_right/float16/kv=int8:channel": CODES,
    "scaled_dot/B3-H4-Hkv2-Lq1-Lk90-D64/float32/kv=int4:tensor": CODES,
    "softcap/B1-H4-Hkv2-Lq1-Lk70-D64/float16/kv=int4:head": CODES,
    "sinks/B1-H4-Hkv1-Lq7-Lk70-D32/window:9/bfloat16/kv=int4:channel": CODES,
}
"""Several sequences of one query, or several queries; each width and grain; masks, a bias, a cap, sinks."""

REFUSED = {
    "scaled_dot/H2-Lq1-Lk40-D64-Dv32/float32": "D and Dv must be equal",
    "scaled_dot/H2-Lq1-Lk40-D12/float32": "a multiple of 8 features",
    "scaled_dot/H2-Lq9-Lk8-D16/float32": "no more queries than keys",
    "scaled_dot/B2-H2-Lq9-Lk40-D16/float32": "one query of each sequence",
    "scaled_dot/H2-Lq1-Lk40-D64/float32/kv=int8:token": "not for each token",
    "scaled_dot/B2-H2-Lq1-Lk40-D64/float32/kv=int8:channel": "the same scales for all sequences",
    "cosine/H2-Lq1-Lk40-D64/float32/kv=int8": "maps no encoded keys",
}


@needs_library
def test_right_by_the_oracle(tmp_path: Path) -> None:
    run = attnbench.run([f"attention/{case}" for case in RIGHT], [NUMBERS, CODES], timed=False, out=tmp_path)
    asked = [one for one in run.records if one.status != "unsupported"]
    assert [(one.status, one.reason) for one in asked] == [("ok", "")] * len(RIGHT)
    assert sorted(one.backend for one in asked) == sorted(RIGHT.values())


@needs_library
def test_planted_mistakes_are_found(tmp_path: Path) -> None:
    plugin = str(Path(__file__).with_name("mistaken_caches.py"))
    names = [backend.name for backend in mistaken_caches.attnbench_backends()]
    case = "attention/scaled_dot/H4-Hkv2-Lq1-Lk90-D64/float32/kv=int4:head"
    run = attnbench.run([case], names, plugins=[plugin], timed=False, out=tmp_path)
    assert {one.backend: one.status for one in run.records if one.backend in names} == dict.fromkeys(
        names, "mismatch"
    )


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_operator_cannot_do_is_refused_in_words(case: str) -> None:
    asked = parse_case(f"attention/{case}")
    assert REFUSED[case] in (supports(asked, load_wanted([]).rule(asked.rule)) or "")
