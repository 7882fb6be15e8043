"""Cases with drawn inputs, what they must give, and how far off an output may be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbench.backends.eager import EAGER
from attnbench.cases.ids import parse_case
from attnbench.kit.dtypes import case_dtype
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case, activation_shapes, projection_shapes

RULES = {rule.name: rule for rule in attnbench_rules()}


@dataclass(frozen=True)
class Drawn:
    """A case with parameters and inputs, all float64 numbers that its dtype has exactly."""

    case: Case
    rule_parameters: dict[str, torch.Tensor]
    projections: dict[str, torch.Tensor]
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]

    def run(self, backend: Backend, dtype: str | None = None) -> torch.Tensor:
        """The output in float64, computed in the case's dtype or in another."""
        case = replace(self.case, dtype=dtype or self.case.dtype)
        rule, wanted = RULES[case.rule], case_dtype(case)
        own = {name: x.to(wanted) for name, x in self.rule_parameters.items()}
        projections = {name: x.to(wanted) for name, x in self.projections.items()}
        setup = Setup(case, rule, rule.bind(case, own), own, projections)
        with torch.inference_mode():
            return backend.prepare(setup)(*(x.to(wanted) for x in self.inputs)).double()


def drawn(text: str, *, times: float = 1.0) -> Drawn:
    """The case of an id; ``times``: what q and k are multiplied by."""
    case = parse_case(text)
    rule, rng, dtype = RULES[case.rule], np.random.default_rng(5), case_dtype(case)

    def stored(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(dtype).double()

    own = {p.name: stored(p.draw(rng, case.H, p.shape)) for p in rule.parameters(case)}
    shapes = projection_shapes(case, rule) if case.layer is not None else {}
    projections = {
        name: stored(rng.standard_normal(shape) / np.sqrt(shape[-1])) for name, shape in shapes.items()
    }
    a, b, c = (stored(rng.standard_normal(shape)) for shape in activation_shapes(case, rule))
    return Drawn(case, own, projections, (a * times, b * times, c))


def assert_right(backend: Backend, given: Drawn) -> torch.Tensor:
    """An output is as near to float64 as the check of attnbench asks: by what a plain computation is off.

    Where the case is of float64 itself there is nothing nearer, and some dozens of ulp are allowed.
    """
    exact, out = given.run(EAGER, "float64"), given.run(backend)
    plain = given.run(EAGER)
    ulps = 64 if given.case.dtype == "float64" else 4
    least = ulps * torch.finfo(case_dtype(given.case)).eps * float(exact.abs().max())
    assert out.shape == exact.shape
    assert float((out - exact).abs().max()) <= 4 * float((plain - exact).abs().max()) + least
    return out
