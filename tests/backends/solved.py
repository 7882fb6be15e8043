"""Cases with everything a backend needs and what it must give: setups from drawn or explicit arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnbench.backends import attnbench_backends
from attnbench.backends.sdpa import flash_takes_groups
from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import Parameters, draw_activations, draw_parameters, store, widen, widened
from attnbench.oracle.solve import solve
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.worker.gradients import rebound
from attnbench.worker.outputs import to_tensors

Array = NDArray[Any]

BACKENDS = {
    backend.name: backend
    for backend in attnbench_backends()
    if "dense" in backend.storages and "dtype" in backend.encodings
    if not {"attention", "multihead"}.isdisjoint(backend.operations)
}
RULES = {rule.name: rule for rule in attnbench_rules() if rule.kind == "scores"}
QUICK = [name for name, backend in BACKENDS.items() if "cpu" in backend.devices and not backend.compiles]

WITHOUT_GROUPS = () if flash_takes_groups() else ("sdpa_flash",)
"""Backends that refuse grouped heads because this torch is too old."""


def mapped(change: Callable[[Any], Any], inputs: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """The three inputs changed; one given twice stays one."""
    made = {id(x): change(x) for x in inputs}
    a, b, c = (made[id(x)] for x in inputs)
    return a, b, c


@dataclass(frozen=True, eq=False)
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
        return mapped(torch.clone, self.inputs)

    def on(self, device: str) -> Solved:
        """The same numbers on another device."""
        case = replace(self.case, device=device)
        setup = rebound(self.setup, lambda x: x.to(device), case)
        return Solved(case, setup, mapped(lambda x: x.to(device), self.inputs), self.expected)


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

    def stored(x: Any) -> Array:
        return store(np.asarray(x, np.float64), case.dtype)

    given = [{name: stored(x) for name, x in (arrays or {}).items()} for arrays in (parameters, projections)]
    return _solve(case, RULES[case.rule], Parameters(*given), mapped(stored, inputs))


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


def supported(name: str, forms: Iterable[str]) -> list[Solved]:
    """The cases that a backend runs, solved; {} in an id stands for every rule."""
    texts = dict.fromkeys(form.format(rule) for form in forms for rule in RULES)
    return [solved(text) for text in texts if refusal(BACKENDS[name], parse_case(text)) is None]


def supported_in_turn(name: str, forms: Iterable[str], turn: int) -> list[Solved]:
    """One case of each rule, solved, in one of the forms that the backend runs.

    The next rule and the next turn have the next form: every two of turn, rule and form meet in some turns.
    """
    forms, found = tuple(forms), []
    for number, rule in enumerate(RULES, turn):
        texts = [form.format(rule) for form in forms]
        taken = [text for text in texts if refusal(BACKENDS[name], parse_case(text)) is None]
        if taken:
            found.append(solved(taken[number % len(taken)]))
    return found


def _solve(case: Case, rule: Rule, stored: Parameters, activations: tuple[Array, Array, Array]) -> Solved:
    own, projections = (to_tensors(arrays, case) for arrays in (stored.rule, stored.projections))
    setup = Setup(case, rule, rule.bind(case, own), own, projections)
    sources = mapped(lambda x: widen(x, case.dtype), activations)
    expected = solve(case, rule, widened(stored, case), sources)
    return Solved(case, setup, mapped(lambda x: to_tensors({"": x}, case)[""], activations), expected)
