"""Servers and forks: their threads, cores and memory, and the end of each with its parent."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import numpy as np
import pytest
from asked import ENOUGH_S, Asked

from attnbench.runner.machine import thread_environment
from attnbench.runner.processes import start_server
from attnbench.worker.server import HUGE_BYTES, collapse_memory

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
        worker.prepare("counts_threads")
        worker.give()
        said, between, of_torch, of_blas = worker.output().ravel()[:4]
        assert (said, between) == (threads, threads)
        # Each starts what it needs beside the first when it first works.
        assert (of_torch, of_blas) == (threads - 1, threads - 1)
        prepared_worker.kill()
    finally:
        server.kill()


def test_memory_is_collapsed_and_keeps_its_values() -> None:
    held = np.arange(4 * HUGE_BYTES, dtype=np.uint32)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # In a fork, so that no other test runs on huge pages.
        collapsed = collapse_memory()
        kept = bool((held == np.arange(4 * HUGE_BYTES, dtype=np.uint32)).all())
        os.write(writer, f"{collapsed} {int(kept)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    collapsed, kept = (int(word) for word in os.read(reader, 100).split())
    os.close(reader)
    os.close(writer)
    assert kept == 1
    if collapsed == 0:
        pytest.skip("this kernel does not collapse memory on demand")
    # 32 MiB of the array, at the very least all but its ends.
    assert collapsed >= 14


PARENT = """
import os, sys
from attnbench.runner.processes import start_process, start_server

cpus = tuple(os.sched_getaffinity(0))
server = start_server(2)
worker = server.fork(timed=False, cpus=cpus)
child = worker.fork(timed=True, cpus=cpus)
verifier = start_process("attnbench.verifier.process", [], {})
print(server.pid, worker.pid, child.pid, verifier.process.pid, flush=True)
sys.stdin.read()
"""


def test_when_the_parent_is_killed_all_end() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=-1, stdout=-1) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 4
        watched = [os.pidfd_open(pid) for pid in pids]
        parent.kill()
    for fd in watched:
        assert select.select([fd], [], [], ENOUGH_S)[0] == [fd], "it ends"
        os.close(fd)
