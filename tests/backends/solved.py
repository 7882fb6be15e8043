"""Cases with everything a backend needs and what it must give: setups from drawn or explicit arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnbench.backends import attnbench_backends
from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import Parameters, draw_activations, draw_parameters, store, widen
from attnbench.oracle.solve import solve
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule

Array = NDArray[Any]

BACKENDS = {backend.name: backend for backend in attnbench_backends()}
RULES = {rule.name: rule for rule in attnbench_rules()}
QUICK = [name for name, backend in BACKENDS.items() if "cpu" in backend.devices and not backend.compiles]


@dataclass(frozen=True)
class Solved:
    """A case, its inputs as tensors, and the oracle's output in float64 or wider."""

    case: Case
    setup: Setup
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    expected: Array

    def run(self, backend: Backend) -> torch.Tensor:
        """Prepare and call as a worker does; the output."""
        with torch.inference_mode():
            return backend.prepare(self.setup)(*self.fresh_inputs())

    def fresh_inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Copies of the inputs; one tensor given twice stays one."""
        copies = {id(x): x.clone() for x in self.inputs}
        a, b, c = (copies[id(x)] for x in self.inputs)
        return a, b, c

    def on(self, device: str) -> Solved:
        """The same numbers on another device."""
        case = replace(self.case, device=device)
        own = {name: x.to(device) for name, x in self.setup.rule_parameters.items()}
        projections = {name: x.to(device) for name, x in self.setup.projections.items()}
        setup = Setup(case, self.setup.rule, self.setup.rule.bind(case, own), own, projections)
        made = {id(x): x.to(device) for x in self.inputs}
        a, b, c = (made[id(x)] for x in self.inputs)
        return Solved(case, setup, (a, b, c), self.expected)


@cache
def solved(text: str, draw: int = 0) -> Solved:
    """The case of an id with drawn parameters and inputs, solved once for all backends."""
    case = parse_case(text)
    rule = RULES[case.rule]
    return _solve(case, rule, draw_parameters(case, rule), draw_activations(case, rule, 1, draw))


def solved_by(
    text: str,
    inputs: tuple[Any, Any, Any],
    parameters: Mapping[str, Any] | None = None,
    projections: Mapping[str, Any] | None = None,
) -> Solved:
    """The case of an id with the arrays given; one array given twice stays one."""
    case = parse_case(text)
    stored = {id(x): store(np.asarray(x, np.float64), case.dtype) for x in inputs}
    given = [
        {name: store(np.asarray(x, np.float64), case.dtype) for name, x in (arrays or {}).items()}
        for arrays in (parameters, projections)
    ]
    a, b, c = (stored[id(x)] for x in inputs)
    return _solve(case, RULES[case.rule], Parameters(*given), (a, b, c))


def magnified(text: str, times: float) -> Solved:
    """The case of an id with drawn queries and keys multiplied by a number."""
    drawn = solved(text)
    q, k, v = (x.double().numpy() for x in drawn.inputs)
    own = {name: x.double().numpy() for name, x in drawn.setup.rule_parameters.items()}
    return solved_by(text, (times * q, times * k, v), own)


def refusal(backend: Backend, case: Case) -> str | None:
    """Why a backend doesn't run a case, by what it declares and by its word."""
    rule = RULES[case.rule]
    if case.operation not in backend.operations:
        return "operation"
    if backend.rules is not None and rule.name not in backend.rules:
        return "rule"
    if backend.needs_dot_form and not rule.has_dot_form:
        return "no dot form"
    if case.dtype not in backend.dtypes:
        return "dtype"
    return backend.supports(case, rule)


def tensor_of(stored: Array, case: Case) -> torch.Tensor:
    """A tensor of the case's dtype with the bits of a stored array."""
    tensor = torch.from_numpy(np.array(stored))
    return tensor.view(torch.bfloat16) if case.dtype == "bfloat16" else tensor


def stored_of(output: torch.Tensor) -> Array:
    """An output's bits, as arrays are stored."""
    if output.dtype == torch.bfloat16:
        return output.view(torch.int16).numpy().view(np.uint16)
    return output.numpy()


def _solve(case: Case, rule: Rule, stored: Parameters, activations: tuple[Array, Array, Array]) -> Solved:
    own = {name: tensor_of(array, case) for name, array in stored.rule.items()}
    projections = {name: tensor_of(array, case) for name, array in stored.projections.items()}
    setup = Setup(case, rule, rule.bind(case, own), own, projections)
    made = {id(x): tensor_of(x, case) for x in activations}
    a, b, c = (made[id(x)] for x in activations)
    wide = Parameters(
        {name: widen(x, case.dtype) for name, x in stored.rule.items()},
        {name: widen(x, case.dtype) for name, x in stored.projections.items()},
    )
    sources = [widen(x, case.dtype) for x in activations]
    expected = solve(case, rule, wide, (sources[0], sources[1], sources[2]))
    return Solved(case, setup, (a, b, c), expected)
