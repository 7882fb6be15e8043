"""How inputs lie in memory when a backend gets them, and outputs when they are handed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnbench.cases.layouts import output_order, reach_of, strides_in
from attnbench.ipc.names import OUT, UPSTREAM
from attnbench.types.backend import Layout
from attnbench.types.case import Case
from attnbench.worker.outputs import exchanged

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def seen_in_layout(tensor: Tensor, layout: Layout) -> Tensor:
    """Return a (B, H, L, D) tensor as a view in the backend's layout; other ranks have no heads and stay."""
    return tensor.transpose(1, 2) if exchanged(layout, tensor.shape) else tensor


def laid_out(name: str, tensor: Tensor, case: Case, layout: Layout) -> Tensor:
    """Return an input, or the gradient of the output, with the strides that case and backend ask for."""
    strides = strides_in(case, OUT if name == UPSTREAM else name, tuple(tensor.shape))
    if strides is None:
        return seen_in_layout(tensor, layout).contiguous()
    return seen_in_layout(with_strides(tensor, strides), layout)


def strides_apart(x: Tensor) -> tuple[int, ...]:
    """Return the strides of a ``strided`` input like this tensor, in elements.

    (B, H, L, D) gets those of one half of (B, L, 2·H, D), and (B, L, E) those of one half of (B, L, 2·E).
    Tensors of other ranks, integers and empty tensors keep theirs.
    """
    shape: Sequence[int] = x.shape
    if len(shape) not in (3, 4) or not x.is_floating_point() or not x.numel():
        return x.stride()
    if len(shape) == 3:
        _, length, width = shape
        return 2 * width * length, 2 * width, 1
    _, inner, outer, width = shape
    row = 2 * inner * width
    return outer * row, width, row, 1


def features_outside(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of (B, H, L, D) in the memory of a contiguous (B, H, D, L), in elements."""
    _, heads, length, width = shape
    return heads * width * length, width * length, 1, length


def with_strides(tensor: Tensor, strides: Sequence[int]) -> Tensor:
    """Return a copy with these strides, and 0 between its elements."""
    memory = tensor.new_zeros(reach_of(tensor.shape, strides))
    return memory.as_strided(tensor.shape, strides).copy_(tensor)


def laying_out(call: Call, case: Case, layout: Layout) -> Call:
    """Return a call whose output lies as the case says, copied if it has to be.

    What is no tensor of heads comes as it is, to be refused.
    """
    if case.layout == "own":
        return call
    wanted = output_order(case.layout)
    there = tuple(layout.index(axis) for axis in wanted)
    back = tuple(wanted.index(axis) for axis in layout)

    def laid(*inputs: Any) -> Any:
        out = call(*inputs)
        whole = getattr(out, "ndim", 0) == 4 and hasattr(out, "permute")
        return out.permute(there).contiguous().permute(back) if whole else out

    return laid
