"""The judge compares what our calls give, by stand-ins with the libraries' signatures; mistakes are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from library_modules import FUNCTIONS
from published import PUBLISHED, arguments_of, installed
from stood_in import MISTAKES, RIGHT

import attnbench
from attnbench.types.status import MEANING

PLUGIN = Path(__file__).parent / "stood_in.py"

CASES = (
    "attention/scaled_dot@scale=0.3/H4-Hkv2-Lq40-Lk72-D64/causal:lower_right/bfloat16",
    "attention/scaled_dot@scale=0.3/H2-L40-D64/causal+window:9/float16",
    "attention/softcap/H2-Lq40-Lk64-D64/window:9/bfloat16",
    "attention/scaled_dot/H3-L40-D64/bool/bfloat16",
    "attention/scaled_dot/H3-L40-D64/causal+document:9,31+prefix:4/bfloat16",
    "attention/alibi/H2-L40-D64/causal/bfloat16",
    "attention/sinks/H2-L40-D64/causal/bfloat16",
    "attention/scaled_dot@scale=0.3/B2-H2-L40-D64/causal/bfloat16",
    "attention/scaled_dot/B2-H2-Lq40-Lk24-D64/causal:lower_right/bfloat16",
    "attention/dot/B2-H4-Hkv2-Lq33-Lk72-D64/bfloat16",
    "multihead/cosine/B2-H2-L40-D64-E40/causal/bfloat16/both",
)
TAKEN = {
    "flash_attn": 8,
    "flash_attn_3": 7,
    "flash_attn_4": 7,
    "kernels_flash_attn3": 7,
    "flashinfer_prefill": 5,
    "xformers_attention": 9,
    "transformer_engine": 6,
    "sageattention": 2,
}
"""How many of these cases each backend takes."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory):
    """The records of all right backends on all cases, and of all mistakes."""
    names = [f"{backend}_{word}" for backend in TAKEN for word in (RIGHT, *MISTAKES[backend])]
    return attnbench.run(
        CASES,
        names,
        plugins=str(PLUGIN),
        timed=False,
        accuracy="float8_e4m3",
        out=tmp_path_factory.mktemp("run"),
    ).records


@pytest.mark.parametrize("name", TAKEN)
def test_the_judge_finds_our_calls_right(name: str, records) -> None:
    own = [record for record in records if record.backend == f"{name}_{RIGHT}"]
    refused = [record for record in own if MEANING[record.status].declined]
    assert [f"{r.case}: {r.status}, {r.reason}" for r in own if not (r.passed or r in refused)] == []
    assert len(own) == len(CASES)
    assert len(own) - len(refused) == TAKEN[name], [record.reason for record in refused]


@pytest.mark.parametrize(("name", "mistake"), [(name, word) for name in TAKEN for word in MISTAKES[name]])
def test_the_judge_finds_mistakes_in_our_calls(name: str, mistake: str, records) -> None:
    own = [record for record in records if record.backend == f"{name}_{mistake}"]
    assert [r.case for r in own if not (r.passed or MEANING[r.status].declined)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_stand_ins_have_the_published_signatures(name: str) -> None:
    assert arguments_of(FUNCTIONS[name]) == PUBLISHED[name].arguments


@pytest.mark.parametrize("name", PUBLISHED)
def test_installed_libraries_have_the_published_signatures(name: str) -> None:
    function = installed(PUBLISHED[name])
    if function is None:
        pytest.skip(f"{PUBLISHED[name].source} is not installed")
    assert arguments_of(function) == PUBLISHED[name].arguments
