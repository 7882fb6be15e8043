"""A worker has as many threads as its case says, in every library that is loaded."""

from __future__ import annotations

import os

import pytest
from asked import Asked

from attnbench.runner.link import start_server
from attnbench.runner.machine import thread_environment
from attnbench.types.extensions import Source

THREADS = Source("threads", "threads_plugin", "threads", "1.0")
CASE = "attention/dot/B1-H1-L4-D4/none/float32/cpu/forward"


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_and_the_blas_of_numpy_have_the_threads_of_the_case(
    threads: int, plugins_on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment of the user says."""
    for name in thread_environment(1):
        monkeypatch.setenv(name, "3")
    server = start_server(threads)
    try:
        prepared_worker = server.fork(timed=False, cpus=tuple(os.sched_getaffinity(0)))
        worker = Asked(prepared_worker, CASE, [prepared_worker])
        worker.prepare("counts_threads", THREADS)
        worker.give()
        said, between, of_torch, of_blas = worker.output().ravel()[:4]
        assert (said, between) == (threads, threads)
        # Each starts what it needs beside the first when it first works.
        assert (of_torch, of_blas) == (threads - 1, threads - 1)
        prepared_worker.kill()
    finally:
        server.kill()


def test_every_variable_says_the_number() -> None:
    assert set(thread_environment(3).values()) == {"3"}
    assert {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PJRT_NPROC"} <= set(thread_environment(1))
