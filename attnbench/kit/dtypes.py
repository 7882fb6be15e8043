"""A case's dtype in torch, and the dtype of its softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

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
