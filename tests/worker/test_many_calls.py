"""Many calls asked for at once, and the random numbers of forks where weights are dropped."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, ENOUGH_S, Asked

from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import unpack

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4/none/float32"
DROPPING = "attention/dot/B2-H2-Lq8-Lk8-D4/none/float32/cpu/forward/dropout0.5"


def many(worker: Asked, count: int) -> list[np.ndarray]:
    answer, fd = worker.link.ask(m.Compute(count=count), m.Outputs, ENOUGH_S)
    try:
        return [unpack(fd, parts)["out"] for parts in answer.outputs]
    finally:
        os.close(fd)


def test_outputs_come_in_the_order_of_their_calls(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("counts_calls")
    worker.give()
    assert [set(output.ravel()) for output in many(worker, 5)] == [{1.0}, {2.0}, {3.0}, {4.0}, {5.0}]
    assert [set(output.ravel()) for output in many(worker, 1)] == [{6.0}]


@pytest.mark.parametrize("backend", ["eager", "numpy"])
def test_forks_of_one_template_drop_other_weights(prepared_worker: New, backend: str) -> None:
    """Whether the random numbers are torch's or a generator's made in preparation."""
    worker = prepared_worker(DROPPING)
    worker.prepare(backend, BUILT_IN_BACKENDS)
    worker.give()
    outputs = [each.fork().output().tobytes() for each in (worker, worker, worker)]
    outputs += [output.tobytes() for output in many(worker, 2)]
    assert len(set(outputs)) == len(outputs)
