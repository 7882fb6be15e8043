"""Cases with drawn inputs, in any pass, what they must give, and how far off an output may be."""

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
    inputs: tuple[torch.Tensor, ...]

    def run(self, backend: Backend, dtype: str | None = None) -> dict[str, torch.Tensor]:
        """The output, and gradients by name where the pass has any, in float64, axes as (B, H, L, D)."""
        case = replace(self.case, dtype=dtype or self.case.dtype)
        rule, wanted, graph = RULES[case.rule], case_dtype(case), case.pass_ != "forward"
        own, projections = (
            {name: x.to(wanted, copy=True).requires_grad_(graph) for name, x in group.items()}
            for group in (self.rule_parameters, self.projections)
        )
        swapped = backend.layout == "BLHD" and case.layer is None
        laid = (x.transpose(1, 2).contiguous() if swapped else x for x in self.inputs)
        inputs = [x.to(wanted, copy=True).requires_grad_(graph) for x in laid]
        setup = Setup(case, rule, rule.bind(case, own), own, projections)
        call = backend.prepare(setup)
        parts = {}
        # Twice: what belongs to one call must not be used up by it.
        for _ in range(2):
            out = call(*inputs)
            parts = {"out": out.detach()}
            if graph:
                upstream = torch.linspace(-1, 1, out.numel(), dtype=wanted)
                upstream = (
                    upstream.view(case.B, case.H, case.Lq, -1)
                    if case.layer is None
                    else upstream.view_as(out)
                )
                leaves = dict(zip("qkv", inputs, strict=True)) | own | projections
                found = torch.autograd.grad(
                    out, list(leaves.values()), upstream.transpose(1, 2) if swapped else upstream
                )
                parts |= dict(zip(leaves, found, strict=True))
        return {
            name: (x.transpose(1, 2) if swapped and name in ("out", "q", "k", "v") else x).double()
            for name, x in parts.items()
        }


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


def assert_right(backend: Backend, given: Drawn) -> dict[str, torch.Tensor]:
    """Every part is as near to float64 as a small multiple of what a plain computation is off by.

    Where the case is of float64 itself there is nothing nearer, and some hundreds of ulp are allowed.
    """
    exact, found, plain = given.run(EAGER, "float64"), given.run(backend), given.run(EAGER)
    for name, x in exact.items():
        ulps = 512 if given.case.dtype == "float64" else 8
        least = ulps * torch.finfo(case_dtype(given.case)).eps * float(x.abs().max())
        assert found[name].shape == x.shape
        limit = 4 * float((plain[name] - x).abs().max()) + least
        assert float((found[name] - x).abs().max()) <= limit, name
    return found
