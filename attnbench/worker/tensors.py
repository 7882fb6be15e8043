"""Storage arrays to tensors on the case's device, and outputs back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnbench.types.backend import Layout
from attnbench.types.case import Case
from attnbench.types.shapes import Shape
from attnbench.worker.outputs import check_output, exchanged
from attnbench.worker.shared import Stored

if TYPE_CHECKING:
    from torch import Tensor


def as_tensor(stored: Stored, case: Case) -> Tensor:
    """A tensor of the case's dtype on the same memory; bfloat16 comes as uint16."""
    import torch

    tensor = torch.from_numpy(stored)
    return tensor.view(torch.bfloat16) if case.dtype == "bfloat16" else tensor


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
