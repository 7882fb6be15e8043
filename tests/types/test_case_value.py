"""Cases and masks as values: what can't exist is refused in words, what follows from them is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.types.case import Case, Layer
from attnbench.types.errors import BadCase
from attnbench.types.mask import EVERYTHING, Mask

CASE = Case("attention", "dot", B=2, H=6, Hkv=3, Lq=4, Lk=5, D=8, Dv=7)
LAYER = replace(CASE, operation="multihead", layer=Layer(E=10), Lk=4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operation": "atention"}, "no operation 'atention'; did you mean 'attention'?"),
        ({"dtype": "float8"}, "no dtype 'float8'; did you mean 'float64'?"),
        ({"device": "mps"}, "no device 'mps'; there are cpu, cuda"),
        ({"pass_": "backwards"}, "no pass 'backwards'; did you mean 'backward'?"),
        ({"cache": "cold"}, "no cache mode 'cold'; there are hot, rotating"),
        ({"B": 0}, "B = 0: sizes are 1 or more"),
        ({"Lk": -3}, "Lk = -3: sizes are 1 or more"),
        ({"threads": 0}, "threads = 0: sizes are 1 or more"),
        ({"seed": -1}, "seed = -1: a seed is "),
        ({"D": 8.0}, "D = 8.0: give a whole number"),
        ({"D": True}, "D = True: give a whole number"),
        ({"Dv": np.int64(8)}, "Dv = np.int64(8): give a whole number"),
        ({"seed": "7"}, "seed = '7': give a whole number"),
        ({"Hkv": 4}, "H = 6 is not a multiple of Hkv = 4: "
         "each key/value head serves the same number of query heads"),
        ({"Hkv": 12}, "H = 6 is not a multiple of Hkv = 12"),
        ({"operation": "multihead"}, "multihead needs a model width E"),
        ({"layer": Layer(E=8)}, "attention has no model width E: that belongs to multihead"),
        ({"mask": Mask(padding=(1, 2, 3))}, "padding gives 3 lengths for a batch of 2: "
         "give one length for each batch element"),
        ({"mask": Mask(padding=())}, "padding gives 0 lengths for a batch of 2: "),
        ({"mask": Mask(padding=(0, 6))}, "padding length 6 is more than Lk = 5"),
        ({"operation": "multihead", "layer": Layer(E=0)}, "E = 0: sizes are 1 or more"),
        ({"seed": 2**63}, f"seed = {2**63}: a seed is {2**63 - 1} or less"),
        ({"Lk": 2**31}, f"Lk = {2**31}: sizes are {2**31 - 1} or less"),
        ({"B": 10**30}, f"B = {10**30}: sizes are {2**31 - 1} or less"),
        ({"dropout": 1.0}, "dropout = 1.0: give a probability from 0 to less than 1"),
        ({"dropout": -0.1}, "dropout = -0.1: give a probability"),
        ({"dropout": float("nan")}, "dropout = nan: give a probability"),
        ({"dropout": True}, "dropout = True: give a probability"),
        ({"dropout": 0.1, "pass_": "backward"}, "dropout = 0.1 works in the forward pass only"),
    ],
)  # fmt: skip
def test_what_can_not_exist_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCase) as refusal:
        replace(CASE, **changes)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"window": 0}, "window of 0 keys: give at least 1"),
        ({"padding": (3, -1)}, "padding lengths [3, -1]: a length is 0 or more"),
    ],
)
def test_masks_that_contradict_themselves(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCase) as refusal:
        Mask(**fields)
    assert str(refusal.value) == words


@pytest.mark.parametrize(
    ("changes", "is_self"),
    [
        ({}, True),
        ({"Lk": 5}, False),
        ({"layer": Layer(E=10, cross=True)}, False),
        ({"layer": Layer(E=10, bias=True, out=False)}, True),
        ({"operation": "attention", "layer": None}, False),
    ],
)
def test_who_attends_to_itself(changes: dict[str, Any], is_self: bool) -> None:
    assert replace(LAYER, **changes).is_self_attention is is_self


@given(st.integers(1, 99), st.integers(1, 99), st.sampled_from([None, "upper_left", "lower_right"]))
def test_the_last_query_stands_at_the_last_key_unless_the_first_stands_at_the_first(
    Lq: int, Lk: int, causal: Any
) -> None:
    case = replace(CASE, Lq=Lq, Lk=Lk, mask=Mask(causal=causal))
    first, last = case.query_offset, case.query_offset + Lq - 1
    assert first == 0 if causal == "upper_left" else last == Lk - 1


def test_a_mask_is_none_or_only_causal_by_its_parts_alone() -> None:
    assert EVERYTHING.is_none
    assert not EVERYTHING.is_only_causal
    parts: list[dict[str, Any]] = [
        {"window": 3}, {"padding": "seeded"}, {"padding": (1,)}, {"explicit": "bool"}, {"explicit": "float"},
    ]  # fmt: skip
    for align in ("upper_left", "lower_right"):
        assert Mask(causal=align).is_only_causal
        assert not Mask(causal=align).is_none
        assert not any(Mask(causal=align, **part).is_only_causal for part in parts)
    assert not any(Mask(**part).is_none or Mask(**part).is_only_causal for part in parts)


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float64", 64), ("float32", 32), ("bfloat16", 16), ("float16", 16)]
)
def test_bytes_of_an_element_are_those_of_torch(dtype: Any, bits: int) -> None:
    import torch

    assert replace(CASE, dtype=dtype).item_bytes * 8 == bits == torch.finfo(getattr(torch, dtype)).bits
