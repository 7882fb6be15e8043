"""The line to a worker: however a real process ends, hangs or answers, the parent says what happened."""

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
from attnbench.runner import link as link_module
from attnbench.runner.link import WorkerFailed, WorkerLink, start_process
from attnbench.runner.machine import allowed_cpus
from attnbench.runner.pool import ServerKey, WorkerPool

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


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT", "SIGTERM", "SIGBUS"])
def test_a_worker_killed_by_a_signal_has_crashed_of_it(prepared_worker: WorkerLink, name: str) -> None:
    os.kill(prepared_worker.pid, signal.Signals[name])
    failed = failure_of(prepared_worker)
    assert (failed.status, failed.reason) == ("crashed", f"died of {name} during Facts")
    assert is_gone(prepared_worker.pid), "not even a zombie is left"


def test_a_kill_that_the_system_counts_as_out_of_memory_is_called_so(
    prepared_worker: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "oom_kills", lambda: 2**62)
    os.kill(prepared_worker.pid, signal.SIGKILL)
    failed = failure_of(prepared_worker)
    assert failed.status == "out_of_memory"
    assert failed.reason == "the system killed the worker during Facts: the machine ran out of memory"


def test_a_worker_that_hangs_is_killed_in_time(prepared_worker: WorkerLink) -> None:
    os.kill(prepared_worker.pid, signal.SIGSTOP)
    failed = failure_of(prepared_worker, 0.2)
    assert (failed.status, failed.reason) == (
        "timeout",
        "Facts took longer than 0.2 s; the worker was killed",
    )
    assert is_gone(prepared_worker.pid)


def test_an_answer_that_is_no_message_ends_the_worker(pool: WorkerPool) -> None:
    """A backend can write into the line of its process: what it writes is not believed."""
    server = pool._servers[ServerKey("", 1, 0)]
    prepared_worker = pool.new_worker(1, pool.all_cpus)
    ours, theirs = socket_pair()
    impostor = WorkerLink(ours, prepared_worker.pid, server, None)
    with theirs:
        theirs.send(b"\xff rubbish")
        failed = failure_of(impostor)
    assert (failed.status, failed.reason) == ("crashed", "the worker sent unreadable data during Facts")
    assert is_gone(prepared_worker.pid)
    prepared_worker.kill()


def test_children_run_where_they_are_told_and_move_when_told(prepared_worker: WorkerLink) -> None:
    core = allowed_cpus()[-1]
    timed = prepared_worker.fork(timed=True, cpus=(core,), pin_allocator=True)
    timed.ask(m.Facts(), m.TorchFacts, ENOUGH_S)  # it sets its cores before it answers anything
    assert os.sched_getaffinity(timed.pid) == {core}
    timed.pin(allowed_cpus())
    assert os.sched_getaffinity(timed.pid) == set(allowed_cpus())
    timed.kill()


def test_a_child_is_of_the_group_of_its_template_and_ends_with_it(prepared_worker: WorkerLink) -> None:
    timed = prepared_worker.fork(timed=True, cpus=allowed_cpus())
    grandchild = timed.fork(timed=True, cpus=allowed_cpus())
    processes = [psutil.Process(link.pid) for link in (prepared_worker, timed, grandchild)]
    assert {os.getpgid(p.pid) for p in processes} == {prepared_worker.pid}
    prepared_worker.kill()
    assert psutil.wait_procs(processes, timeout=ENOUGH_S)[1] == []
    assert failure_of(timed).status == failure_of(grandchild).status == "crashed"


def test_a_template_is_of_a_group_of_its_own_and_its_end_harms_no_other(pool: WorkerPool) -> None:
    first, second = (pool.new_worker(1, pool.all_cpus) for _ in range(2))
    first.kill()
    # It leads its group before it answers.
    assert second.ask(m.Facts(), m.TorchFacts, ENOUGH_S)[0].torch
    assert os.getpgid(second.pid) == second.pid
    second.kill()


def autogroup() -> str:
    """Of this session, with its priority; "" where the kernel has none."""
    path = Path("/proc/self/autogroup")
    return path.read_text() if path.exists() else ""


def test_every_thread_of_a_worker_is_pinned_and_put_first(prepared_worker: WorkerLink) -> None:
    """Those that libraries started while it was prepared too."""
    core, before = allowed_cpus()[-1], autogroup()
    process = subprocess.Popen([sys.executable, "-c", TWO_THREADS], stdin=-1, stdout=-1)
    with process as two_threads:
        assert two_threads.stdout is not None
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
            assert nice == [link_module.HIGHEST_PRIORITY] * 2
        # It is in our session, which is the user's: that is not put before all others.
        assert autogroup() == before
        two_threads.kill()


def kill_it(link: WorkerLink) -> None:
    link.kill()


def fork_from_it(link: WorkerLink) -> None:
    os.kill(link.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailed, match="died of SIGKILL during Fork"):
        link.fork(timed=True, cpus=allowed_cpus())


def hang_it(link: WorkerLink) -> None:
    os.kill(link.pid, signal.SIGSTOP)
    failure_of(link, 0.05)


@pytest.mark.parametrize("end", [kill_it, fork_from_it, hang_it])
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
