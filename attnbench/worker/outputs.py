"""Tensors in and out: storage to tensors, and whether what a call returned is an output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.ipc.shared_memory import Stored
from attnbench.kit.dtypes import case_dtype
from attnbench.types.backend import Layout
from attnbench.types.case import Case
from attnbench.types.checks import Check
from attnbench.types.operation import Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class WrongOutput(Exception):  # noqa: N818
    """A call did not give what the case asks for, or changed what it must leave alone.

    check: the name of the check that it failed.
    """

    def __init__(self, reason: str, check: Check = "output_form") -> None:
        super().__init__(reason)
        self.check: Check = check


def check_output(output: Any, case: Case, shape: Shape, layout: Layout) -> None:
    """Raise :class:`WrongOutput` unless it is a tensor of the case's shape (in BHLD), dtype and device.

    Its elements must be in memory, each in a place of its own: nothing lazy, sparse or expanded.
    """
    import torch

    if type(output) is not torch.Tensor:
        raise WrongOutput(f"the output is a {type(output).__name__}, not a torch.Tensor")
    expected = (shape[0], shape[2], shape[1], shape[3]) if exchanged(layout, shape) else shape
    if tuple(output.shape) != expected:
        raise WrongOutput(f"the output has shape {tuple(output.shape)}; {expected} is asked for")
    if output.dtype != case_dtype(case):
        raise WrongOutput(f"the output has dtype {_word(output.dtype)}; {case.dtype} is asked for")
    if output.device.type != case.device:
        raise WrongOutput(f"the output is on {output.device}; {case.device} is asked for")
    if output.layout != torch.strided:
        raise WrongOutput(f"the output has layout {_word(output.layout)}; a dense tensor is asked for")
    if output.is_neg() or output.is_conj():
        raise WrongOutput("the output is a lazy view: its memory does not hold its values")
    strides = output.stride()
    reaches = (output.storage_offset() + reach_of(expected, strides)) * output.element_size()
    if output.data_ptr() == 0 or output.untyped_storage().nbytes() < reaches:
        raise WrongOutput("the output has no memory that holds its elements")
    if not each_has_a_place(expected, strides):
        raise WrongOutput(f"several elements of the output share one place in memory: strides {strides}")


def exchanged(layout: Layout, shape: Shape) -> bool:
    """Return whether an output comes with axes 1 and 2 exchanged."""
    return layout == "BLHD" and len(shape) == 4


def each_has_a_place(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether no two elements are at one place. Sizes are 1 or more, strides 0 or more."""
    axes = sorted(
        (stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1
    )  # the closest first
    reach = 1
    for stride, size in axes:
        if stride < reach:
            break
        reach += stride * (size - 1)
    else:
        return True
    if any(stride == 0 for stride, _ in axes):
        return False
    # Axes that interleave may still miss each other, as 0, 3 and 0, 2, 4 do.
    places = np.zeros(1, np.int64)
    for stride, size in axes:
        places = (places[:, None] + stride * np.arange(size)).ravel()
    return np.unique(places).size == places.size


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """Return whether two dense tensors on one device overlap, from first to last element."""
    (begin, end), (other_begin, other_end) = _addresses(a), _addresses(b)
    return a.device == b.device and begin < other_end and other_begin < end


def check_own_memory(output: Tensor, others: Iterable[tuple[str, Tensor]]) -> None:
    """Raise :class:`WrongOutput` where an output has memory in common with one of the others, by its words.

    Those must be alive: freed memory is rightly used again.
    """
    for words, other in others:
        if shares_memory(output, other):
            raise WrongOutput(f"the output shares memory with {words}", "aliasing")


def _addresses(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    return begin, begin + reach_of(tensor.shape, tensor.stride()) * tensor.element_size()


def reach_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last in memory, both counted."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _word(thing: torch.dtype | torch.layout) -> str:
    return str(thing).removeprefix("torch.")


def as_tensor(stored: Stored, case: Case) -> Tensor:
    """A tensor of the case's dtype on the same memory; bfloat16 comes as uint16."""
    import torch

    tensor = torch.from_numpy(stored)
    # Integers and booleans are as they are.
    bits = case.dtype == "bfloat16" and stored.dtype.itemsize == 2
    return tensor.view(torch.bfloat16) if bits else tensor


def to_tensor(stored: Stored, case: Case) -> Tensor:
    """A tensor of the case's dtype on its device with the same bits."""
    return as_tensor(stored, case).to(case.device, copy=True)


def to_tensors(stored: Mapping[str, Stored], case: Case) -> dict[str, Tensor]:
    """The same for several by name; one array under two names gives one tensor."""
    made = {id(array): to_tensor(array, case) for array in {id(a): a for a in stored.values()}.values()}
    return {name: made[id(array)] for name, array in stored.items()}


def in_layout(tensor: Tensor, layout: Layout) -> Tensor:
    """A (B, H, L, D) tensor as the backend wants it; other ranks have no heads and stay."""
    return seen_in_layout(tensor, layout).contiguous()


def seen_in_layout(tensor: Tensor, layout: Layout) -> Tensor:
    """As :func:`in_layout` on the same memory, not contiguous where axes are exchanged."""
    return tensor if layout == "BHLD" or tensor.dim() != 4 else tensor.transpose(1, 2)


def stored_output(output: Any, case: Case, shape: Shape, layout: Layout) -> Stored:
    """An output as it is stored, in BHLD; its own memory where that is contiguous there.

    Raises:
        WrongOutput: it isn't what the case asks for; see :func:`~attnbench.worker.outputs.check_output`.
    """
    check_output(output, case, shape, layout)
    return as_stored(output.transpose(1, 2) if exchanged(layout, shape) else output, case)


def as_stored(tensor: Tensor, case: Case) -> Stored:
    """A tensor of the case's dtype as it is stored; its own memory where that is contiguous on the CPU."""
    import torch

    plain = tensor.detach().contiguous().cpu()
    if case.dtype == "bfloat16":
        plain = plain.view(torch.int16)
    data: Stored = plain.numpy()
    return data
