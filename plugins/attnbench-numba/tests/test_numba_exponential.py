from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="Numba is not installed")

from attnbench_numba.exponential import make_exponential


@pytest.mark.parametrize(("dtype", "lowest"), [("float32", -87.3), ("float64", -708.3)])
def test_within_two_ulp(dtype: str, lowest: float) -> None:
    exponential = make_exponential(dtype)
    x = np.linspace(lowest, 0, 5001).astype(dtype)
    found = np.array([exponential(each) for each in x], dtype)
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(found - exact) / np.spacing(exact.astype(dtype))) < 2


def test_the_ends() -> None:
    exponential = make_exponential("float32")
    assert exponential(np.float32(0)) == 1
    assert exponential(np.float32(-np.inf)) == 0
    assert exponential(np.float32(-200)) == 0
    assert np.isnan(exponential(np.float32(np.nan)))
