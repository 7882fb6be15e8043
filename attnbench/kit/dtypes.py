"""A case's dtype in torch, the dtype of its softmax, and the bits of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.case import Case


def case_dtype(case: Case) -> torch.dtype:
    """The case's dtype in torch."""
    import torch

    dtype: torch.dtype = getattr(torch, case.dtype)
    return dtype


def softmax_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a softmax over scores of ``dtype``: float32 for half precision, else the same."""
    import torch

    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of one dtype and shape have the same bits."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.detach().view(whole), b.detach().view(whole))
