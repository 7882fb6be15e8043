"""Inputs between bands of NaN, whether a call left them alone, and free memory full of NaN."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from attnbench.worker.outputs import WrongOutput, reach_of

if TYPE_CHECKING:
    from torch import Tensor


BAND_BYTES = 4096
"""Of NaN on either side of an input: more than the widest vectors and the padded rows of a block."""

_ORDINALS = ("first", "second", "third")
_FEWEST_BLOCKS, _MOST_BLOCKS, _BLOCKS_BYTES = 4, 16, 1024**2
_MAPPED_FROM_BYTES = 128 * 1024
_ROOM_BYTES = 128
"""More than an allocator asks for beside what it keeps: an alignment of 64 and the smallest block."""

_LARGEST_POISONED_BYTES = 256 * 1024**2


def ordinals() -> Iterator[str]:
    """Yield words for inputs, in their order."""
    yield from _ORDINALS
    yield from (f"{number}th" for number in count(len(_ORDINALS) + 1))


def between_bands(
    tensor: Tensor, *, counted: bool, strides: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """A copy with NaN before and behind it; return it, and the buffer from band to band.

    To whoever gets the copy its memory looks like any other: its storage begins and ends with it. It is
    aligned as the buffer is. counted: whether it counts what is written to it in place, as tensors do that
    were not made in torch's inference mode. strides: of the copy, with NaN where they leave gaps; contiguous
    where None.
    """
    import torch
    from torch.utils.dlpack import from_dlpack

    band = BAND_BYTES // tensor.element_size()
    if not tensor.is_floating_point():
        # No integer shows in an output if it is read, as NaN does.
        whole = tensor.clone()
        return whole, whole
    strides = tensor.contiguous().stride() if strides is None else strides
    reach = reach_of(tensor.shape, strides)
    with torch.inference_mode(not counted and torch.is_inference_mode_enabled()):
        buffer = torch.full((band + reach + band,), float("nan"), dtype=tensor.dtype, device=tensor.device)
        inside: Tensor = from_dlpack(buffer[band:-band].as_strided(tensor.shape, strides))
        inside.copy_(tensor)
    return inside, buffer


@dataclass(frozen=True)
class Kept:
    """Inputs before a call: their bits, and how often each had been written to (-1: not counted)."""

    copies: tuple[Tensor, ...]
    versions: tuple[int, ...]


def keep(inputs: Sequence[Tensor]) -> Kept:
    """Remember inputs as they are."""
    return Kept(tuple(x.detach().clone() for x in inputs), tuple(map(_version, inputs)))


def check_unchanged(inputs: Sequence[Tensor], before: Kept) -> None:
    """Raise :class:`WrongOutput` where a call has changed bits of its inputs, or written to them at all."""
    for name, tensor, copy, version in zip(ordinals(), inputs, before.copies, before.versions, strict=False):
        if not same_bits(tensor, copy):
            raise WrongOutput(f"the call changed its {name} input", "inputs_changed")
        if _version(tensor) != version:
            raise WrongOutput(
                f"the call wrote to its {name} input, and put the values back", "inputs_changed"
            )


def check_bands(buffers: Sequence[Tensor]) -> None:
    """Raise :class:`WrongOutput` where a call has written before or behind an input."""
    for name, buffer in zip(ordinals(), buffers, strict=False):
        if not buffer.is_floating_point():
            continue
        band = BAND_BYTES // buffer.element_size()
        if not (bool(buffer[:band].isnan().all()) and bool(buffer[-band:].isnan().all())):
            raise WrongOutput(f"the call wrote outside its {name} input", "bounds")


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of one dtype and shape have the same bits."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.detach().view(whole), b.detach().view(whole))


def poison(output_bytes: int, device: str) -> object:
    """Fill memory with NaN and free it, in blocks of an output's size, where the next call will find it.

    Keep the returned object until the call is over: it keeps the freed blocks from going back to the
    system, which would hand out zeros. Blocks that the system maps one by one do that anyway.
    An allocator that aligns asks for a little more than it keeps, and what it gives back may be taken by
    others, so that a block which was freed is too small for the next of its own size. So after blocks of the
    size, which take the places that would be found first, there are some with room to spare.
    """
    import torch

    blocks = max(_FEWEST_BLOCKS, min(_MOST_BLOCKS, _BLOCKS_BYTES // output_bytes))
    if blocks * output_bytes > _LARGEST_POISONED_BYTES:
        return None
    mapped, larger = output_bytes >= _MAPPED_FROM_BYTES, output_bytes + _ROOM_BYTES
    sizes = [larger] * blocks if mapped else [output_bytes] * blocks + [larger] * blocks
    plug = None
    # Bytes of all ones are NaN in every dtype. Where memory is short, nothing is poisoned.
    with contextlib.suppress(RuntimeError, MemoryError):
        # The first round teaches the allocator that such blocks are worth keeping; small ones always are.
        for _ in range(2 if mapped else 1):
            filled = [torch.full((size,), 255, dtype=torch.uint8, device=device) for size in sizes]
            # As large, so that it lies behind them; filled, for the second round frees the first's.
            plug = torch.full((larger,), 255, dtype=torch.uint8, device=device)
            del filled
    return plug


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
