"""The preloaded server: threads, memory, and the measured speed of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from asked import ENOUGH_S, Asked

from attnbench.ipc import messages as m
from attnbench.runner.link import WorkerFailed, start_server
from attnbench.runner.machine import thread_environment
from attnbench.types.extensions import Source
from attnbench.worker.server import HUGE_BYTES, collapse_memory

THREADS = Source("threads", "threads_plugin", "threads", "1.0")
CASE = "attention/dot/B1-H1-L4-D4/none/float32/cpu/forward"
New = Callable[[str], Asked]
SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
MIB = 1024**2


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


def huge_kib() -> int:
    """What of this process's anonymous memory is in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))


def test_memory_is_collapsed_and_keeps_its_values() -> None:
    held = np.arange(4 * HUGE_BYTES, dtype=np.uint32)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # In a fork, so that no other test runs on huge pages.
        collapsed = collapse_memory()
        kept = bool((held == np.arange(4 * HUGE_BYTES, dtype=np.uint32)).all())
        os.write(writer, f"{collapsed} {int(kept)} {huge_kib()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    collapsed, kept, kib = (int(word) for word in os.read(reader, 100).split())
    os.close(reader)
    os.close(writer)
    assert kept == 1
    if collapsed == 0:
        pytest.skip("this kernel does not collapse memory on demand")
    # 32 MiB of the array, at the very least all but its ends.
    assert collapsed >= 14
    assert kib * 1024 >= 14 * HUGE_BYTES
