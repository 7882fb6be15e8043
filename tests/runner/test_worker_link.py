"""The line to a worker: its end in words, its cores and priority, and the descriptors that it holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from attnbench.ipc import messages as m
from attnbench.ipc.channel import socket_pair
from attnbench.runner import processes
from attnbench.runner.machine import allowed_cpus
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import ServerLost, WorkerFailed, WorkerLink, start_process

ENOUGH_S = 60

TWO_THREADS = """
import sys, threading
threading.Thread(target=sys.stdin.read, daemon=True).start()
print("both run", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def prepared_worker(pool: WorkerPool) -> Iterator[WorkerLink]:
    link = pool.new_worker(1, pool.all_cpus)
    yield link
    link.kill()


def failure_of(link: WorkerLink, timeout_s: float = ENOUGH_S) -> WorkerFailed:
    with pytest.raises(WorkerFailed) as caught:
        link.ask(m.Facts(), m.TorchFacts, timeout_s)
    return caught.value


def test_a_kill_that_the_system_counts_as_out_of_memory_is_called_so(
    prepared_worker: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "oom_kills", lambda: 2**62)
    os.kill(prepared_worker.pid, signal.SIGKILL)
    failed = failure_of(prepared_worker)
    assert failed.status == "out_of_memory"
    assert failed.reason == "the system killed the worker during Facts: the machine ran out of memory"


def test_a_child_is_of_the_group_of_its_template_and_ends_with_it(prepared_worker: WorkerLink) -> None:
    timed = prepared_worker.fork(timed=True, cpus=allowed_cpus())
    grandchild = timed.fork(timed=True, cpus=allowed_cpus())
    started = [psutil.Process(link.pid) for link in (prepared_worker, timed, grandchild)]
    assert {os.getpgid(p.pid) for p in started} == {prepared_worker.pid}
    prepared_worker.kill()
    assert psutil.wait_procs(started, timeout=ENOUGH_S)[1] == []
    assert failure_of(timed).status == failure_of(grandchild).status == "crashed"


def autogroup() -> str:
    """Of this session, with its priority; "" where the kernel has none."""
    path = Path("/proc/self/autogroup")
    return path.read_text() if path.exists() else ""


def test_every_thread_of_a_worker_is_pinned_and_put_first(prepared_worker: WorkerLink) -> None:
    """Those that libraries started while it was prepared too."""
    core, before = allowed_cpus()[-1], autogroup()
    process = subprocess.Popen([sys.executable, "-c", TWO_THREADS], stdin=-1, stdout=-1)
    with process as two_threads:
        assert two_threads.stdout.readline() == b"both run\n"
        ours, theirs = socket_pair()
        ours.close(), theirs.close()
        link = WorkerLink(ours, two_threads.pid, prepared_worker, None)
        threads = [int(path.name) for path in Path(f"/proc/{two_threads.pid}/task").iterdir()]
        link.pin((core,))
        allowed = link.put_first()
        assert [os.sched_getaffinity(thread) for thread in threads] == [{core}] * 2
        if allowed:
            nice = [os.getpriority(os.PRIO_PROCESS, thread) for thread in threads]
            assert nice == [processes.HIGHEST_PRIORITY] * 2
        # It is in our session, which is the user's: that is not put before all others.
        assert autogroup() == before
        two_threads.kill()


def fork_from_it(link: WorkerLink) -> None:
    os.kill(link.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed, match="died of SIGKILL during Fork"):
        link.fork(timed=True, cpus=allowed_cpus())


def hang_it(link: WorkerLink) -> None:
    os.kill(link.pid, signal.SIGSTOP)
    with pytest.raises(ServerLost, match=r"a process of attnbench was stopped \(SIGSTOP\) during "):
        # It is stopped, so the whole limit passes.
        link.ask(m.Facts(), m.TorchFacts, 0.5)


@pytest.mark.parametrize("end", [WorkerLink.kill, fork_from_it, hang_it])
def test_no_descriptor_is_left_open(pool: WorkerPool, end: Callable[[WorkerLink], None]) -> None:
    def descriptors() -> set[Path]:
        return set(Path("/proc/self/fd").iterdir())

    before = descriptors()
    for _ in range(3):
        end(pool.new_worker(1, pool.all_cpus))
    assert descriptors() == before


def test_a_server_that_does_not_start_says_its_last_words() -> None:
    started = start_process("attnbench.worker.server", ["many"], {})
    failed = failure_of(WorkerLink(started.sock, started.process.pid, started))
    assert failed.status == "crashed"
    assert failed.reason == (
        "exited with status 1 during Facts: ValueError: invalid literal for int() with base 10: 'many'"
    )
