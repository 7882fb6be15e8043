"""Gradients in float64, of the plain reference: what those of backends are held against."""

from __future__ import annotations

from typing import Any

from attnbench.check.gradients import plain_errors, plain_gradients, recast
from attnbench.worker.held import Held
from attnbench.worker.names import ERROR, HELD
from attnbench.worker.shared import Stored


def exact_gradients(held: Held) -> dict[str, Stored]:
    """Gradients on the inputs that a worker holds, by name, all in float64.

    With each, under ``held.NAME``, what the units of its errors come from
    (:func:`attnbench.check.gradient_scale.gradient_scale`), and under ``error.NAME`` by how much the plain
    reference in the case's dtype is off.
    """
    assert held.inputs is not None
    assert held.passed is not None
    upstream = held.passed.upstream
    wide, sources = recast(held.setup, held.inputs, "float64")
    named: dict[str, Any] = plain_gradients(wide, sources, upstream.double())
    units = plain_gradients(wide, sources, upstream.double(), held=True)
    errors = plain_errors(held.setup, held.inputs, upstream)
    named |= {HELD + name: x for name, x in units.items()}
    named |= {ERROR + name: x for name, x in errors.items()}
    return {name: x.detach().contiguous().cpu().numpy() for name, x in named.items()}
