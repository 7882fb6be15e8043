"""Arrays through anonymous memory come out with the same bits."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attnbench.ipc.messages import ArraySpec
from attnbench.ipc.shared_memory import mapped, pack, unpack

STORAGE = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


@given(st.sampled_from(sorted(STORAGE)), st.data())
def test_bits_are_kept(dtype: str, data: st.DataObject) -> None:
    shapes = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)
    arrays = data.draw(
        st.dictionaries(st.text(max_size=5), hnp.arrays(STORAGE[dtype], shapes), min_size=1, max_size=4)
    )
    fd, specs = pack(arrays, dtype)
    try:
        found = unpack(fd, specs)
    finally:
        os.close(fd)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_one_array_under_two_names_stays_one() -> None:
    x = np.ones(5)
    fd, specs = pack({"a": x, "b": x, "c": x.copy()}, "float64")
    found = unpack(fd, specs)
    os.close(fd)
    assert found["a"] is found["b"]
    assert found["a"] is not found["c"]


def test_what_is_mapped_is_the_memory_itself_and_writing_to_it_stays_here() -> None:
    fd, specs = pack({"a": np.zeros(3), "b": np.ones(2)}, "float64")
    first, second = mapped(fd, specs), mapped(fd, specs)
    first["a"][:] = 1
    assert second["a"].sum() == 0
    assert unpack(fd, specs)["a"].sum() == 0
    os.close(fd)
    # The descriptor may go before the arrays do.
    assert second["b"].tolist() == [1.0, 1.0]


def test_a_layout_that_does_not_fit_is_refused() -> None:
    fd, _ = pack({"a": np.zeros(3)}, "float64")
    with pytest.raises(ValueError, match="buffer"):
        unpack(fd, [ArraySpec("a", "float64", (4000,), 0)])
    with pytest.raises(ValueError, match="no storage for 'int7'"):
        unpack(fd, [ArraySpec("a", "int7", (1,), 0)])
    os.close(fd)
