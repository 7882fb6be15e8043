"""Calls of mutants: setups, inputs in guard bands, and what a call leaves behind."""

from __future__ import annotations

import math
import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attnbench_selftest.mutants.mutant import Mutant
from torch import Tensor

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_activations, draw_parameters
from attnbench.plugins.registry import load_registry
from attnbench.types.backend import Setup
from attnbench.types.rule import Rule

REGISTRY = load_registry()
BAND = 64

Inputs = tuple[Tensor, Tensor, Tensor]


def rule_of(text: str) -> Rule:
    return REGISTRY.rule(parse_case(text).rule)


def setup_of(text: str) -> Setup:
    case, rule = parse_case(text), rule_of(text)
    drawn = draw_parameters(case, rule)
    own = {name: torch.from_numpy(array) for name, array in drawn.rule.items()}
    projections = {name: torch.from_numpy(array) for name, array in drawn.projections.items()}
    return Setup(case, rule, rule.bind(case, own), own, projections)


def drawn(text: str, index: int = 0) -> Inputs:
    """Inputs of float32 or float64; one source that serves twice is one tensor."""
    arrays = draw_activations(parse_case(text), rule_of(text), 5, index)
    made = {id(array): torch.from_numpy(np.array(array)) for array in arrays}
    a, b, c = (made[id(array)] for array in arrays)
    return a, b, c


def guarded(x: Tensor) -> Tensor:
    """The same values amid NaN: before the first, past the last and between rows."""
    wide = (*x.shape[:-1], x.shape[-1] + 3)
    whole = torch.full((math.prod(wide) + 2 * BAND,), float("nan"), dtype=x.dtype)
    inside = whole[BAND:-BAND].view(wide)[..., : x.shape[-1]]
    inside.copy_(x)
    return inside


def laid(mutant: Mutant, inputs: Inputs) -> Inputs:
    if mutant.layout == "BHLD" or inputs[0].dim() != 4:
        return inputs
    a, b, c = (x.transpose(1, 2).contiguous() for x in inputs)
    return a, b, c


def seen(mutant: Mutant, output: Tensor) -> Tensor:
    return output.transpose(1, 2) if mutant.layout == "BLHD" and output.dim() == 4 else output


def world() -> dict[str, Any]:
    """Global state, as values that can be compared."""
    return {
        "threads of torch": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad mode": torch.is_grad_enabled(),
        "torch's numbers": torch.get_rng_state().tolist(),
        "Python's numbers": random.getstate(),
        "NumPy's numbers": str(np.random.get_state()),
        "environment": dict(os.environ),
        "denormals": float(torch.tensor(1e-40, device="cpu") * 1),
        "threads": threading.active_count(),
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
    }


def overlaps(output: Tensor) -> bool:
    """Return whether two elements of an output share their memory."""
    reach = 1 + sum((n - 1) * s for n, s in zip(output.shape, output.stride(), strict=True))
    places = torch.arange(reach).as_strided(output.shape, output.stride())
    return places.unique().numel() < output.numel()
