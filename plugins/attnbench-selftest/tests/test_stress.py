"""Cores are kept busy while a block lasts, and by nobody afterwards, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from attnbench_selftest.measure import busy_cores


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_one_on_each_core_and_each_at_work() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with busy_cores() as pids:
        assert len(pids) == len(cpus)
        for pid, cpu in zip(pids, cpus, strict=True):
            spinner = psutil.Process(pid)
            while spinner.cpu_times().user < 0.05:
                assert spinner.is_running()
            assert spinner.cpu_affinity() == [cpu]
    assert not any(map(alive, pids))


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_none_is_left_after_an_error(failure: type[BaseException]) -> None:
    started: list[int] = []

    def fail() -> None:
        with busy_cores() as pids:
            started.extend(pids)
            raise failure

    with pytest.raises(failure):
        fail()
    assert started
    assert not any(map(alive, started))


def test_they_end_when_who_started_them_is_killed() -> None:
    script = (
        "import sys\nfrom attnbench_selftest.measure import busy_cores\n"
        "with busy_cores() as pids:\n    print(*pids, flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        spinners = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert spinners
        for spinner in spinners:
            # It has begun to look at its parent once it's at work.
            while spinner.cpu_times().user < 0.05:
                assert spinner.is_running()
        parent.send_signal(signal.SIGKILL)
    gone, left = psutil.wait_procs(spinners, timeout=60)
    assert left == []
    assert len(gone) == len(spinners)


def test_a_core_that_can_not_be_kept_busy_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[int] = []
    start = subprocess.Popen

    def once(*words: object, **more: object) -> object:
        if started:
            raise OSError(11, "Resource temporarily unavailable")
        process = start(*words, **more)  # type: ignore[call-overload]
        started.append(process.pid)
        return process

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(subprocess, "Popen", once)
    with pytest.raises(OSError, match="temporarily"), busy_cores():
        pass
    assert len(started) == 1
    assert not alive(started[0])
