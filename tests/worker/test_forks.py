"""Lives of processes: what a fork keeps, where it runs, how it ends, and who ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from asked import ENOUGH_S, Asked, ends, fork_by_hand

from attnbench.ipc import messages as m
from attnbench.runner.link import WorkerFailed, WorkerLink

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4/none/float32"


def counting(prepared_worker: New) -> Asked:
    worker = prepared_worker(SMALL)
    worker.prepare("counts_calls")
    worker.give()
    return worker


def counted(worker: Asked) -> int:
    (count,) = set(worker.output().ravel())
    return int(count)


def test_a_fork_of_a_fork_goes_on_from_what_it_was_forked_with(prepared_worker: New) -> None:
    worker = counting(prepared_worker)
    assert counted(worker) == 1
    timed = worker.fork()
    assert [counted(timed), counted(timed)] == [2, 3]
    grandchild = timed.fork()
    assert counted(grandchild) == 4
    assert [counted(worker), counted(timed), counted(worker.fork())] == [2, 4, 3]


def test_inputs_of_a_fork_are_its_own(prepared_worker: New) -> None:
    worker = prepared_worker("attention/dot/B1-H1-L2-D2/none/float64")
    worker.prepare("gives_values")
    _, _, v = worker.give(0)
    timed = worker.fork()
    assert (timed.output() == v).all()
    _, _, others = timed.give(1)
    assert (timed.output() == others).all()
    assert (worker.output() == v).all()


def test_a_fork_runs_on_its_cores_and_in_its_group(prepared_worker: New, server: WorkerLink) -> None:
    core = max(os.sched_getaffinity(0))
    worker = counting(prepared_worker)
    timed = worker.fork(cpus=(core,))
    counted(timed)
    assert os.sched_getaffinity(timed.link.pid) == {core}
    assert os.sched_getaffinity(worker.link.pid) == os.sched_getaffinity(0)
    timed.link.pin(tuple(os.sched_getaffinity(0)))
    assert os.sched_getaffinity(timed.link.pid) == os.sched_getaffinity(0)
    # A template leads a group, so that whatever its backend starts ends with it; children are in it.
    assert os.getpgid(worker.link.pid) == worker.link.pid == os.getpgid(timed.link.pid)
    assert os.getpgid(server.pid) == server.pid


def test_who_holds_a_backend_is_the_first_to_go_when_memory_runs_out(
    prepared_worker: New, server: WorkerLink
) -> None:
    worker = counting(prepared_worker)
    timed = worker.fork()
    counted(timed)
    scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in (timed.link.pid, worker.link.pid)]
    assert [int(score) for score in scores] == [1000, 1000]
    assert (
        Path(f"/proc/{server.pid}/oom_score_adj").read_text() == Path("/proc/self/oom_score_adj").read_text()
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_reaping_tells_the_signal_that_ended_a_child(prepared_worker: New, how: signal.Signals) -> None:
    worker = prepared_worker(SMALL)
    pid, line = fork_by_hand(worker.link, timed=True)
    os.kill(pid, how)
    assert worker.link.ask(m.Reap(pid), m.Ended, ENOUGH_S)[0] == m.Ended(-how)
    line.close()


@pytest.mark.parametrize(
    "rubbish", [b"", b"rubbish", b"\x81\xa4type\xa4Nope"], ids=["closed", "noise", "unknown"]
)
def test_a_worker_ends_with_its_line_and_takes_its_children_along(
    prepared_worker: New, rubbish: bytes
) -> None:
    worker = prepared_worker(SMALL)
    pid, line = fork_by_hand(worker.link, timed=True)
    parent = WorkerLink(line.sock, pid, worker.link, None)
    grandchild = fork_by_hand(parent, timed=False)
    watched = [os.pidfd_open(each) for each in (pid, grandchild[0])]
    if rubbish:
        line.sock.send(rubbish)
    else:
        line.close()
    assert [ends(fd) for fd in watched] == [True, True]
    for fd in watched:
        os.close(fd)
    assert worker.link.ask(m.Reap(pid), m.Ended, ENOUGH_S)[0] == m.Ended(0)
    grandchild[1].close()
    line.close()


def test_a_killed_template_takes_its_children_along(prepared_worker: New, server: WorkerLink) -> None:
    worker = counting(prepared_worker)
    timed = worker.fork()
    counted(timed)
    watched = os.pidfd_open(timed.link.pid)
    worker.link.kill()
    assert ends(watched)
    os.close(watched)
    with pytest.raises(WorkerFailed, match=r"during a checked call$") as failure:
        worker.output()
    assert failure.value.status == "crashed"
    assert server.ask(m.Reap(worker.link.pid), m.Ended, ENOUGH_S)[0] == m.Ended(0)


PARENT = """
import os, sys
from attnbench.runner.link import start_process, start_server

cpus = tuple(os.sched_getaffinity(0))
server = start_server(2)
template = server.fork(timed=False, cpus=cpus)
child = template.fork(timed=True, cpus=cpus)
verifier = start_process("attnbench.verifier.process", [], {})
print(server.pid, template.pid, child.pid, verifier.process.pid, flush=True)
sys.stdin.read()
"""


def test_when_the_parent_is_killed_all_end() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=-1, stdout=-1) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 4
        watched = [os.pidfd_open(pid) for pid in pids]
        parent.kill()
        assert [ends(fd) for fd in watched] == [True] * 4
    for fd in watched:
        os.close(fd)
