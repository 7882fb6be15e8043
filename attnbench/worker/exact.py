"""What the plain reference is asked for besides its answers: exact gradients, sums in turn."""

from __future__ import annotations

from typing import Any

from attnbench.check.gradients import plain_errors, plain_gradients, recast
from attnbench.check.in_turn import in_turn
from attnbench.worker.answers import stored_answer
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


def answer_in_turn(held: Held, *, backwards: bool) -> dict[str, Stored]:
    """Its output on the inputs that a worker holds, features added in turn, or backwards."""
    assert held.inputs is not None
    call = held.backend.prepare(in_turn(held.setup, backwards=backwards))
    return stored_answer(held, call(*held.inputs))
