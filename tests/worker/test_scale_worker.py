"""A worker that holds nothing measures the scale; one that holds a backend goes on holding it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asked import ENOUGH_S, Asked

from attnbench.ipc import messages as m
from attnbench.runner.link import WorkerFailed

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
MIB = 1024**2


def test_the_scale_needs_no_backend_and_can_be_measured_again(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    first, second = (
        worker.link.ask(m.MeasureScale("float32", "cpu", MIB), m.ScaleMeasured, ENOUGH_S)[0].scale
        for _ in range(2)
    )
    assert first.gemm_ns.keys() == second.gemm_ns.keys(), "what is fastest is found out once"
    assert first.copy_bytes == second.copy_bytes == MIB
    for scale in (first, second):
        assert all(1 < 2 * side**3 / min(times) < 1e5 for side, times in scale.gemm_ns.items())
        assert 0.1 < scale.copy_bytes / min(scale.copy_ns) < 1e4


def test_a_scale_that_can_not_be_measured_is_an_answer(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    with pytest.raises(WorkerFailed) as failure:
        worker.link.ask(m.MeasureScale("float32", "nowhere", MIB), m.ScaleMeasured, ENOUGH_S)
    assert failure.value.status == "error"
