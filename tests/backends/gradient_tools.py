"""What tests of gradients share: an upstream gradient for a solved case, and its numbers in float64."""

from __future__ import annotations

import torch
from solved import Solved

from attnbench.check.gradients import recast


def upstream_of(case: Solved, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(case.expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def wide(case: Solved) -> Solved:
    """The same numbers in float64."""
    setup, inputs = recast(case.setup, case.inputs, "float64")
    return Solved(setup.case, setup, inputs, case.expected)
