"""Cases and masks as values: what can't exist is refused in words, what follows from them is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnbench.types.case import Case, Layer
from attnbench.types.errors import BadCase
from attnbench.types.mask import EVERYTHING, Mask

CASE = Case("attention", "dot", B=2, H=6, Hkv=3, Lq=4, Lk=5, D=8, Dv=7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operation": "atention"}, "no operation 'atention'; did you mean 'attention'?"),
        ({"device": "mps"}, "no device 'mps'; there are cpu, cuda"),
        ({"pass_": "backwards"}, "no pass 'backwards'; did you mean 'backward'?"),
        ({"cache": "cold"}, "no cache mode 'cold'; there are hot, rotating"),
        ({"B": 0}, "B = 0: sizes are 1 or more"),
        ({"threads": 0}, "threads = 0: sizes are 1 or more"),
        ({"seed": -1}, "seed = -1: a seed is "),
        ({"D": 8.0}, "D = 8.0: give a whole number"),
        ({"D": True}, "D = True: give a whole number"),
        ({"Dv": np.int64(8)}, "Dv = np.int64(8): give a whole number"),
        ({"seed": "7"}, "seed = '7': give a whole number"),
        ({"mask": Mask(padding=(1, 2, 3))}, "padding gives 3 lengths for a batch of 2: "
         "give one length for each batch element"),
        ({"mask": Mask(padding=())}, "padding gives 0 lengths for a batch of 2: "),
        ({"operation": "multihead", "layer": Layer(E=0)}, "E = 0: sizes are 1 or more"),
        ({"seed": 2**63}, f"seed = {2**63}: a seed is {2**63 - 1} or less"),
        ({"B": 10**30}, f"B = {10**30}: sizes are {2**31 - 1} or less"),
        ({"mask": "causal"}, "mask = 'causal': give a Mask, as "),
        ({"mask": None}, "mask = None: give a Mask, as "),
        ({"dropout": 1.0}, "dropout = 1.0: give a probability from 0 to less than 1"),
        ({"dropout": -0.1}, "dropout = -0.1: give a probability"),
        ({"dropout": float("nan")}, "dropout = nan: give a probability"),
        ({"dropout": True}, "dropout = True: give a probability"),
    ],
)  # fmt: skip
def test_what_can_not_exist_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCase) as refusal:
        replace(CASE, **changes)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"padding": (3, -1)}, "padding lengths [3, -1]: a length is 0 or more"),
        ({"padding": (3, 2.5)}, "padding length = 2.5: give a whole number"),
        ({"padding": "random"}, "padding = 'random': give 'seeded', or a tuple of lengths"),
        ({"padding": [3, 1]}, "padding = [3, 1]: give 'seeded', or a tuple of lengths"),
        ({"causal": "lower"}, "no causal alignment 'lower'; there are upper_left, lower_right"),
        ({"causal": True}, "no causal alignment True; there are upper_left, lower_right"),
        ({"explicit": "boolean"}, "no explicit mask 'boolean'; there are bool, float"),
        ({"window": "3"}, "window = '3': give a whole number"),
        ({"window": 2.5}, "window = 2.5: give a whole number"),
        ({"window": 0}, "window of 0 keys: give at least 1"),
    ],
)
def test_masks_that_contradict_themselves(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCase) as refusal:
        Mask(**fields)
    assert str(refusal.value) == words


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
