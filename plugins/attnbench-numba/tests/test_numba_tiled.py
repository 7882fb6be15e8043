from __future__ import annotations

import pytest
from judging import problem_of
from solved import magnified, solved
from test_structured_masks import DEFINED

pytest.importorskip("numba", reason="Numba is not installed")

from attnbench_numba import NUMBA_ADDITIVE, NUMBA_TILED

from attnbench import Backend

CASES = (
    # The drawn mask keeps all of its pairs.
    "attention/scaled_dot/B1-H1-Lq1-Lk2-D1/bool/float32/cpu/forward/seed880760764",
    "attention/scaled_dot/B2-H3-Lq33-Lk65-D13",
    "attention/scaled_dot/H4-Hkv2-Lq1-Lk600-D64/causal:lower_right",
    "attention/scaled_dot/H2-L300-D40-Dv24/causal",
    "attention/dot/B3-H2-L129-D16/padding",
    "attention/scaled_dot/B2-H2-Lq140-Lk600-D8/window:9",
    "attention/scaled_dot/H2-Lq40-Lk17-D8/causal:lower_right",
    "attention/scaled_dot/B2-H2-L70-D16/bool",
    "attention/scaled_dot/B2-H2-L70-D16/causal+float",
    "attention/general/H4-Hkv2-Lq64-Lk128-D32/causal:lower_right",
    "attention/cosine/H2-L66-D16",
    "attention/alibi/H3-L300-D16/causal",
    "attention/softcap/H2-L66-D16",
    "attention/sinks/H4-Hkv2-L300-D16/causal",
    "attention/scaled_dot/H2-L130-D16/causal+padding/float64",
    "multihead/scaled_dot/B2-H4-Lq20-Lk30-D16-E48-bias-cross",
)


@pytest.mark.parametrize("text", CASES)
def test_the_check_finds_no_problem(text: str) -> None:
    assert problem_of(NUMBA_TILED, [solved(text)]) == ""


@pytest.mark.parametrize(("backend", "rule"), [(NUMBA_TILED, "sinks"), (NUMBA_ADDITIVE, "additive")])
def test_it_computes_each_word_of_a_mask(backend: Backend, rule: str) -> None:
    for mask in DEFINED:
        assert problem_of(backend, [solved(f"attention/{rule}/B2-H4-Hkv2-Lq9-Lk7-D8/{mask}")]) == "", mask


def test_scores_of_many_hundreds() -> None:
    assert problem_of(NUMBA_TILED, [magnified("attention/dot/H2-Lq20-Lk600-D16", 20)]) == ""


def test_rows_without_a_key_are_zero() -> None:
    out = solved("attention/scaled_dot/H2-Lq40-Lk17-D8/causal:lower_right").run(NUMBA_TILED)
    assert float(out[:, :, :23].abs().max()) == 0
    assert float(out[:, :, 23:].abs().min()) > 0
