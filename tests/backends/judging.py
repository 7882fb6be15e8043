"""The check's verdict on a backend, gradients of a solved case, and the operators that torch ran."""

from __future__ import annotations

from collections import Counter

import torch
from solved import BACKENDS, Solved, solved
from torch.profiler import ProfilerActivity, profile

from attnbench.kit.reference import PLAIN
from attnbench.types.backend import Backend
from attnbench.types.record import Accuracy
from attnbench.verifier.errors import Errors, compare, pool, scale_of, verdict
from attnbench.worker.gradients import recast
from attnbench.worker.outputs import as_stored


def errors_of(backend: Backend, draws: list[Solved]) -> Errors:
    case = draws[0].case
    return pool([compare(as_stored(each.run(backend), case), each.expected, case.dtype) for each in draws])


def problem(name: str, text: str, draws: int) -> str:
    """The problem that the check finds in a backend, "" for none."""
    return problem_of(BACKENDS[name], [solved(text, draw) for draw in range(draws)])


def problem_of(backend: Backend, cases: list[Solved]) -> str:
    """The problem that the check finds on draws of one case, "" for none."""
    return judged(backend, cases)[1]


def judged(backend: Backend, cases: list[Solved]) -> tuple[Accuracy, str]:
    """The check's verdict on draws of one case."""
    case = cases[0].case
    return verdict(
        errors_of(backend, cases),
        errors_of(PLAIN, cases),
        output=scale_of([each.expected for each in cases]),
        values=scale_of([each.inputs[2].double().numpy() for each in cases]),
        dtype=case.dtype,
        rows=case.Lq,
        rows_of=case.Lq,
        draws=len(cases),
    )


def upstream_of(case: Solved, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(case.expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def wide(case: Solved) -> Solved:
    """The same numbers in float64."""
    setup, inputs = recast(case.setup, case.inputs, "float64")
    return Solved(setup.case, setup, inputs, case.expected)


def operators(case: Solved, backend: Backend) -> Counter[str]:
    """How often one call runs each operator, preparation left out."""
    with torch.inference_mode():
        call, inputs = backend.prepare(case.setup), case.fresh_inputs()
        # Without acc_events torch 2.11 warns that a second profile clears the events of this one.
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            call(*inputs)
    return Counter(event.name for event in profiler.events())
