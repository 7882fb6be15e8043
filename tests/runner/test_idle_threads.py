"""Workers of several threads leave the cores to the others once their turn is over."""

from __future__ import annotations

import pytest
from bench import cpu_ns, open_bench, take

from attnbench.runner.machine import cpu_quota
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import threads_of

CASE = "attention/dot/B1-H4-Lq256-Lk256-D64/none/float32/cpu/forward/threads2"


@pytest.mark.skipif(cpu_quota() < 2, reason="needs two cores")
def test_no_thread_of_a_library_goes_on_spinning(pool: WorkerPool) -> None:
    """Left alone, those of torch do for 8 ms and those of numpy's BLAS for 100."""
    with open_bench(pool, CASE, threads=2) as bench:
        links = bench.kept("eager", "numpy", "every_work_for_long")
        working = {"every_work_for_long": links.pop("every_work_for_long")}
        for name, link in links.items():
            assert take([name] * 5, {name: link}).failed == {}
            assert len(threads_of(link.pid)) >= 2, "several have worked"
            before = cpu_ns(link.pid)
            assert take([*working], working).failed == {}
            assert cpu_ns(link.pid) - before < 2_000_000, name
