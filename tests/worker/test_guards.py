"""Bands around inputs: what a call reads or writes beside a tensor shows."""

from __future__ import annotations

import ctypes

import pytest
import torch

from attnbench.worker.failures import WrongOutput
from attnbench.worker.guards import BAND_BYTES, between_bands, check_bands


@pytest.mark.parametrize("kind", ["bfloat16", "float32", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("place", ["before", "behind"])
def test_what_lies_beside_an_input_is_guarded_whatever_its_kind(kind: str, place: str) -> None:
    given = torch.arange(6).reshape(2, 3).to(getattr(torch, kind))
    inside, buffer = between_bands(given, given.stride(), counted=True)
    assert torch.equal(inside, given)
    assert inside.stride() == given.stride()
    check_bands([buffer, buffer])
    size = inside.element_size()
    ctypes.memset(inside.data_ptr() + (-size if place == "before" else inside.nbytes), 0, size)
    with pytest.raises(WrongOutput, match="the call wrote outside its second input"):
        check_bands([between_bands(given, given.stride(), counted=True)[1], buffer])


def test_codes_that_are_read_beside_a_cache_are_no_numbers() -> None:
    codes = torch.zeros(34, dtype=torch.uint8)
    _, buffer = between_bands(codes, codes.stride(), counted=True)
    behind = buffer[-BAND_BYTES:]
    # As a cache in fp8 reads it, and the scale of a block of q8_0.
    assert behind.view(torch.float8_e4m3fn).float().isnan().all()
    assert behind.view(torch.float8_e5m2).float().isnan().all()
    assert behind.view(torch.float16).isnan().all()
