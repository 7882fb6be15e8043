"""What a rule's scores are made of on a case, before there are parameters: for ``supports``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype
from attnbench.types.shapes import rule_parameter_shapes

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule, Scoring


def form_of(case: Case, rule: Rule) -> Scoring:
    """The rule bound to parameters of zeros.

    Says which parts there are - dot form, cap, bias, sink -, which no parameter's value changes; its
    numbers mean nothing.
    """
    import torch

    shapes = rule_parameter_shapes(case, rule)
    zeros = {name: torch.zeros(shape, dtype=case_dtype(case)) for name, shape in shapes.items()}
    return rule.bind(case, zeros)
