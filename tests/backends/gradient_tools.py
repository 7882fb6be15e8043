"""What tests of gradients share: an upstream gradient for a solved case, and its numbers in float64."""

from __future__ import annotations

from dataclasses import replace

import torch
from solved import Solved

from attnbench.types.backend import Setup


def upstream_of(case: Solved, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(case.expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def wide(case: Solved) -> Solved:
    """The same numbers in float64."""
    setup = case.setup
    own = {name: x.double() for name, x in setup.rule_parameters.items()}
    projections = {name: x.double() for name, x in setup.projections.items()}
    case64 = replace(case.case, dtype="float64")
    setup64 = Setup(case64, setup.rule, setup.rule.bind(case64, own), own, projections)
    made = {id(x): x.double() for x in case.inputs}
    a, b, c = (made[id(x)] for x in case.inputs)
    return Solved(case64, setup64, (a, b, c), case.expected)
