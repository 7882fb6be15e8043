"""Storage arrays to tensors on the case's device, and outputs back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.backend import Layout
from attnbench.types.case import Case
from attnbench.types.shapes import Shape
from attnbench.worker.messages import ArraySpec
from attnbench.worker.outputs import check_output, exchanged
from attnbench.worker.shared import Stored, anonymous_file

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


def write_output(output: Any, case: Case, shape: Shape, layout: Layout) -> tuple[int, ArraySpec]:
    """Copy an output into anonymous memory, in BHLD; gives its descriptor and layout.

    Raises:
        WrongOutput: it isn't what the case asks for.
    """
    data = stored_output(output, case, shape, layout)
    fd = anonymous_file()
    remaining = memoryview(data.reshape(-1).view(np.uint8).data)
    while remaining:
        remaining = remaining[os.write(fd, remaining) :]
    return fd, ArraySpec("out", case.dtype, shape, 0)


def stored_output(output: Any, case: Case, shape: Shape, layout: Layout) -> Stored:
    """An output as it is stored, in BHLD; its own memory where that is contiguous there.

    Raises:
        WrongOutput: it isn't what the case asks for; see :func:`~attnbench.worker.outputs.check_output`.
    """
    import torch

    check_output(output, case, shape, layout)
    plain = output.detach()
    if exchanged(layout, shape):
        plain = plain.transpose(1, 2)
    plain = plain.contiguous().cpu()
    if case.dtype == "bfloat16":
        plain = plain.view(torch.int16)
    data: Stored = plain.numpy()
    return data
