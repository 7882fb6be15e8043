"""Gradients in float64, of the plain reference: what those of backends are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.check.gradients import plain_gradients
from attnbench.types.backend import Setup
from attnbench.worker.held import Held
from attnbench.worker.names import HELD
from attnbench.worker.shared import Stored

if TYPE_CHECKING:
    from torch import Tensor


def exact_gradients(held: Held) -> dict[str, Stored]:
    """Gradients on the inputs that a worker holds, by name; under ``held.NAME`` the units of their errors.

    Inputs and parameters are those of the case, widened. The gradients' own dtype is float64 in every case.
    """
    assert held.inputs is not None
    assert held.passed is not None
    setup = held.setup
    case = replace(setup.case, dtype="float64")
    own, projections = _widened(setup.rule_parameters), _widened(setup.projections)
    wide = Setup(case, setup.rule, setup.rule.bind(case, own), own, projections)
    made = {id(x): x.detach().double() for x in held.inputs}
    a, b, c = (made[id(x)] for x in held.inputs)
    upstream = held.passed.upstream.double()
    exact = plain_gradients(wide, (a, b, c), upstream)
    units = plain_gradients(wide, (a, b, c), upstream, held=True)
    named: dict[str, Any] = exact | {HELD + name: x for name, x in units.items()}
    return {name: x.detach().contiguous().cpu().numpy() for name, x in named.items()}


def _widened(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.detach().double() for name, x in parameters.items()}
