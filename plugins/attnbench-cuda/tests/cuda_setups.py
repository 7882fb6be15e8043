"""Setups of cases on the CPU whose device says ``cuda``: enough for arguments, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from attnbench.cases.ids import parse_case
from attnbench.kit.dtypes import case_dtype
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

RULES = {rule.name: rule for rule in attnbench_rules()}


def case_of(text: str) -> tuple[Case, Rule]:
    """The case of an id, in bfloat16 unless it says otherwise, and its rule."""
    case = parse_case(text)
    return (replace(case, dtype="bfloat16") if case.dtype == "float32" else case), RULES[case.rule]


def setup_of(text: str) -> Setup:
    """The case with its rule's parameters drawn, on the CPU."""
    case, rule = case_of(text)
    rng, dtype = np.random.default_rng(1), case_dtype(case)
    own = {
        p.name: torch.from_numpy(np.asarray(p.draw(rng, case.H, p.shape))).to(dtype)
        for p in rule.parameters(case)
    }
    return Setup(case, rule, rule.bind(case, own), own, {})


def inputs_of(setup: Setup) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v as (B, L, heads, D)."""
    case, dtype = setup.case, case_dtype(setup.case)
    generator = torch.Generator().manual_seed(0)
    shapes = (case.B, case.Lq, case.H, case.D), (case.B, case.Lk, case.Hkv, case.D)
    q, k = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    v = torch.randn(case.B, case.Lk, case.Hkv, case.Dv, generator=generator).to(dtype)
    return q, k, v
