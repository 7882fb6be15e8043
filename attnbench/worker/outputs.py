"""Tensors in and out: storage to tensors, and the check of an output's form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnbench.cases.layouts import reach_of
from attnbench.ipc.shared_memory import Stored
from attnbench.kit.dtypes import case_dtype
from attnbench.types.backend import Layout
from attnbench.types.case import Case
from attnbench.types.operation import Kind, Shape
from attnbench.worker.failures import WrongOutput

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def check_output(
    output: Any,
    case: Case,
    shape: Shape,
    layout: Layout,
    kind: Kind = "float",
    what: str = "the output",
) -> None:
    """Raise :class:`WrongOutput` unless it is a tensor of the shape (in BHLD), kind and device.

    what: names it in messages. Each element must have a place of its own in memory: lazy, sparse and expanded
    tensors fail.
    """
    import torch

    if type(output) is not torch.Tensor:
        raise WrongOutput(f"{what} is a {type(output).__name__}, not a torch.Tensor")
    expected = (shape[0], shape[2], shape[1], shape[3]) if exchanged(layout, shape) else shape
    if tuple(output.shape) != expected:
        raise WrongOutput(f"{what} has shape {tuple(output.shape)}; {expected} is asked for")
    dtype = case_dtype(case) if kind == "float" else getattr(torch, kind)
    if output.dtype != dtype:
        raise WrongOutput(f"{what} has dtype {_word(output.dtype)}; {_word(dtype)} is asked for")
    if output.device.type != case.device:
        raise WrongOutput(f"{what} is on {output.device}; {case.device} is asked for")
    if output.layout != torch.strided:
        raise WrongOutput(f"{what} has layout {_word(output.layout)}; a dense tensor is asked for")
    if output.is_neg() or output.is_conj():
        raise WrongOutput(f"{what} is a lazy view: its memory does not hold its values")
    if output.numel() == 0:
        return
    strides = output.stride()
    reaches = (output.storage_offset() + reach_of(expected, strides)) * output.element_size()
    if output.data_ptr() == 0 or output.untyped_storage().nbytes() < reaches:
        raise WrongOutput(f"{what} has no memory that holds its elements")
    if not each_has_a_place(expected, strides):
        raise WrongOutput(f"several elements of {what} share one place in memory: strides {strides}")


def exchanged(layout: Layout, shape: Shape) -> bool:
    """Return whether an output comes with axes 1 and 2 exchanged."""
    return layout == "BLHD" and len(shape) == 4


def each_has_a_place(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether each axis steps over all elements of the axes with smaller strides.

    All elements then have different places. Axes that interleave count as if they had not, since no output
    needs them. Sizes are 1 or more, strides 0 or more.
    """
    reach = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride < reach:
            return False
        reach += stride * (size - 1)
    return True


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """Return whether two dense tensors on one device overlap, from first to last element."""
    (begin, end), (other_begin, other_end) = _addresses(a), _addresses(b)
    return a.device == b.device and begin < other_end and other_begin < end


def check_own_memory(output: Tensor, others: Iterable[tuple[str, Tensor]]) -> None:
    """Raise :class:`WrongOutput` if an output shares memory with one of the others, which have descriptions.

    These must be alive: freed memory may be used again.
    """
    for words, other in others:
        if shares_memory(output, other):
            raise WrongOutput(f"the output shares memory with {words}", "aliasing")


def _addresses(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    reach = reach_of(tensor.shape, tensor.stride()) if tensor.numel() else 0
    return begin, begin + reach * tensor.element_size()


def _word(thing: torch.dtype | torch.layout) -> str:
    return str(thing).removeprefix("torch.")


def as_tensor(stored: Stored, case: Case) -> Tensor:
    """Return a tensor of the case's dtype on the same memory; bfloat16 is stored as uint16."""
    import torch

    tensor = torch.from_numpy(stored)
    # Integers and booleans are as they are.
    bits = case.dtype == "bfloat16" and stored.dtype.itemsize == 2
    return tensor.view(torch.bfloat16) if bits else tensor


def to_tensors(stored: Mapping[str, Stored], case: Case) -> dict[str, Tensor]:
    """Return copies by name, on the device of the case; one array under two names gives one tensor."""
    made: dict[int, Tensor] = {}
    for array in stored.values():
        if id(array) not in made:
            made[id(array)] = as_tensor(array, case).to(case.device, copy=True)
    return {name: made[id(array)] for name, array in stored.items()}


def stored_output(
    output: Any,
    case: Case,
    shape: Shape,
    layout: Layout,
    kind: Kind = "float",
    what: str = "the output",
) -> Stored:
    """Return an output as it is stored, in BHLD; its own memory if that is contiguous there.

    Raises:
        WrongOutput: it is not as the case requires; see :func:`check_output`.
    """
    check_output(output, case, shape, layout, kind, what)
    return as_stored(output.transpose(1, 2) if exchanged(layout, shape) else output, case)


def as_stored(tensor: Tensor, case: Case) -> Stored:
    """Return a tensor as it is stored in a case; its own memory if contiguous on the CPU."""
    import torch

    plain = tensor.detach().contiguous().cpu()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
    data: Stored = plain.numpy()
    return data
