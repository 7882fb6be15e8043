"""What torch ran, by its profiler."""

from __future__ import annotations

import torch
from solved import Solved
from torch.profiler import ProfilerActivity, profile

from attnbench.types.backend import Backend


def operators(case: Solved, backend: Backend) -> set[str]:
    """Names of the operators that one call runs, preparation left out."""
    with torch.inference_mode():
        call, inputs = backend.prepare(case.setup), case.fresh_inputs()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            call(*inputs)
    return {event.name for event in profiler.events()}
