"""Bands around inputs, mostly of NaN, checks that a call left them alone, and free memory full of NaN."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING

from attnbench.cases.layouts import reach_of
from attnbench.kit.dtypes import same_bits
from attnbench.worker.failures import WrongOutput

if TYPE_CHECKING:
    from torch import Tensor, dtype

    Given = tuple[Tensor, Tensor]


BAND_BYTES = 4096
"""The length of each band: more than the widest vectors and the padded rows of a block."""

_FEWEST_BLOCKS, _MOST_BLOCKS, _BLOCKS_BYTES = 4, 16, 1024**2
_MAPPED_FROM_BYTES = 128 * 1024
_ROOM_BYTES = 128
"""More than an allocator adds to a request: an alignment of 64 and the smallest block."""

_LARGEST_POISONED_BYTES = 256 * 1024**2


def ordinals() -> Iterator[str]:
    """Yield words for inputs, in their order."""
    return chain(("first", "second", "third"), (f"{number}th" for number in count(4)))


def between_bands(tensor: Tensor, strides: Sequence[int], *, counted: bool) -> tuple[Tensor, Tensor]:
    """Copy a tensor between bands that no call may touch; return the copy, and the buffer from band to band.

    Bands are NaN around floating numbers. Around integers each byte is 0x7F: NaN where bytes stand for float8
    or for a float16 scale, and as an index or a length far beyond any tensor.

    The storage of the copy begins and ends with it, as that of any tensor, and is aligned as the buffer is.
    counted: let it count writes in place, as tensors do that torch's inference mode did not make. strides: of
    the copy, with NaN in their gaps; integers keep their own.
    """
    import torch
    from torch.utils.dlpack import from_dlpack

    band = BAND_BYTES // tensor.element_size()
    strides = strides if tensor.is_floating_point() else tensor.contiguous().stride()
    reach = reach_of(tensor.shape, strides)
    with torch.inference_mode(not counted and torch.is_inference_mode_enabled()):
        buffer = torch.full(
            (band + reach + band,), _unread(tensor.dtype), dtype=tensor.dtype, device=tensor.device
        )
        inside: Tensor = from_dlpack(buffer[band:-band].as_strided(tensor.shape, strides))
        inside.copy_(tensor)
    return inside, buffer


def _unread(kind: dtype) -> float | int:
    """Return the number that bands are full of."""
    import torch

    if kind is torch.bool:
        return True
    return float("nan") if kind.is_floating_point else int.from_bytes(b"\x7f" * kind.itemsize, "little")


def _is_unread(band: Tensor) -> bool:
    """Return whether a band is as it was made."""
    number = _unread(band.dtype)
    return bool(band.isnan().all() if band.is_floating_point() else (band == number).all())


def side_by_side(
    tensors: Sequence[Tensor], *, guarded: bool, counted: bool
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Copy (B, H, L, D) tensors side by side, as one projection makes q, k and v; return views, and buffers.

    Those of one L share memory, in which the elements of a position lie together; a view begins where the one
    before has its first position. guarded: put bands of NaN around it. counted: as in :func:`between_bands`.
    """
    import torch

    band = BAND_BYTES // tensors[0].element_size() if guarded else 0
    rows: dict[int, int] = {}
    for x in tensors:
        rows[x.shape[2]] = rows.get(x.shape[2], 0) + x.shape[1] * x.shape[3]
    memory: dict[int, Tensor] = {}
    starts = dict.fromkeys(rows, band)
    views, buffers = [], []
    with torch.inference_mode(not counted and torch.is_inference_mode_enabled()):
        for x in tensors:
            (B, H, L, D), row = x.shape, rows[x.shape[2]]
            if L not in memory:
                memory[L] = x.new_full((band + B * L * row + band,), float("nan"))
            view = memory[L].as_strided((B, H, L, D), (L * row, D, row, 1), starts[L])
            views.append(view.copy_(x))
            starts[L] += H * D
            buffers.append(memory[L])
    return tuple(views), tuple(buffers) if guarded else ()


def keep(inputs: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
    """Return a copy of each input, and the count of writes to it (-1: not counted)."""
    return [(x.detach().clone(), _version(x)) for x in inputs]


def check_unchanged(inputs: Sequence[Tensor], before: Sequence[tuple[Tensor, int]]) -> None:
    """Raise :class:`WrongOutput` if a call changed bits of its inputs, or wrote to them at all."""
    for name, tensor, (copy, version) in zip(ordinals(), inputs, before, strict=False):
        if not same_bits(tensor, copy):
            raise WrongOutput(f"the call changed its {name} input", "inputs_changed")
        if _version(tensor) != version:
            raise WrongOutput(
                f"the call wrote to its {name} input, and put the values back", "inputs_changed"
            )


def empty_outputs(shapes: Sequence[tuple[Sequence[int], dtype]], device: str) -> tuple[Given, ...]:
    """Return tensors for a call to write, each with the buffer around it: full of NaN, or a large integer."""
    import torch

    made = []
    for shape, kind in shapes:
        nothing = torch.full(tuple(shape), _unread(kind), dtype=kind, device=device)
        made.append(between_bands(nothing, nothing.stride(), counted=True))
    return tuple(made)


def check_written(answer: object, given: Sequence[Given]) -> None:
    """Raise :class:`WrongOutput` unless a call returned the tensors that it was to write, and wrote only
    these."""
    returned = answer if isinstance(answer, tuple) else (answer,)
    if len(returned) != len(given) or any(x is not out for x, (out, _) in zip(returned, given, strict=True)):
        raise WrongOutput("the call was given out= and returned another tensor", "output_form")
    for _, buffer in given:
        if not _bands_are_whole(buffer):
            raise WrongOutput("the call wrote outside the tensor that it was given as out=", "bounds")


def check_bands(buffers: Sequence[Tensor]) -> None:
    """Raise :class:`WrongOutput` if a call wrote before or behind an input."""
    for name, buffer in zip(ordinals(), buffers, strict=False):
        if not _bands_are_whole(buffer):
            raise WrongOutput(f"the call wrote outside its {name} input", "bounds")


def _bands_are_whole(buffer: Tensor) -> bool:
    band = BAND_BYTES // buffer.element_size()
    return _is_unread(buffer[:band]) and _is_unread(buffer[-band:])


def poison(output_bytes: int, device: str) -> object:
    """Fill memory with NaN and free it, in blocks of an output's size, where the next call will find it.

    Keep the returned object until the call is over: without it the freed blocks may go back to the system,
    which hands out zeros. An allocator that aligns asks for a little more than it keeps, so a freed block may
    be too small for the next of its own size: blocks with room to spare follow those of the exact size.
    """
    import torch

    blocks = max(_FEWEST_BLOCKS, min(_MOST_BLOCKS, _BLOCKS_BYTES // output_bytes))
    if blocks * output_bytes > _LARGEST_POISONED_BYTES:
        return None
    mapped, larger = output_bytes >= _MAPPED_FROM_BYTES, output_bytes + _ROOM_BYTES
    sizes = [larger] * blocks if mapped else [output_bytes] * blocks + [larger] * blocks
    plug = None
    # Bytes of all ones are NaN in every dtype. If memory is short, nothing is filled.
    with contextlib.suppress(RuntimeError, MemoryError):
        # The first round teaches the allocator that such blocks are worth keeping; small ones always are.
        for _ in range(2 if mapped else 1):
            filled = [torch.full((size,), 255, dtype=torch.uint8, device=device) for size in sizes]
            # As large, so that it lies behind them; filled, since the second round frees the first one's.
            plug = torch.full((larger,), 255, dtype=torch.uint8, device=device)
            del filled
    return plug


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
