from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import problem_of
from solved import magnified, solved

pytest.importorskip("numba", reason="Numba is not installed")

from attnbench_numba import NUMBA_ADDITIVE, NUMBA_TILED, additive, attnbench_backends
from attnbench_numba.exponential import make_exponential
from attnbench_numba.kernels import LANES, additive_scores, softmax_step

CASES = (
    "attention/additive/B2-H3-Lq33-Lk65-D13",
    "attention/additive/H4-Hkv2-Lq1-Lk300-D64/causal:lower_right",
    "attention/additive_sum/H2-L66-D16/causal",
    "attention/additive/B3-H2-L70-D8/padding",
    "attention/additive/H2-L70-D5/causal+float",
    "attention/additive_sum/H2-L70-D9/float64",
    "attention/additive/H1-Lq3-Lk1200-D4",
    "multihead/additive/H2-Lq20-Lk30-D8-E16-bias",
)


@pytest.fixture
def no_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("the exact way was taken")

    monkeypatch.setattr(additive, "by_tanh", refuse)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.usefixtures("no_tanh")
def test_the_check_finds_no_problem(text: str) -> None:
    assert problem_of(NUMBA_ADDITIVE, [solved(text)]) == ""


@pytest.mark.usefixtures("no_tanh")
def test_sums_far_beyond_where_tanh_is_one() -> None:
    assert problem_of(NUMBA_ADDITIVE, [magnified("attention/additive/H2-L66-D16", 10)]) == ""


def test_inputs_that_leave_the_range_go_the_exact_way(monkeypatch: pytest.MonkeyPatch) -> None:
    by_tanh, asked = additive.by_tanh, []
    monkeypatch.setattr(additive, "by_tanh", lambda *each: asked.append(1) or by_tanh(*each))
    assert problem_of(NUMBA_ADDITIVE, [magnified("attention/additive/H2-L66-D64", 60)]) == ""
    assert asked


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (-1, -1), (1, -1), (0.5, -0.5), (0, 0)])
def test_the_ends_of_the_range(dtype: str, a: float, b: float) -> None:
    """Of a and b as shares of the largest for which exponentials are taken."""
    real, largest = np.dtype(dtype).type, additive.LARGEST[dtype]
    scores = np.empty((1, 5), real)
    of_query, of_key = np.exp(np.array([2 * a * largest, 2 * b * largest], real))
    weights = np.array([1, 1, 1, 0], real)
    additive_scores(dtype)(np.full((1, 4), of_query), np.full((4, 5), of_key), weights, 0, scores)
    np.testing.assert_allclose(scores, np.full((1, 5), 3 * np.tanh((a + b) * largest)), atol=1e-6)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the instructions of x86-64")
def test_both_loops_are_vector_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    # Code from the cache has no assembly to show.
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for function, instruction in (
        (additive_scores.__wrapped__("float32"), "vdivps"),
        (softmax_step.__wrapped__("float32"), "vfmadd"),
    ):
        (assembly,) = function.inspect_asm().values()
        assert re.search(rf"{instruction}\S*\s+.*%[yz]mm", assembly), f"no {instruction} of vectors"


def test_where_nothing_can_be_written_each_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator"):
        caching.FunctionCache(compiled_exponential("float32").py_func)
    step = softmax_step.__wrapped__("float32")
    scores, largest, total, shrink = np.zeros((4, 1, 1), np.float32)[:, 0]
    largest[:] = -np.inf
    low, high = np.array([[0], [1]])
    step(scores[None], 0, low, high, largest, total, shrink, np.zeros(LANES, np.float32))
    assert (scores[0], largest[0], total[0]) == (1, 0, 1)


def compiled_exponential(dtype: str) -> Callable[[Any], Any]:
    import numba

    made: Callable[[Any], Any] = numba.njit(fastmath={"contract"}, error_model="numpy")(
        make_exponential(dtype)
    )
    return made


@pytest.mark.parametrize(("dtype", "lowest"), [("float32", -87.3), ("float64", -708.3)])
def test_the_exponential_is_within_two_ulp(dtype: str, lowest: float) -> None:
    exponential = compiled_exponential(dtype)
    x = np.linspace(lowest, 0, 5001).astype(dtype)
    found = np.array([exponential(each) for each in x], dtype)
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(found - exact) / np.spacing(exact.astype(dtype))) < 2


def test_the_ends_of_the_exponential() -> None:
    exponential = compiled_exponential("float32")
    assert exponential(np.float32(0)) == 1
    assert exponential(np.float32(-np.inf)) == 0
    assert exponential(np.float32(-200)) == 0
    assert np.isnan(exponential(np.float32(np.nan)))


def test_what_it_brings() -> None:
    assert tuple(attnbench_backends()) == (NUMBA_TILED, NUMBA_ADDITIVE)
    assert {backend.requires for backend in attnbench_backends()} == {("numba",)}


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, attnbench_numba; print(sorted({'numba', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
